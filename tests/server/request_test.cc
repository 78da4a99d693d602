// Bodies of requests: what is read, and what is refused by which name.
#include "server/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/json_writer.h"

namespace mla::server {
namespace {

using ::testing::ElementsAre;

constexpr RequestLimits kLimits{.vocab = 100, .max_samples = 4, .max_prompts = 3};

CompletionRequest Completion(const std::string& body) {
  CompletionRequest request;
  const auto error = ParseCompletion(body, kLimits, &request);
  EXPECT_FALSE(error) << error->message;
  return request;
}

ChatRequest Chat(const std::string& body) {
  ChatRequest request;
  const auto error = ParseChat(body, kLimits, &request);
  EXPECT_FALSE(error) << error->message;
  return request;
}

// The field that a body is refused for; "-" where it is taken.
std::string Refused(const std::string& body) {
  CompletionRequest request;
  const auto error = ParseCompletion(body, kLimits, &request);
  EXPECT_TRUE(!error || !error->message.empty());
  return error ? error->param : "-";
}

std::string RefusedChat(const std::string& field) {
  ChatRequest request;
  const auto error = ParseChat(R"({"messages": [{"role": "user", "content": "x"}])" + field + "}", kLimits, &request);
  return error ? error->param : "-";
}

TEST(Request, EveryFormOfPrompt) {
  EXPECT_EQ(Completion(R"({"prompt": "a"})").prompts.at(0).text, "a");
  EXPECT_THAT(*Completion(R"({"prompt": [1, 2]})").prompts.at(0).ids, ElementsAre(1, 2));
  EXPECT_EQ(Completion(R"({"prompt": ["a", "b"]})").prompts.at(1).text, "b");
  const CompletionRequest lists = Completion(R"({"prompt": [[1], [2, 99]]})");
  EXPECT_THAT(*lists.prompts.at(1).ids, ElementsAre(2, 99));
  for (const char* bad : {"{}", R"({"prompt": null})", R"({"prompt": []})", R"({"prompt": [[]]})",
                          R"({"prompt": [100]})", R"({"prompt": [-1]})", R"({"prompt": [1.5]})",
                          R"({"prompt": ["a", 1]})", R"({"prompt": 7})", R"({"prompt": ["a", "b", "c", "d"]})"}) {
    EXPECT_EQ(Refused(bad), "prompt") << bad;
  }
}

TEST(Request, FieldsAreRead) {
  const CompletionRequest r = Completion(
      R"({"prompt": "a", "model": "m", "n": 2, "best_of": 2, "max_tokens": 0, "temperature": 0.5, "top_p": 0.9,
          "top_k": -1, "min_p": 0.1, "seed": -1, "presence_penalty": -2, "frequency_penalty": 1,
          "repetition_penalty": 1.1, "logit_bias": {"0": -100, "99": 1.5}, "stop": ["x", "yy"], "stream": true,
          "stream_options": {"include_usage": true}, "echo": true, "user": "u", "no_such_field": {}, "suffix": null})");
  const Generation& g = r.generation;
  EXPECT_EQ(g.model, "m");
  EXPECT_EQ(g.n, 2);
  EXPECT_EQ(g.max_tokens, 0);
  EXPECT_EQ(g.temperature, 0.5);
  EXPECT_EQ(g.top_k, 0);
  EXPECT_EQ(g.seed, UINT64_MAX);
  EXPECT_EQ(g.presence_penalty, -2);
  EXPECT_EQ(g.logit_bias.at(1).id, 99);
  EXPECT_EQ(g.logit_bias.at(0).bias, -100);
  EXPECT_THAT(g.stop, ElementsAre("x", "yy"));
  EXPECT_TRUE(g.stream && g.include_usage && r.echo);
  EXPECT_FALSE(g.logprobs);
  EXPECT_FALSE(Completion(R"({"prompt": "a", "temperature": null})").generation.temperature);
}

TEST(Request, RefusesByTheFieldsName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("n": 5)", "n"},
      {R"("n": 0)", "n"},
      {R"("best_of": 2)", "best_of"},
      {R"("max_tokens": -1)", "max_tokens"},
      {R"("max_tokens": "7")", "max_tokens"},
      {R"("temperature": 101)", "temperature"},
      {R"("temperature": 1e999)", ""},
      {R"("top_p": 0)", "top_p"},
      {R"("min_p": 1.5)", "min_p"},
      {R"("repetition_penalty": 0)", "repetition_penalty"},
      {R"("presence_penalty": 2.5)", "presence_penalty"},
      {R"("logit_bias": {"100": 1})", "logit_bias"},
      {R"("logit_bias": {"01": 1})", "logit_bias"},
      {R"("logit_bias": {"1": 101})", "logit_bias"},
      {R"("logit_bias": [1])", "logit_bias"},
      {R"("stop": [""])", "stop"},
      {R"("stop": 1)", "stop"},
      {R"("stream": 1)", "stream"},
      {R"("stream_options": {})", "stream_options"},
      {R"("logprobs": 21)", "logprobs"},
      {R"("logprobs": true)", "logprobs"},
      {R"("suffix": "x")", "suffix"},
      {R"("echo": true, "stream": true, "logprobs": 1)", "echo"},
  };
  for (const auto& [field, name] : cases)
    EXPECT_EQ(Refused(std::string(R"({"prompt": "a", )") + field + "}"), name) << field;
  for (const char* bad : {"", "{", "[]", "1", "{\"prompt\": \"\xff\"}", R"({"prompt": "a", "prompt": "b"})"}) {
    EXPECT_EQ(Refused(bad), "") << bad;
  }
}

