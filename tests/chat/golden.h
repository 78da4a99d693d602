// What Python's jinja2 gave (tools/chat_template_oracle.py), and a folder whose special tokens are those of the file.
#ifndef MLA_TESTS_CHAT_GOLDEN_H_
#define MLA_TESTS_CHAT_GOLDEN_H_

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "io/json.h"
#include "mla/chat.h"
#include "testing/temp_dir.h"

namespace mla::testing {

inline std::string ChatData(const std::string& file) { return std::string(MLA_SOURCE_DIR) + "/tests/chat/" + file; }

class Golden {
 public:
  Golden() : root_(std::move(io::ReadJsonFile(ChatData("golden.json"))).value()) {
    dir_.Write("tokenizer_config.json",
               R"({"bos_token":"<｜begin▁of▁sentence｜>","eos_token":{"content":"<｜end▁of▁sentence｜>"}})");
  }
  const io::JsonValue& operator[](std::string_view key) const { return *root_.Find(key); }
  // A folder that holds nothing but the tokens.
  const std::string& dir() const { return dir_.path(); }
  Result<ChatTemplate> Load(std::string_view source) const { return ChatTemplate::Load(dir(), source, "test"); }

  // A conversation, or the snippets' context, as the file has it.
  ChatInput Input(const io::JsonValue& json) const {
    ChatInput input;
    input.messages = json.Find("messages")->string();
    input.tools = json.Find("tools")->string();
    input.variables = json.Find("variables")->string();
    input.add_generation_prompt = json.Find("add_generation_prompt")->boolean();
    input.as_given = true;
    input.now = root_.Find("now")->integer();
    return input;
  }

 private:
  TempDir dir_;
  io::JsonValue root_;
};

}  // namespace mla::testing

#endif  // MLA_TESTS_CHAT_GOLDEN_H_
