// Templates that would take a machine, and conversations that are none: an error, soon.
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chat/golden.h"
#include "mla/chat.h"

namespace mla {
namespace {

using testing::Golden;
using ::testing::HasSubstr;

class Bounds : public ::testing::Test {
 protected:
  Golden golden_;

  std::string FaultOf(const std::string& source, const std::string& messages = R"([{"role":"user","content":"Hi"}])") {
    const auto loaded = golden_.Load(source);
    if (!loaded.ok()) return loaded.error().message;
    ChatInput input;
    input.messages = messages;
    const auto text = loaded->Render(input);
    return text.ok() ? "no fault, " + std::to_string(text->text.size()) + " bytes" : text.error().message;
  }
};

TEST_F(Bounds, EndlessWorkEnds) {
  const std::string loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}";
  const std::string ends = "{% endfor %}{% endfor %}{% endfor %}";
  const std::string more = "takes more";  // steps or memory, whichever ends first
  const std::vector<std::pair<std::string, std::string>> cases = {
      {loops + ends, more},
      {loops + "{{ 'x' * 99999 }}" + ends, more},
      {"{% set ns = namespace(s='a') %}{% for i in range(99999) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", more},
      {"{% set ns = namespace(s=[1]) %}{% for i in range(99999) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", more},
      {"{% set ns = namespace(s='x' * 9999999) %}{% for i in range(99999) %}{% if 'y' in ns.s %}{% endif %}{% endfor "
       "%}",
       more},
      {"{{ 'a' * 999999999999 }}", more},
      {"{{ [1] * 9223372036854775807 }}", more},
      {"{% for i in range(99999) %}{% for j in range(999) %}{% set s = namespace(a=1) %}{% endfor %}{% endfor %}",
       more},
      {"{% set ns = namespace(s=[]) %}{% for i in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}", "too deep"},
      {"{% set ns = namespace(s={}) %}{% for i in range(99999) %}{% set ns.s = {1: ns.s} %}{% endfor %}", "too deep"},
      {"{% macro m(a) %}{{ m(a) }}{% endmacro %}{{ m(1) }}", "too deep"},
      {"{% macro m(a) %}{% set b %}{{ m(a) ~ m(a) }}{% endset %}{% endmacro %}{{ m('x') }}", "too deep"},
      {"{% set s = ('a,' * 4000000).split(',') %}{{ s | length }}", more},
      {"{% set s = 'ab' * 5000000 %}{% for i in range(99999) %}{{ s[::-1] | length }}{% endfor %}", more},
      {"{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "has no text"},
      {"{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns.me }}", "has no text"},
      {"{{ range(100001) | list }}", "100000"},
      {"{{ '%09999999999d' % 1 }}", "not supported"},
      {"{{ x % 1 }}{{ 9223372036854775807 + 1 }}", "is undefined"},
      {"{{ 9223372036854775807 + 1 }}", "64 bits"},
      {"{{ 10 ** 99 }}", "64 bits"},
      {"{{ 99999999999999999999 }}", "63 bits"},
      {"{{ -9223372036854775807 - 1 }}{{ (-9223372036854775807 - 1) // -1 }}", "64 bits"},
      {"{{ 'a' | indent(99999999) }}", "1000"},
      {"{{ [1] | tojson(indent=99999999) }}", "1000"},
  };
  for (const auto& [source, fault] : cases) EXPECT_THAT(FaultOf(source), HasSubstr(fault)) << source;
}

TEST_F(Bounds, DeepAndLongSourcesAreRefused) {
  const auto repeated = [](const std::string& part, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += part;
    return text;
  };
  EXPECT_THAT(FaultOf("{{ " + repeated("(", 100000) + "1" + repeated(")", 100000) + " }}"), HasSubstr("too deep"));
  EXPECT_THAT(FaultOf("{{ " + repeated("[", 100000) + repeated("]", 100000) + " }}"), HasSubstr("too deep"));
  EXPECT_THAT(FaultOf("{{ " + repeated("(", 100000) + "1"), HasSubstr("without its }}"));
  EXPECT_THAT(FaultOf("{{ " + repeated("not ", 100000) + "1 }}"), HasSubstr("too deep"));
  EXPECT_THAT(FaultOf("{{ " + repeated("-", 100000) + "1 }}"), HasSubstr("too deep"));
  EXPECT_THAT(FaultOf("{{ " + repeated("1 if ", 100000) + "1 }}"), HasSubstr("line 1"));
  EXPECT_THAT(FaultOf("{{ " + repeated("1 if 1 else ", 10000) + "1 }}"), HasSubstr("too deep"));
  EXPECT_THAT(FaultOf(repeated("{% if 1 %}", 100000)), HasSubstr("too deep"));
  EXPECT_THAT(FaultOf("{{ " + repeated("1 + ", 100000) + "1 }}"), HasSubstr("too many operators"));
  EXPECT_THAT(FaultOf("{{ x" + repeated(".a", 100000) + " }}"), HasSubstr("too many operators"));
  EXPECT_THAT(FaultOf("{{ x" + repeated("|trim", 100000) + " }}"), HasSubstr("too many operators"));
  EXPECT_THAT(FaultOf(repeated("a", (1 << 20) + 1)), HasSubstr("a template may have"));
  EXPECT_THAT(FaultOf("\xff"), HasSubstr("UTF-8"));
  // What is long, and not deep, is fine.
  EXPECT_THAT(FaultOf("{{ " + repeated("'a' ~ ", 10000) + "'a' }}"), HasSubstr("no fault, 10001 bytes"));
  EXPECT_THAT(FaultOf(repeated("{% if 1 %}a{% endif %}", 10000)), HasSubstr("no fault, 10000 bytes"));
}

TEST_F(Bounds, ALongConversationFits) {
  std::string messages = "[";
  for (int i = 0; i < 2000; ++i) {
    messages += std::string(i == 0 ? "" : ",") + R"({"role":")" + (i % 2 == 0 ? "user" : "assistant") +
                R"(","content":")" + std::string(2000, 'x') + R"("})";
  }
  const auto loaded = ChatTemplate::Load(testing::DemoDir());
  ASSERT_TRUE(loaded.ok());
  ChatInput input;
  input.messages = messages + "]";
  const auto text = loaded->Render(input);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_GT(text->text.size(), 4000000U);
}

