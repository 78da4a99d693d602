// Where templates are found, which one is taken, what is refused when they are loaded, and what they are given.
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chat/golden.h"
#include "mla/chat.h"
#include "testing/temp_dir.h"

namespace mla {
namespace {

using ::testing::ElementsAre;
using testing::Golden;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TempDir;

constexpr const char* kHi = R"([{"role":"user","content":"Hi"}])";

std::string TextOf(const Result<ChatTemplate>& loaded, const ChatInput& input) {
  if (!loaded.ok()) return "not loaded: " + loaded.error().message;
  const auto text = loaded->Render(input);
  return text.ok() ? text->text : "refused: " + text.error().message;
}

ChatInput Input(const std::string& messages = kHi, const std::string& tools = "", const std::string& name = "") {
  ChatInput input;
  input.messages = messages;
  input.tools = tools;
  input.template_name = name;
  return input;
}

TEST(ChatLoad, AFolderWithoutATemplateLoads) {
  const TempDir dir;
  const auto loaded = ChatTemplate::Load(dir.path());
  ASSERT_TRUE(loaded.ok());
  EXPECT_THAT(loaded->names(), IsEmpty());
  EXPECT_THAT(TextOf(loaded, Input()), HasSubstr("no chat template"));
}

TEST(ChatLoad, AListInTheConfigHasNames) {
  const TempDir dir;
  dir.Write("tokenizer_config.json", R"({"bos_token":null,"eos_token":"</s>","chat_template":[
      {"name":"tool_use","template":"tools{{ eos_token }}"},{"name":"default","template":"plain{{ bos_token }}"},
      {"name":"broken","template":"a\n{% nope %}"}]})");
  const auto loaded = ChatTemplate::Load(dir.path());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_THAT(loaded->names(), ElementsAre("default", "broken", "tool_use"));
  EXPECT_EQ(TextOf(loaded, Input()), "plain");
  EXPECT_EQ(TextOf(loaded, Input(kHi, "[{}]")), "tools</s>");
  EXPECT_EQ(TextOf(loaded, Input(kHi, "[{}]", "default")), "plain");
  EXPECT_THAT(TextOf(loaded, Input(kHi, "", "broken")), HasSubstr("line 2: the tag 'nope' is not supported"));
  EXPECT_THAT(TextOf(loaded, Input(kHi, "", "x")), HasSubstr(R"(there is "default", "broken", "tool_use")"));
}

TEST(ChatLoad, FilesComeBeforeTheConfig) {
  const TempDir dir;
  dir.Write("tokenizer_config.json", R"({"chat_template":"config"})");
  dir.Write("chat_template.jinja", "file\n");
  std::filesystem::create_directory(dir.File("additional_chat_templates"));
  dir.Write("additional_chat_templates/rag.jinja", "rag");
  dir.Write("additional_chat_templates/readme.txt", "{% no template");
  const auto loaded = ChatTemplate::Load(dir.path());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_THAT(loaded->names(), ElementsAre("default", "rag"));
  EXPECT_EQ(TextOf(loaded, Input()), "file");
  EXPECT_EQ(TextOf(loaded, Input(kHi, "", "rag")), "rag");
  EXPECT_EQ(TextOf(ChatTemplate::Load(dir.path(), "mine", "x"), Input()), "mine");
}

TEST(ChatLoad, BrokenFilesAreErrors) {
  const TempDir dir;
  const auto fault_of = [&](const std::string& config) {
    dir.Write("tokenizer_config.json", config);
    const auto loaded = ChatTemplate::Load(dir.path());
    return loaded.ok() ? "no fault" : loaded.error().message;
  };
  EXPECT_THAT(fault_of("{"), HasSubstr("tokenizer_config.json"));
  EXPECT_THAT(fault_of(R"({"chat_template":3})"), HasSubstr("chat_template: expected a text or a list, found 3"));
  EXPECT_THAT(fault_of(R"({"chat_template":[{"name":"a"}]})"), HasSubstr("chat_template"));
  EXPECT_THAT(fault_of(R"({"chat_template":[{"name":"a","template":""},{"name":"a","template":""}]})"),
              HasSubstr("two chat templates"));
  EXPECT_THAT(fault_of(R"({"bos_token":3})"), HasSubstr("bos_token: expected a token"));
  EXPECT_THAT(fault_of(R"({"chat_template":"\n\n{{ x | nope }}"})"),
              HasSubstr("tokenizer_config.json: chat_template: line 3: the filter 'nope' is not supported"));
}

