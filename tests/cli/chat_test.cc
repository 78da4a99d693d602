// mla chat on the demo, with a script of lines in place of a person.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <signal.h>

#include "cli/demo_copy.h"
#include "cli/program.h"
#include "testing/temp_dir.h"

namespace mla::testing {
namespace {

using Json = nlohmann::json;

ProcessResult Chat(const std::string& script, std::vector<std::string> more = {},
                   const std::string& model = DemoDir()) {
  std::vector<std::string> arguments = {"chat", model, "--max-tokens", "12", "--ctx", "400", "--threads", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  ProcessOptions options;
  options.input = script;
  return Mla(arguments, options);
}

int Lines(const std::string& text) { return static_cast<int>(std::count(text.begin(), text.end(), '\n')); }

// The numbers of "[n tokens in s; c of the prompt's p were in the cache]", one of each reply.
std::vector<std::pair<int, int>> CachedOf(const std::string& err) {
  std::vector<std::pair<int, int>> found;
  for (std::size_t at = err.find("; "); at != std::string::npos; at = err.find("; ", at + 1)) {
    int cached = 0;
    int prompt = 0;
    if (std::sscanf(err.c_str() + at, "; %d of the prompt's %d were", &cached, &prompt) == 2)
      found.emplace_back(cached, prompt);
  }
  return found;
}

TEST(Chat, TurnsFindTheRowsOfThoseBefore) {
  const TempDir dir;
  const ProcessResult result = Chat("In the beginning\nand then\n/save " + dir.File("talk.json") +
                                    "\n/reset\nIn the beginning\n/quit\nnot read\n");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto cached = CachedOf(result.err);
  ASSERT_EQ(cached.size(), 3U) << result.err;
  EXPECT_EQ(cached[0].first, 0);
  // The second prompt holds the first, its reply and more: all rows but the reply's last token's are there.
  EXPECT_GE(cached[1].first, cached[0].second + 8) << result.err;
  EXPECT_LT(cached[1].first, cached[1].second);
  EXPECT_EQ(cached[2].second, cached[0].second) << "after a reset the prompt is the first one again";

  const Json talk = Json::parse(ReadFile(dir.File("talk.json")));
  ASSERT_EQ(talk.size(), 4U);
  EXPECT_EQ(talk[0], Json({{"role", "user"}, {"content", "In the beginning"}}));
  EXPECT_EQ(talk[1]["role"], "assistant");
  EXPECT_EQ(talk[2]["content"], "and then");
  EXPECT_FALSE(std::filesystem::exists(dir.File("talk.json.part")));
  const std::string reply = talk[1]["content"];
  EXPECT_EQ(result.out.substr(0, reply.size() + 1), reply + "\n");
}

// Of texts, that is: what was saved is encoded anew, so that the template must be one whose turns always are.
TEST(Chat, ASavedConversationGoesOnAsItWas) {
  const TempDir dir;
  const std::string file = dir.File("talk.json");
  const ProcessResult first = Chat("one\ntwo\n/save " + file + "\nthree\n",
                                   {"--system", "Be brief.", "--quiet", "--mode", "absorb", "--template", "plain"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_TRUE(first.err.starts_with("5 messages written\n")) << first.err;
  const ProcessResult second =
      Chat("/load " + file + "\nthree\n", {"--quiet", "--mode", "absorb", "--template", "plain"});
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_TRUE(second.err.starts_with("5 messages read\n")) << second.err;
  EXPECT_TRUE(first.out.ends_with(second.out)) << first.out << "\nand\n" << second.out;
  EXPECT_NE(second.out, "\n");
}

// The reply's own ids, whatever its text would be encoded to, and their rows.
TEST(Chat, ASavedConversationComesWithWhatWasComputed) {
  const TempDir dir;
  const std::string file = dir.File("talk.json");
  const ProcessResult first =
      Chat("In the beginning\n/save " + file + "\nand then\n", {"--mode", "absorb", "--temperature", "0.9"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_NE(first.err.find("computed rows written to"), std::string::npos) << first.err;
  const ProcessResult second = Chat("/load " + file + "\nand then\n", {"--mode", "absorb", "--temperature", "0.9"});
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_NE(second.err.find("computed rows read"), std::string::npos) << second.err;
  EXPECT_TRUE(first.out.ends_with(second.out)) << first.out << "\nand\n" << second.out;
  const auto cached = CachedOf(first.err);
  ASSERT_EQ(cached.size(), 2U) << first.err;
  EXPECT_EQ(CachedOf(second.err), (decltype(cached){cached[1]})) << "as many rows are found as without a break";

  // Under another model, or with other messages, the conversation goes on without them.
  std::ofstream(file) << R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])";
  const ProcessResult other = Chat("/load " + file + "\nand then\n", {"--mode", "absorb"});
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_NE(other.err.find("is of other messages"), std::string::npos) << other.err;
  const ProcessResult mode = Chat("/load " + file + "\nand then\n", {"--mode", "mha"});
  EXPECT_EQ(mode.exit_code, 0) << mode.err;
  EXPECT_NE(mode.err.find("without computed rows: "), std::string::npos) << mode.err;
}

TEST(Chat, HistoryShowsTheMessagesSoFar) {
  const ProcessResult result =
      Chat("/history\nIn the beginning\n/history\n/reset\n/history\n", {"--quiet", "--system", "Be brief."});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string system = "system: Be brief.\n";
  EXPECT_EQ(result.err, system + system + "user: In the beginning\nassistant: " + result.out + system);
}

TEST(Chat, SlashesBackslashesAndEmptyLines) {
  const TempDir dir;
  const ProcessResult result =
      Chat("\n  \n//a slash\\\nand a line\n/help\n/save " + dir.File("talk.json") + "\n", {"--template", "plain"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("/reset"), std::string::npos);
  const Json talk = Json::parse(ReadFile(dir.File("talk.json")));
  ASSERT_EQ(talk.size(), 2U) << "empty lines are no messages";
  EXPECT_EQ(talk[0]["content"], "/a slash\nand a line");
}

TEST(Chat, AScriptEndsWithItsFirstError) {
  const TempDir dir;
  const std::string file = dir.Write("bad.json", R"([{"role":"user","content":"x","tool_calls":[]}])");
  const std::string long_message(4000, 'x');
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"/nope\nhello\n", {"/nope", "/help"}},
      {"/load\n", {"/load", "file's name"}},
      {"/load " + dir.File("none.json") + "\n", {"none.json"}},
      {"/load " + file + "\n", {"bad.json", "message 0"}},
      {"/save " + dir.path() + "/no/such\n", {"no/such", "can't be written"}},
      {"\xff\n", {"UTF-8"}},
      {long_message + "\n", {"context of 400"}},
  };
  for (const auto& [script, words] : cases) ExpectOneLine(Chat(script, {"--quiet"}), words);
}

TEST(Chat, TemplatesAreTheModelsOrAFileOrComeWithTheProgram) {
  const TempDir dir;
  const std::string good = dir.Write("good.jinja", "{{ bos_token }}{{ word }}{{ messages[-1].content }}");
  const std::string bad = dir.Write("bad.jinja", "\n{{ x | nope }}");
  EXPECT_EQ(Chat("x\n", {"--template", good, "--variables", R"({"word":"a "})"}).exit_code, 0);
  ExpectOneLine(Chat("x\n", {"--template", bad}), {"bad.jinja", "line 2", "'nope'"});
  ExpectOneLine(Chat("x\n", {"--template", dir.File("none")}), {"none"});
  ExpectOneLine(Chat("x\n", {"--quiet", "--variables", "[]"}), {"variables"});
  DemoCopy model;
  model.Replace("tokenizer_config.json", R"({"bos_token":"<｜begin▁of▁sentence｜>","add_bos_token":true})");
  ExpectOneLine(Chat("x\n", {}, model.path()), {"no chat template", "--template plain"});
}

TEST(Chat, AnInterruptEndsTheReplyAlone) {
  ProcessOptions options;
  options.input = "Tell me all\nand more\n";
  int interrupts = 0;
  options.on_first_output = [&](int pid) {
    ++interrupts;
    kill(pid, SIGINT);
  };
  const ProcessResult result =
      Mla({"chat", DemoDir(), "--ctx", "2000", "--ignore-eos", "--threads", "1", "--max-tokens", "300"}, options);
  EXPECT_EQ(interrupts, 1);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto cached = CachedOf(result.err);
  ASSERT_EQ(cached.size(), 2U) << result.err;
  EXPECT_LT(cached[1].second, 300) << "the first reply was cut";
  EXPECT_GE(Lines(result.out), 2);
}

}  // namespace
}  // namespace mla::testing
