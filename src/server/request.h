// Bodies of OpenAI's completions and chat completions, as checked values.
#ifndef MLA_SERVER_REQUEST_H_
#define MLA_SERVER_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mla/engine.h"
#include "server/api_error.h"

namespace mla::server {

// What bounds a request beside the form of its fields.
struct RequestLimits {
  std::int64_t vocab = 0;
  std::int64_t max_samples = 1;  // n
  std::int64_t max_prompts = 1;  // of one body
};

// What both kinds have. A field that a body leaves out is empty where the model's own default then holds.
struct Generation {
  std::string model;
  std::int64_t n = 1;
  std::optional<std::int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<std::int64_t> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::optional<std::uint64_t> seed;
  std::vector<LogitBias> logit_bias;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool stream = false;
  bool include_usage = false;
  // Log-probabilities of output (and, echoed, prompt) tokens, with so many alternatives.
  std::optional<std::int64_t> logprobs;
};

// A text, or ids that are taken as they are.
struct Prompt {
  std::string text;
  std::optional<std::vector<std::int32_t>> ids;
};

struct CompletionRequest {
  Generation generation;
  std::vector<Prompt> prompts;
  bool echo = false;
};

struct ChatRequest {
  Generation generation;
  std::string messages;   // JSON, as ChatInput has it
  std::string tools;      // JSON, "" for none
  std::string variables;  // JSON, "" for none
  bool parse_tools = false;
};

// Fill *out from a body, or say what is wrong with it. Fields that OpenAI's clients send and that change nothing here
// (user, metadata, store, ...), and unknown ones, are ignored; a known field that asks for what is not supported is
// refused by name. Pure; any thread.
std::optional<ApiError> ParseCompletion(std::string_view body, const RequestLimits& limits, CompletionRequest* out);
std::optional<ApiError> ParseChat(std::string_view body, const RequestLimits& limits, ChatRequest* out);

}  // namespace mla::server

#endif  // MLA_SERVER_REQUEST_H_
