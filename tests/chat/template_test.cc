// Templates against what Python's jinja2 makes of them, byte for byte; refusals; bounds.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "chat/golden.h"
#include "mla/chat.h"
#include "testing/temp_dir.h"

namespace mla {
namespace {

using testing::Golden;

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Holds a rendering to the golden text, or both to a refusal.
void Compare(const Result<ChatText>& found, const io::JsonValue& expected, const std::string& what) {
  if (expected.is_null()) {
    EXPECT_FALSE(found.ok()) << what << ": Python refuses it; it gave " << found.value().text;
    if (found.ok()) return;
    EXPECT_EQ(found.error().message.find('\n'), std::string::npos) << what;
    return;
  }
  ASSERT_TRUE(found.ok()) << what << ": " << found.error().message;
  EXPECT_EQ(found->text, expected.string()) << what;
  std::size_t end = 0;
  for (const TextRange& range : found->trusted) {
    EXPECT_LT(range.begin, range.end) << what;
    EXPECT_TRUE(range.begin > end || (range.begin == 0 && end == 0)) << what << ": ranges that touch";
    end = range.end;
  }
  EXPECT_LE(end, found->text.size()) << what;
}

class Templates : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("TZ", "UTC", 1); }  // strftime_now tells local time
  Golden golden_;

  void CompareConversations(const Result<ChatTemplate>& loaded, const io::JsonValue& expected,
                            const std::string& name) {
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    for (const auto& [key, text] : expected.members()) {
      const io::JsonValue& conversation = *golden_["conversations"].Find(key);
      Compare(loaded->Render(golden_.Input(conversation)), text, name + " over " + std::string(key));
    }
  }

  Result<ChatText> RenderOne(std::string_view source, const ChatInput& input = OneMessage()) {
    MLA_ASSIGN_OR_RETURN(const ChatTemplate loaded, golden_.Load(source));
    return loaded.Render(input);
  }

  static ChatInput OneMessage() {
    ChatInput input;
    input.messages = R"([{"role":"user","content":"Hi"}])";
    return input;
  }
};

TEST_F(Templates, ConversationsGiveWhatPythonGives) {
  int compared = 0;
  for (const auto& [key, expected] : golden_["templates"].members()) {
    const std::string name(key);
    if (name.rfind("folder:", 0) == 0) continue;
    const std::string source = ReadText(testing::ChatData("templates/" + name + ".jinja"));
    CompareConversations(golden_.Load(source), expected, name);
    ++compared;
  }
  EXPECT_EQ(compared, 5);
}

TEST_F(Templates, TheDemosTemplateGivesWhatPythonGives) {
  CompareConversations(ChatTemplate::Load(testing::DemoDir()), *golden_["templates"].Find("folder:demo"), "demo");
}

TEST_F(Templates, DeepSeekV3sTemplateGivesWhatPythonGives) {
  const std::string folder = "deepseek_v3_tokenizer";
  if (testing::SharedDir().empty()) GTEST_SKIP() << "no shared folder";
  CompareConversations(ChatTemplate::Load(testing::SharedDir() + "/data/" + folder),
                       *golden_["templates"].Find("folder:" + folder), folder);
}

TEST_F(Templates, SnippetsGiveWhatPythonGives) {
  const ChatInput input = golden_.Input(golden_["context"]);
  for (const io::JsonValue& pair : golden_["snippets"].items()) {
    std::string source(pair.items()[0].string());
    constexpr std::string_view kLineFeed = "⏎";
    for (std::size_t at = source.find(kLineFeed); at != std::string::npos; at = source.find(kLineFeed, at))
      source.replace(at, kLineFeed.size(), "\n");
    Compare(RenderOne(source, input), pair.items()[1], source);
  }
}

}  // namespace
}  // namespace mla
