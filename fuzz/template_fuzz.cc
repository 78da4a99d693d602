// A template and a conversation: the bytes up to the first NUL are the one, those behind it the other. Both end in a
// text that is valid UTF-8 with ranges inside it, or in an error of one line.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "chat/conversation.h"
#include "chat/heap.h"
#include "chat/parser.h"
#include "chat/renderer.h"
#include "io/json.h"
#include "io/quote.h"

namespace {

using mla::chat::Value;

void Render(const mla::chat::Template& source, std::string_view json, bool as_given) {
  mla::chat::Heap heap(std::int64_t{1} << 16, std::int64_t{16} << 20);
  mla::chat::Environment environment;
  environment.heap = &heap;
  const auto messages = mla::io::ParseJson(json, "messages");
  Value list = Value::None();
  if (messages.ok()) {
    auto made = mla::chat::MessagesFromJson(*messages, as_given, mla::chat::ToolArguments::kObject, &heap);
    list = made.ok() ? *made : mla::chat::FromJson(*messages, &heap);
  }
  const mla::chat::Variable variables[] = {
      {"messages", list}, {"tools", Value::None()}, {"add_generation_prompt", Value::Bool(true)}};
  const auto text = mla::chat::Renderer(source, environment, variables).Run();
  if (!text.ok()) {
    MLA_CHECK(text.error().message.find('\n') == std::string::npos);
    return;
  }
  MLA_CHECK_EQ(mla::io::ValidUtf8Prefix(text->bytes), text->bytes.size());
  std::size_t end = 0;
  for (const mla::TextRange& range : text->trusted) {
    MLA_CHECK(range.begin < range.end && (range.begin > end || range.begin == 0) && range.end <= text->bytes.size());
    end = range.end;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t nul = bytes.find('\0');
  const auto parsed = mla::chat::ParseTemplate(bytes.substr(0, nul));
  if (!parsed.ok()) {
    MLA_CHECK(parsed.error().message.find('\n') == std::string::npos);
    return 0;
  }
  const std::string_view json = nul == std::string_view::npos ? std::string_view() : bytes.substr(nul + 1);
  for (const bool as_given : {false, true})
    Render(*parsed, json.empty() ? R"([{"role":"user","content":"x"}])" : json, as_given);
  return 0;
}
