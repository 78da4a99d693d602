// Any bytes as the body of a completion and of a chat completion, and as a model's reply. A request that is taken has
// values in their ranges and JSON that reads back; a refusal is one line; a reply's parts don't depend on its pieces.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "io/json.h"
#include "io/quote.h"
#include "server/reply.h"
#include "server/request.h"
#include "server/stop_strings.h"

namespace {

using mla::server::ReplyParser;

constexpr mla::server::RequestLimits kLimits{.vocab = 1000, .max_samples = 4, .max_prompts = 8};

void CheckError(const mla::server::ApiError& error) {
  MLA_CHECK(!error.message.empty());
  MLA_CHECK(mla::io::ParseJson(mla::server::ErrorJson(error), "error").ok());
}

void CheckGeneration(const mla::server::Generation& g) {
  MLA_CHECK(g.n >= 1 && g.n <= kLimits.max_samples);
  MLA_CHECK(!g.temperature || (*g.temperature >= 0 && *g.temperature <= 100));
  MLA_CHECK(!g.top_p || (*g.top_p > 0 && *g.top_p <= 1));
  MLA_CHECK(!g.logprobs || (*g.logprobs >= 0 && *g.logprobs <= 20));
  for (const std::string& stop : g.stop) MLA_CHECK(!stop.empty());
  for (const mla::LogitBias& bias : g.logit_bias) MLA_CHECK(bias.id >= 0 && bias.id < kLimits.vocab);
}

void CheckJson(const std::string& text) { MLA_CHECK(text.empty() || mla::io::ParseJson(text, "written").ok()); }

std::string Parts(std::string_view text, std::size_t piece, bool in_reasoning) {
  ReplyParser parser({.in_reasoning = in_reasoning, .tools = true});
  std::string kinds[4];
  const auto take = [&](const std::vector<mla::server::ReplyPart>& parts) {
    for (const auto& part : parts) {
      kinds[static_cast<int>(part.kind)] += part.text + (part.call_id.empty() ? "" : "#" + part.call_id);
    }
  };
  for (std::size_t at = 0; at < text.size(); at += piece) take(parser.Push(text.substr(at, piece)));
  take(parser.Finish());
  return kinds[0] + "\1" + kinds[1] + "\1" + kinds[2] + "\1" + kinds[3];
}

std::string Stopped(std::string_view text, std::size_t piece) {
  mla::server::StopStrings stop({"</s>", "\n\n", "ab"});
  std::string shown;
  for (std::size_t at = 0; at < text.size(); at += piece) shown += stop.Push(text.substr(at, piece));
  return shown + stop.Finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  mla::server::CompletionRequest completion;
  if (const auto error = ParseCompletion(body, kLimits, &completion)) {
    CheckError(*error);
  } else {
    CheckGeneration(completion.generation);
    MLA_CHECK(!completion.prompts.empty());
    MLA_CHECK(completion.prompts.size() <= static_cast<std::size_t>(kLimits.max_prompts));
  }
  mla::server::ChatRequest chat;
  if (const auto error = ParseChat(body, kLimits, &chat)) {
    CheckError(*error);
  } else {
    CheckGeneration(chat.generation);
    CheckJson(chat.messages);
    CheckJson(chat.tools);
    CheckJson(chat.variables);
  }
  for (const std::size_t piece : {std::size_t{1}, std::size_t{3}}) {
    MLA_CHECK(Stopped(body, piece) == Stopped(body, size + 1));
    MLA_CHECK(Parts(body, piece, false) == Parts(body, size + 1, false));
    MLA_CHECK(Parts(body, piece, true) == Parts(body, size + 1, true));
  }
  return 0;
}
