#include "server/request.h"

#include <charconv>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "io/json.h"
#include "server/fields.h"
#include "server/json_writer.h"

namespace mla::server {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 31;
constexpr std::size_t kMostStops = 16;
constexpr std::size_t kLongestStop = 1024;
constexpr std::int64_t kMostTop = 20;

std::optional<ApiError> ParseBody(std::string_view body, io::JsonValue* out) {
  auto parsed = io::ParseJson(body, "body");
  if (!parsed.ok()) return ApiError{.message = parsed.error().message};
  *out = std::move(parsed).value();
  if (out->is_object()) return std::nullopt;
  return ApiError{.message = fmt::format("body: expected a JSON object, found {}", out->Describe())};
}

void ReadStop(Fields* fields, std::vector<std::string>* out) {
  const io::JsonValue* stop = fields->Find("stop");
  if (stop == nullptr) return;
  const auto add = [&](const io::JsonValue& text) {
    if (!text.is_string() || text.string().empty() || text.string().size() > kLongestStop) {
      return fields->Fail("stop", fmt::format("texts of 1 to {} bytes", kLongestStop), text);
    }
    out->emplace_back(text.string());
  };
  if (!stop->is_array()) return add(*stop);
  if (stop->items().size() > kMostStops)
    return fields->Fail("stop", fmt::format("at most {} texts", kMostStops), *stop);
  for (const io::JsonValue& text : stop->items()) add(text);
}

// {"17": -100}. Ids in their one decimal form, so that none can be named twice.
void ReadLogitBias(Fields* fields, std::int64_t vocab, std::vector<LogitBias>* out) {
  const io::JsonValue* biases = fields->Find("logit_bias");
  if (biases == nullptr) return;
  if (!biases->is_object()) return fields->Fail("logit_bias", "an object from token ids to numbers", *biases);
  for (const auto& [key, bias] : biases->members()) {
    std::int32_t id = -1;
    const auto [end, fault] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (fault != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocab || std::to_string(id) != key) {
      return fields->Fail(
          {.message = fmt::format("logit_bias: expected token ids from 0 to {}", vocab - 1), .param = "logit_bias"});
    }
    if (!bias.is_number() || bias.number() < -100 || bias.number() > 100) {
      return fields->Fail("logit_bias", "numbers from -100 to 100", bias);
    }
    out->push_back({id, static_cast<float>(bias.number())});
  }
}

void ReadSeed(Fields* fields, std::optional<std::uint64_t>* out) {
  std::optional<std::int64_t> seed;
  fields->Whole("seed", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(), &seed);
  if (seed) *out = static_cast<std::uint64_t>(*seed);
}

void ReadStreaming(Fields* fields, Generation* g) {
  fields->Bool("stream", &g->stream);
  const io::JsonValue* options = fields->Find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return fields->Fail("stream_options", "an object", *options);
  if (!g->stream) {
    return fields->Fail({.message = "stream_options: only where stream is true", .param = "stream_options"});
  }
  Fields inner(*options);
  inner.Bool("include_usage", &g->include_usage);
  if (inner.error()) fields->Fail(*inner.error());
}

void ReadGeneration(Fields* fields, const RequestLimits& limits, Generation* g) {
  fields->Text("model", &g->model);
  fields->Whole("n", 1, limits.max_samples, &g->n);
  fields->Whole("max_tokens", 0, kMostTokens, &g->max_tokens);
  fields->Number("temperature", 0, true, 100, &g->temperature);
  fields->Number("top_p", 0, false, 1, &g->top_p);
  // -1 says "all" to some clients.
  fields->Whole("top_k", -1, kMostTokens, &g->top_k);
  if (g->top_k == -1) g->top_k = 0;
  fields->Number("min_p", 0, true, 1, &g->min_p);
  fields->Number("repetition_penalty", 0, false, 100, &g->repetition_penalty);
  std::optional<double> presence;
  std::optional<double> frequency;
  fields->Number("presence_penalty", -2, true, 2, &presence);
  fields->Number("frequency_penalty", -2, true, 2, &frequency);
  g->presence_penalty = presence.value_or(0);
  g->frequency_penalty = frequency.value_or(0);
  ReadSeed(fields, &g->seed);
  ReadLogitBias(fields, limits.vocab, &g->logit_bias);
  ReadStop(fields, &g->stop);
  fields->Bool("ignore_eos", &g->ignore_eos);
  ReadStreaming(fields, g);
}

bool ReadIds(Fields* fields, const io::JsonValue& list, std::int64_t vocab, Prompt* out) {
  std::vector<std::int32_t> ids;
  ids.reserve(list.items().size());
  for (const io::JsonValue& id : list.items()) {
    if (!id.is_int() || id.integer() < 0 || id.integer() >= vocab) {
      fields->Fail("prompt", fmt::format("token ids from 0 to {}", vocab - 1), id);
      return false;
    }
    ids.push_back(static_cast<std::int32_t>(id.integer()));
  }
  if (ids.empty()) {
    fields->Fail("prompt", "at least one token id", list);
    return false;
  }
  out->ids = std::move(ids);
  return true;
}

// A text, texts, ids, or lists of ids.
void ReadPrompts(Fields* fields, const RequestLimits& limits, std::vector<Prompt>* out) {
  const io::JsonValue* prompt = fields->Find("prompt");
  if (prompt == nullptr) {
    return fields->Fail(
        {.message = "prompt: expected a text, token ids, or a list of either; found none", .param = "prompt"});
  }
  Prompt one;
  if (prompt->is_string()) {
    one.text = std::string(prompt->string());
    out->push_back(std::move(one));
    return;
  }
  if (!prompt->is_array() || prompt->items().empty()) {
    return fields->Fail("prompt", "a text, token ids, or a list of either", *prompt);
  }
  if (prompt->items()[0].is_number()) {
    if (ReadIds(fields, *prompt, limits.vocab, &one)) out->push_back(std::move(one));
    return;
  }
  if (static_cast<std::int64_t>(prompt->items().size()) > limits.max_prompts) {
    return fields->Fail("prompt", fmt::format("at most {} prompts", limits.max_prompts), *prompt);
  }
  for (const io::JsonValue& item : prompt->items()) {
    Prompt next;
    if (item.is_string()) {
      next.text = std::string(item.string());
    } else if (!item.is_array()) {
      return fields->Fail("prompt", "texts, or lists of token ids", item);
    } else if (!ReadIds(fields, item, limits.vocab, &next)) {
      return;
    }
    out->push_back(std::move(next));
  }
}

std::string Json(const io::JsonValue* value) {
  if (value == nullptr) return "";
  JsonWriter json;
  json.Value(*value);
  return json.Take();
}

// {"type": "text"} and nothing else can be promised.
void ReadResponseFormat(Fields* fields) {
  const io::JsonValue* format = fields->Find("response_format");
  if (format == nullptr) return;
  const io::JsonValue* type = format->Find("type");
  if (type == nullptr || type->string() != "text") {
    fields->Fail({.message = "response_format: only {\"type\": \"text\"} is supported by this server",
                  .param = "response_format",
                  .code = "unsupported_parameter"});
  }
}

void ReadTools(Fields* fields, ChatRequest* out) {
  const io::JsonValue* tools = fields->Find("tools");
  const io::JsonValue* choice = fields->Find("tool_choice");
  if (tools != nullptr && !tools->is_array()) return fields->Fail("tools", "a list", *tools);
  if (tools != nullptr) {
    for (const io::JsonValue& tool : tools->items()) {
      const io::JsonValue* function = tool.Find("function");
      const io::JsonValue* name = function == nullptr ? nullptr : function->Find("name");
      if (name != nullptr && name->is_string()) continue;
      return fields->Fail("tools", "objects with a function that has a name", tool);
    }
  }
  if (choice != nullptr && choice->string() != "none" && choice->string() != "auto") {
    return fields->Fail("tool_choice", "\"none\" or \"auto\"", *choice);
  }
  const bool none = choice != nullptr && choice->string() == "none";
  if (tools == nullptr || tools->items().empty() || none) return;
  out->tools = Json(tools);
  out->parse_tools = true;
}

void ReadMessages(Fields* fields, ChatRequest* out) {
  const io::JsonValue* messages = fields->Find("messages");
  if (messages == nullptr)
    return fields->Fail({.message = "messages: expected a list, found none", .param = "messages"});
  if (!messages->is_array() || messages->items().empty()) {
    return fields->Fail("messages", "a list of at least one message", *messages);
  }
  for (const io::JsonValue& message : messages->items()) {
    const io::JsonValue* role = message.Find("role");
    if (role == nullptr || !role->is_string()) return fields->Fail("messages", "objects with a role", message);
  }
  out->messages = Json(messages);
}

}  // namespace