TEST(ChatLoad, WhatIsLackingIsRefusedByNameAndLine) {
  const Golden golden;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\n{{ x | xmlattr }}", "line 2: the filter 'xmlattr'"},
      {"{% if x %}\n{{ x is escaped }}{% endif %}", "line 2: the test 'escaped'"},
      {"{% if x %}{{ cycler(1) }}{% endif %}", "line 1: the function 'cycler'"},
      {"{{ x.zfill(3) }}", "the method 'zfill'"},
      {"{{ x.append(3) }}", "'append' would change a value"},
      {"{% include 'x' %}", "the tag 'include'"},
      {"{% for x in y recursive %}{% endfor %}", "recursive loops"},
      {"{% for x in y %}{{ loop.cycle('a') }}{% endfor %}", "loop.cycle"},
      {"{% for x in y %}{{ loop }}{% endfor %}", "'loop' by itself"},
      {"{% for x in y %}{% macro m() %}{% endmacro %}{% endfor %}", "a macro inside"},
      {"{% macro m() %}{{ kwargs }}{% endmacro %}", "'kwargs'"},
      {"{% macro m(caller) %}{% endmacro %}", "a parameter named 'caller'"},
      {"{% macro m() %}{% set caller = 1 %}{% endmacro %}", "'caller' can't be assigned"},
      {"{% macro m() %}{% generation %}{{ caller() }}{% endgeneration %}{% endmacro %}", "'caller' in a generation"},
      {"\n{% call x %}{% endcall %}", "line 2: expected a macro's call"},
      {"{{ (x | safe) + 'a' }}", "'safe' is only supported"},
      {"\n{% macro f(a=x|safe) %}{{ a }}{% endmacro %}{{ f() }}", "line 2: the filter 'safe' is only supported"},
      {"{% filter replace('a', x|safe) %}a{% endfilter %}", "'safe' is only supported"},
      {"{% set y | replace('a', x|safe) %}a{% endset %}", "'safe' is only supported"},
      {"{% filter safe %}a{% endfilter %}", "'safe' is only supported"},
      {"{% if x | safe %}a{% endif %}", "'safe' is only supported"},
      {"{% with y = x | safe %}a{% endwith %}", "'safe' is only supported"},
      {"{{ x | safe | safe }}", "'safe' is only supported"},
      {"{{ x | map('nope') }}", "the filter 'nope'"},
      {"{{ x | selectattr('a', 'nope') }}", "the test 'nope'"},
      {"{{ x | tojson(default=1) }}", "the argument 'default'"},
      {"{{ f(*x) }}", "* or **"},
      {"{{ '%s' % x }}", "placeholders"},
      {"{{ x | round }}", "the filter 'round'"},
  };
  for (const auto& [source, words] : cases) {
    const auto loaded = golden.Load(source);
    EXPECT_FALSE(loaded.ok()) << source;
    if (loaded.ok()) continue;
    EXPECT_THAT(loaded.error().message, HasSubstr(words)) << source;
  }
}

TEST(ChatLoad, ToolArgumentsComeInTheFormThatTheTemplateWrites) {
  const Golden golden;
  const std::string call = "{% for m in messages %}{% for c in m.tool_calls or [] %}";
  const std::string end = "{% endfor %}{% endfor %}";
  const auto messages = [](const std::string& arguments) {
    return R"([{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"f","arguments":)" + arguments +
           "}}]}]";
  };
  const std::string object = R"({"a": 1,"b":[]})";
  const std::string text = R"("{\"a\": 1,\"b\":[]}")";
  const auto adds = golden.Load(call + "{{ '' + c.function.arguments }}" + end);
  EXPECT_EQ(TextOf(adds, Input(messages(object))), R"({"a": 1, "b": []})");
  EXPECT_EQ(TextOf(adds, Input(messages(text))), object) << "a text stays as it is";
  const auto dumps = golden.Load(call + "{{ c.function.arguments | tojson }}" + end);
  EXPECT_EQ(TextOf(dumps, Input(messages(object))), R"({"a": 1, "b": []})");
  EXPECT_EQ(TextOf(dumps, Input(messages(text))), R"({"a": 1, "b": []})");
  EXPECT_EQ(TextOf(dumps, Input(messages(R"("no JSON")"))), R"("no JSON")");
  const auto items =
      golden.Load(call + "{% for k, v in c.function.arguments.items() %}{{ k }}{{ v }};{% endfor %}" + end);
  EXPECT_EQ(TextOf(items, Input(messages(text))), "a1;b[];");
  const auto none = golden.Load("{{ messages[0].tool_calls[0].function.arguments is string }}");
  EXPECT_EQ(TextOf(none, Input(messages(text))), "True");
}

TEST(ChatLoad, ContentIsBroughtToOneForm) {
  const Golden golden;
  const auto loaded = golden.Load("{% for m in messages %}{{ m.content is none }}{{ m.content }};{% endfor %}");
  const std::string messages =
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"role":"user"},)"
      R"({"role":"user","content":null},{"role":"user","content":""}])";
  EXPECT_EQ(TextOf(loaded, Input(messages)), "Falsea\nb;TrueNone;TrueNone;False;");
  ChatInput given = Input(R"([{"role":"user"}])");
  given.as_given = true;
  EXPECT_EQ(TextOf(loaded, given), "False;");
}

TEST(ChatLoad, PlainIsBuiltIn) {
  const Golden golden;
  EXPECT_EQ(ChatTemplate::BuiltIn("nope"), "");
  const auto loaded = golden.Load(ChatTemplate::BuiltIn("plain"));
  const ChatMessage messages[] = {{"system", "S"}, {"user", "U \"q\"\n"}, {"assistant", std::nullopt}, {"user", "V"}};
  EXPECT_EQ(TextOf(loaded, Input(ChatMessagesJson(messages))),
            "<｜begin▁of▁sentence｜>S\n\nUser: U \"q\"\n\n\nAssistant: \n\nUser: V\n\nAssistant:");
}

TEST(ChatLoad, ThreadsShareATemplate) {
  const Golden golden;
  const auto loaded =
      golden.Load("{% macro m(a) %}{{ a ~ '<b>' }}{% endmacro %}{% for i in range(200) %}{{ m('x') }}{% endfor %}");
  ASSERT_TRUE(loaded.ok());
  const std::string expected = TextOf(loaded, Input());
  std::vector<std::thread> threads;
  std::vector<std::string> texts(4);
  for (std::string& text : texts) threads.emplace_back([&] { text = TextOf(loaded, Input()); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, expected);
}

}  // namespace
}  // namespace mla
