// Stop texts and parts of replies, however the text is cut into pieces.
#include "server/reply.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/stop_strings.h"

namespace mla::server {
namespace {

// Cuts that put borders everywhere: whole, byte by byte, and random.
std::vector<std::vector<std::string>> Cuts(const std::string& text) {
  std::vector<std::vector<std::string>> cuts = {{text}, {}};
  for (const char c : text) cuts[1].emplace_back(1, c);
  std::mt19937_64 rng(7);
  for (int i = 0; i < 50; ++i) {
    cuts.emplace_back();
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = 1 + rng() % 9;
      cuts.back().push_back(text.substr(at, n));
      at += n;
    }
  }
  return cuts;
}

std::string Stopped(const std::string& text, const std::vector<std::string>& stops) {
  const std::size_t npos = std::string::npos;
  std::string first;
  for (const auto& cut : Cuts(text)) {
    StopStrings matcher(stops);
    std::string shown;
    for (const std::string& piece : cut) {
      shown += matcher.Push(piece);
      for (const std::string& stop : stops) EXPECT_EQ(shown.find(stop), npos);
    }
    shown += matcher.Finish();
    if (matcher.stopped()) shown += "|";
    if (first.empty()) first = shown;
    EXPECT_EQ(shown, first);
  }
  return first;
}

TEST(StopStrings, AcrossPieces) {
  EXPECT_EQ(Stopped("one two three", {"two"}), "one |");
  EXPECT_EQ(Stopped("one two three", {"tx", "four"}), "one two three");
  EXPECT_EQ(Stopped("aaab", {"aab"}), "a|");
  EXPECT_EQ(Stopped("abcabd", {"abd"}), "abc|");
  EXPECT_EQ(Stopped("ends with tw", {"two"}), "ends with tw");
  EXPECT_EQ(Stopped("Grüße", {"ü"}), "Gr|");
  EXPECT_EQ(Stopped("x", {"x"}), "|");
}

// reasoning / content / calls, one text.
std::string Parsed(const std::string& text, ReplyParser::Options options) {
  std::string first;
  for (const auto& cut : Cuts(text)) {
    ReplyParser parser(options);
    std::string reasoning;
    std::string content;
    std::vector<std::string> calls;
    const auto take = [&](const std::vector<ReplyPart>& parts) {
      for (const ReplyPart& part : parts) {
        switch (part.kind) {
          case ReplyPart::Kind::kReasoning: reasoning += part.text; break;
          case ReplyPart::Kind::kContent: content += part.text; break;
          case ReplyPart::Kind::kCallBegin:
            EXPECT_EQ(part.call, static_cast<std::int64_t>(calls.size()));
            calls.push_back(part.text + "[" + part.call_id + "](");
            break;
          case ReplyPart::Kind::kCallArguments:
            EXPECT_EQ(part.call + 1, static_cast<std::int64_t>(calls.size()));
            if (!calls.empty()) calls.back() += part.text;
            break;
        }
      }
    };
    for (const std::string& piece : cut) take(parser.Push(piece));
    take(parser.Finish());
    std::string all = reasoning + " / " + content;
    for (const std::string& call : calls) all.append(" / ").append(call).append(")");
    if (first.empty()) first = all;
    EXPECT_EQ(all, first);
  }
  return first;
}

TEST(Reply, Reasoning) {
  EXPECT_EQ(Parsed("plain <think> text", {}), " / plain <think> text");
  EXPECT_EQ(Parsed("<think>\nwhy\n</think>\n\nanswer", {}), "why\n / answer");
  EXPECT_EQ(Parsed("why</think>answer", {.in_reasoning = true}), "why / answer");
  EXPECT_EQ(Parsed("never closed", {.in_reasoning = true}), "never closed / ");
  EXPECT_EQ(Parsed("<thin", {}), " / <thin");
  EXPECT_EQ(Parsed("<think>a</thin", {}), "a</thin / ");
}

TEST(Reply, CallsOfDeepSeek) {
  const std::string v3 =
      "Let me look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get\n```json\n{\"a\": \"`x`\"}\n```"
      "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>put\n```json\n{}\n```<｜tool▁call▁end｜>"
      "<｜tool▁calls▁end｜>";
  EXPECT_EQ(Parsed(v3, {.tools = true}), " / Let me look. / get[]({\"a\": \"`x`\"}) / put[]({})");
  const std::string v31 =
      "</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
      "<｜tool▁call▁begin｜>put<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
  EXPECT_EQ(Parsed("why" + v31, {.in_reasoning = true, .tools = true}), "why /  / get[]({\"a\": 1}) / put[]({})");
  // Cut off in a call's arguments; and where no tools were given, it is text.
  EXPECT_EQ(Parsed("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get<｜tool▁sep｜>{\"a\"", {.tools = true}),
            " /  / get[]({\"a\")");
  EXPECT_EQ(Parsed("<｜tool▁calls▁begin｜>x", {}), " / <｜tool▁calls▁begin｜>x");
}

TEST(Reply, CallsOfKimi) {
  const std::string kimi =
      "I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>{\"a\":1}"
      "<|tool_call_end|><|tool_call_begin|>functions.put:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
      "<|tool_calls_section_end|>";
  EXPECT_EQ(Parsed(kimi, {.tools = true}), " / I look. / get[functions.get:0]({\"a\":1}) / put[functions.put:1]({})");
}

}  // namespace
}  // namespace mla::server