TEST_F(Bounds, WhatIsNoConversationIsToldByName) {
  const auto loaded = golden_.Load("{{ messages }}");
  ASSERT_TRUE(loaded.ok());
  const auto fault_of = [&](ChatInput input) {
    const auto text = loaded->Render(input);
    return text.ok() ? "no fault" : text.error().message;
  };
  const auto messages = [](const std::string& json) {
    ChatInput input;
    input.messages = json;
    return input;
  };
  const std::string good = R"([{"role":"user","content":"x"}])";
  EXPECT_THAT(fault_of(messages("")), HasSubstr("messages: "));
  EXPECT_THAT(fault_of(messages("{}")), HasSubstr("messages: expected an array"));
  EXPECT_THAT(fault_of(messages("[1]")), HasSubstr("messages[0]: expected an object"));
  EXPECT_THAT(fault_of(messages(R"([{"role":"user","content":"x"},{"content":"x"}])")), HasSubstr("messages[1]"));
  EXPECT_THAT(fault_of(messages(R"([{"role":3,"content":"x"}])")), HasSubstr("role 3"));
  EXPECT_THAT(fault_of(messages(R"([{"role":"user","content":7}])")), HasSubstr("content: expected a text"));
  EXPECT_THAT(fault_of(messages(R"([{"role":"user","content":[{"type":"image_url","image_url":"u"}]}])")),
              HasSubstr("content[0]"));
  ChatInput input = messages(good);
  input.tools = "{}";
  EXPECT_THAT(fault_of(input), HasSubstr("tools: expected an array"));
  input.tools = "[1]";
  EXPECT_THAT(fault_of(input), HasSubstr("tools[0]"));
  input.tools = "";
  input.variables = "[]";
  EXPECT_THAT(fault_of(input), HasSubstr("variables: expected an object"));
  input.variables = R"({"messages":1})";
  EXPECT_THAT(fault_of(input), HasSubstr("given apart"));
  input.variables = "";
  input.template_name = "other";
  EXPECT_THAT(fault_of(input), HasSubstr(R"("other")"));
  EXPECT_EQ(fault_of(messages(good)), "no fault");
}

}  // namespace
}  // namespace mla