std::optional<ApiError> ParseCompletion(std::string_view body, const RequestLimits& limits, CompletionRequest* out) {
  io::JsonValue root;
  if (auto error = ParseBody(body, &root)) return error;
  Fields fields(root);
  Generation& g = out->generation;
  ReadGeneration(&fields, limits, &g);
  ReadPrompts(&fields, limits, &out->prompts);
  fields.Bool("echo", &out->echo);
  fields.Whole("logprobs", 0, kMostTop, &g.logprobs);
  fields.Refuse("suffix");
  std::int64_t best_of = g.n;
  fields.Whole("best_of", 0, kMostTokens, &best_of);
  if (best_of != g.n) {
    fields.Fail({.message = fmt::format("best_of: expected n, which is {}, found {}", g.n, best_of),
                 .param = "best_of",
                 .code = "unsupported_parameter"});
  }
  if (out->echo && g.stream && g.logprobs) {
    fields.Fail({.message = "echo: with logprobs it can't be streamed", .param = "echo"});
  }
  return fields.error();
}

std::optional<ApiError> ParseChat(std::string_view body, const RequestLimits& limits, ChatRequest* out) {
  io::JsonValue root;
  if (auto error = ParseBody(body, &root)) return error;
  Fields fields(root);
  Generation& g = out->generation;
  ReadGeneration(&fields, limits, &g);
  fields.Whole("max_completion_tokens", 0, kMostTokens, &g.max_tokens);
  ReadMessages(&fields, out);
  ReadTools(&fields, out);
  ReadResponseFormat(&fields);
  for (const char* key : {"functions", "function_call", "audio", "prediction", "web_search_options"})
    fields.Refuse(key);
  bool logprobs = false;
  std::optional<std::int64_t> top;
  fields.Bool("logprobs", &logprobs);
  fields.Whole("top_logprobs", 0, kMostTop, &top);
  if (top && !logprobs) fields.Fail({.message = "top_logprobs: only where logprobs is true", .param = "top_logprobs"});
  if (logprobs) g.logprobs = top.value_or(0);
  if (const io::JsonValue* variables = fields.Find("chat_template_kwargs")) {
    if (!variables->is_object()) fields.Fail("chat_template_kwargs", "an object", *variables);
    out->variables = Json(variables);
  }
  return fields.error();
}

}  // namespace mla::server