TEST(Request, Chat) {
  const ChatRequest r = Chat(
      R"({"messages": [{"role": "user", "content": "é\n", "n": [1, 0.5, true, null]}], "max_tokens": 3,
          "max_completion_tokens": 5, "logprobs": true, "top_logprobs": 2, "response_format": {"type": "text"},
          "tools": [{"type": "function", "function": {"name": "f"}}], "chat_template_kwargs": {"thinking": true}})");
  EXPECT_EQ(r.messages, R"([{"role":"user","content":"é\u000a","n":[1,0.5,true,null]}])");
  EXPECT_EQ(r.generation.max_tokens, 5);
  EXPECT_EQ(r.generation.logprobs, 2);
  EXPECT_TRUE(r.parse_tools);
  EXPECT_EQ(r.tools, R"([{"type":"function","function":{"name":"f"}}])");
  EXPECT_EQ(r.variables, R"({"thinking":true})");
  EXPECT_EQ(RefusedChat(""), "-");
  EXPECT_EQ(RefusedChat(R"(, "logprobs": false)"), "-");
  EXPECT_EQ(RefusedChat(R"(, "top_logprobs": 1)"), "top_logprobs");
  EXPECT_EQ(RefusedChat(R"(, "response_format": {"type": "json_object"})"), "response_format");
  EXPECT_EQ(RefusedChat(R"(, "response_format": 1)"), "response_format");
  EXPECT_EQ(RefusedChat(R"(, "tool_choice": "required")"), "tool_choice");
  EXPECT_EQ(RefusedChat(R"(, "tool_choice": {"type": "function"})"), "tool_choice");
  EXPECT_EQ(RefusedChat(R"(, "tools": [{}])"), "tools");
  EXPECT_EQ(RefusedChat(R"(, "functions": [{}])"), "functions");
  EXPECT_EQ(RefusedChat(R"(, "chat_template_kwargs": 1)"), "chat_template_kwargs");
  ChatRequest empty;
  EXPECT_EQ(ParseChat(R"({"messages": []})", kLimits, &empty)->param, "messages");
  EXPECT_EQ(ParseChat(R"({"messages": [{"content": "x"}]})", kLimits, &empty)->param, "messages");
  const ChatRequest none =
      Chat(R"({"messages": [{"role": "user"}], "tools": [{"function": {"name": "f"}}], "tool_choice": "none"})");
  EXPECT_FALSE(none.parse_tools);
  EXPECT_EQ(none.tools, "");
}

TEST(Request, AnErrorsForm) {
  EXPECT_EQ(ErrorJson({.status = 429, .message = "a \"b\"\n", .code = "c"}),
            R"({"error":{"message":"a \"b\"\\x0a","type":"rate_limit_error","param":null,"code":"c"}})");
}

}  // namespace
}  // namespace mla::server
