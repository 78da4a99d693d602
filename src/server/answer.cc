#include "server/answer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace mla::server {
namespace {

std::int64_t Size(const auto& values) { return static_cast<std::int64_t>(values.size()); }

}  // namespace

Answer::Answer(const Tokenizer& tokenizer, Metrics& metrics, std::shared_ptr<Exchange> exchange, AnswerOptions options,
               std::vector<std::vector<std::int32_t>> prompts)
    : tokenizer_(&tokenizer),
      metrics_(&metrics),
      exchange_(std::move(exchange)),
      options_(std::move(options)),
      prompts_(std::move(prompts)),
      cached_(prompts_.size()) {
  outputs_.reserve(prompts_.size() * static_cast<std::size_t>(options_.samples));
  for (std::size_t p = 0; p < prompts_.size(); ++p) {
    for (std::int64_t s = 0; s < options_.samples; ++s) {
      outputs_.emplace_back(Choice(tokenizer, {options_.stop, options_.reply, options_.logprobs.has_value()}));
    }
  }
}

std::int64_t Answer::prompt_tokens() const {
  return std::accumulate(prompts_.begin(), prompts_.end(), std::int64_t{0},
                         [](std::int64_t sum, const auto& prompt) { return sum + Size(prompt); });
}

std::int64_t Answer::output_tokens() const {
  return std::accumulate(outputs_.begin(), outputs_.end(), std::int64_t{0},
                         [](std::int64_t sum, const Output& output) { return sum + output.generated; });
}

std::int64_t Answer::cached_tokens() const { return std::accumulate(cached_.begin(), cached_.end(), std::int64_t{0}); }

void Answer::Begin() {
  if (std::exchange(begun_, true)) return;
  metrics_->prompt_tokens += prompt_tokens();
  if (options_.stream) exchange_->BeginStream();
  if (!options_.echo) return;
  for (std::int64_t i = 0; i < Size(outputs_); ++i) {
    Shown shown =
        outputs_[static_cast<std::size_t>(i)].choice.Echo(prompts_[static_cast<std::size_t>(i / options_.samples)]);
    if (options_.stream) Stream(i, shown, false);
    Keep(i, std::move(shown));
  }
}

bool Answer::OnEvent(std::int64_t prompt, const LoopEvent& event) {
  using Kind = LoopEvent::Kind;
  if (ended_) return true;
  switch (event.kind) {
    case Kind::kRefused: Fail({.message = event.message, .param = options_.chat ? "messages" : "prompt"}); return true;
    case Kind::kFull:
      Fail({.status = 429, .message = "the queue is full", .code = "queue_full", .retry_after = 1});
      return true;
    case Kind::kAccepted: Begin(); return false;
    case Kind::kAdmitted: cached_[static_cast<std::size_t>(prompt)] = event.cached_tokens; return false;
    case Kind::kToken: OnToken(prompt * options_.samples + event.sample, event); break;
    case Kind::kFinished: OnFinished(prompt, event); break;
  }
  const auto first = outputs_.begin() + prompt * options_.samples;
  const bool done = std::all_of(first, first + options_.samples, [](const Output& o) { return !o.finish.empty(); });
  EndIfDone();
  return done || ended_;
}

void Answer::OnToken(std::int64_t index, const LoopEvent& event) {
  Output& output = outputs_[static_cast<std::size_t>(index)];
  if (!output.finish.empty()) return;  // it met a stop text, while the engine was a step ahead
  const auto now = Clock::now();
  if (output.generated == 0) {
    metrics_->first_token.Add(seconds());
  } else {
    metrics_->between_tokens.Add(std::chrono::duration<double>(now - output.last).count());
  }
  output.last = now;
  ++output.generated;
  if (options_.replied) output.ids.push_back(event.id);
  ++metrics_->output_tokens;
  Shown shown = output.choice.Push(event.id, event.logprob, event.top);
  if (options_.stream) Stream(index, shown, false);
  Keep(index, std::move(shown));
  if (output.choice.stopped()) EndChoice(index, "stop");
}

void Answer::OnFinished(std::int64_t prompt, const LoopEvent& event) {
  const std::int64_t index = prompt * options_.samples + event.sample;
  if (event.sample == 0 && options_.echo && options_.logprobs) {
    const std::int64_t wide = *options_.logprobs;
    for (std::int64_t s = 0; s < options_.samples; ++s) {
      std::vector<ShownToken>& tokens = outputs_[static_cast<std::size_t>(prompt * options_.samples + s)].tokens;
      for (std::int64_t i = 0; i < Size(event.prompt_logprobs) && i + 1 < Size(tokens); ++i) {
        ShownToken& token = tokens[static_cast<std::size_t>(i + 1)];
        token.logprob = event.prompt_logprobs[static_cast<std::size_t>(i)];
        if (Size(event.top_of_prompt) < (i + 1) * wide) continue;
        token.top.assign(event.top_of_prompt.begin() + i * wide, event.top_of_prompt.begin() + (i + 1) * wide);
      }
    }
  }
  switch (event.finish) {
    case FinishReason::kDeadline:
      return Fail(
          {.status = 504, .message = "the answer was not ready in time (--request-timeout)", .code = "deadline"});
    case FinishReason::kNotFinite:
      return Fail({.status = 500, .message = "the model's logits are no numbers", .code = "not_finite"});
    case FinishReason::kEos: TellReply(index, 1); return EndChoice(index, "stop");
    case FinishReason::kMaxTokens:
    case FinishReason::kContext: TellReply(index, 0); return EndChoice(index, "length");
    case FinishReason::kNone:
    case FinishReason::kCancelled: return;
  }
}

void Answer::TellReply(std::int64_t index, std::size_t closing) {
  const Output& output = outputs_[static_cast<std::size_t>(index)];
  // Text behind a stop text was not sent: what the client sends back is another reply.
  if (!options_.replied || !output.finish.empty() || output.ids.size() < closing) return;
  options_.replied(std::span(output.ids).first(output.ids.size() - closing));
}

void Answer::EndChoice(std::int64_t index, std::string reason) {
  Output& output = outputs_[static_cast<std::size_t>(index)];
  if (!output.finish.empty()) return;
  Shown shown = output.choice.Finish();
  if (reason == "stop" && output.choice.calls() > 0) reason = "tool_calls";
  output.finish = std::move(reason);
  if (options_.stream) Stream(index, shown, true);
  Keep(index, std::move(shown));
}

void Answer::Keep(std::int64_t index, Shown shown) {
  Output& output = outputs_[static_cast<std::size_t>(index)];
  if (options_.stream) return;
  for (ShownToken& token : shown.tokens) output.tokens.push_back(std::move(token));
  if (!options_.chat) {
    output.text += shown.text;
    return;
  }
  for (ReplyPart& part : shown.parts) {
    switch (part.kind) {
      case ReplyPart::Kind::kReasoning: output.reasoning += part.text; break;
      case ReplyPart::Kind::kContent: output.text += part.text; break;
      case ReplyPart::Kind::kCallBegin:
        output.calls.push_back(std::move(part));
        output.arguments.emplace_back();
        break;
      case ReplyPart::Kind::kCallArguments: output.arguments.back() += part.text; break;
    }
  }
}

std::string Answer::CallId(const ReplyPart& call, std::int64_t index) const {
  return call.call_id.empty() ? fmt::format("call_{}_{}_{}", options_.id, index, call.call) : call.call_id;
}

void Answer::WriteHead(std::string_view object, JsonWriter* json) const {
  json->Key("id").String(options_.id).Key("object").String(object).Key("created").Int(options_.created);
  json->Key("model").String(options_.model);
}

void Answer::WriteUsage(JsonWriter* json) const {
  json->Key("usage").BeginObject().Key("prompt_tokens").Int(prompt_tokens());
  json->Key("completion_tokens").Int(output_tokens()).Key("total_tokens").Int(prompt_tokens() + output_tokens());
  json->Key("prompt_tokens_details").BeginObject().Key("cached_tokens").Int(cached_tokens()).EndObject().EndObject();
}

void Answer::WriteDelta(std::int64_t index, const ReplyPart* part, JsonWriter* json) const {
  json->Key("delta").BeginObject();
  if (!outputs_[static_cast<std::size_t>(index)].opened) json->Key("role").String("assistant");
  if (part != nullptr) {
    switch (part->kind) {
      case ReplyPart::Kind::kReasoning: json->Key("reasoning_content").String(part->text); break;
      case ReplyPart::Kind::kContent: json->Key("content").String(part->text); break;
      case ReplyPart::Kind::kCallBegin:
      case ReplyPart::Kind::kCallArguments:
        json->Key("tool_calls").BeginArray().BeginObject().Key("index").Int(part->call);
        if (part->kind == ReplyPart::Kind::kCallBegin) {
          json->Key("id").String(CallId(*part, index)).Key("type").String("function");
          json->Key("function").BeginObject().Key("name").String(part->text).Key("arguments").String("").EndObject();
        } else {
          json->Key("function").BeginObject().Key("arguments").String(part->text).EndObject();
        }
        json->EndObject().EndArray();
    }
  }
  json->EndObject();
}

void Answer::SendChunk(std::int64_t index, const ReplyPart* part, std::string_view text,
                       const std::vector<ShownToken>& tokens, bool last) {
  Output& output = outputs_[static_cast<std::size_t>(index)];
  JsonWriter json;
  json.BeginObject();
  WriteHead(options_.chat ? "chat.completion.chunk" : "text_completion", &json);
  json.Key("choices").BeginArray().BeginObject().Key("index").Int(index);
  if (options_.chat) {
    WriteDelta(index, part, &json);
  } else {
    json.Key("text").String(text);
  }
  json.Key("logprobs");
  if (!options_.logprobs || tokens.empty()) {
    json.Null();
  } else if (options_.chat) {
    WriteChatLogprobs(*tokenizer_, tokens, &json);
  } else {
    WriteTextLogprobs(*tokenizer_, tokens, *options_.logprobs, &json);
  }
  json.Key("finish_reason");
  last ? json.String(output.finish) : json.Null();
  json.EndObject().EndArray();
  if (options_.include_usage) json.Key("usage").Null();
  json.EndObject();
  output.opened = true;
  exchange_->Send(fmt::format("data: {}\n\n", json.text()));
}

void Answer::Stream(std::int64_t index, const Shown& shown, bool last) {
  const std::vector<ShownToken> none;
  const std::vector<ShownToken>* tokens = &shown.tokens;
  if (!options_.chat) {
    if (last || !shown.text.empty() || !tokens->empty()) SendChunk(index, nullptr, shown.text, *tokens, last);
    return;
  }
  for (const ReplyPart& part : shown.parts) {
    SendChunk(index, &part, "", *tokens, false);
    tokens = &none;
  }
  if (last || !tokens->empty()) SendChunk(index, nullptr, "", *tokens, last);
}

void Answer::WriteMessage(const Output& output, JsonWriter* json) const {
  const std::int64_t index = &output - outputs_.data();
  json->Key("message").BeginObject().Key("role").String("assistant").Key("content");
  output.text.empty() && !output.calls.empty() ? json->Null() : json->String(output.text);
  if (!output.reasoning.empty()) json->Key("reasoning_content").String(output.reasoning);
  if (!output.calls.empty()) {
    json->Key("tool_calls").BeginArray();
    for (std::size_t i = 0; i < output.calls.size(); ++i) {
      json->BeginObject().Key("id").String(CallId(output.calls[i], index)).Key("type").String("function");
      json->Key("function").BeginObject().Key("name").String(output.calls[i].text);
      json->Key("arguments").String(output.arguments[i]).EndObject().EndObject();
    }
    json->EndArray();
  }
  json->EndObject();
}

std::string Answer::Whole() const {
  JsonWriter json;
  json.BeginObject();
  WriteHead(options_.chat ? "chat.completion" : "text_completion", &json);
  json.Key("choices").BeginArray();
  for (std::int64_t i = 0; i < Size(outputs_); ++i) {
    const Output& output = outputs_[static_cast<std::size_t>(i)];
    json.BeginObject().Key("index").Int(i);
    if (options_.chat) {
      WriteMessage(output, &json);
    } else {
      json.Key("text").String(output.text);
    }
    json.Key("logprobs");
    if (!options_.logprobs) {
      json.Null();
    } else if (options_.chat) {
      WriteChatLogprobs(*tokenizer_, output.tokens, &json);
    } else {
      WriteTextLogprobs(*tokenizer_, output.tokens, *options_.logprobs, &json);
    }
    json.Key("finish_reason").String(output.finish).EndObject();
  }
  json.EndArray();
  WriteUsage(&json);
  json.EndObject();
  return json.Take();
}

void Answer::EndIfDone() {
  const auto done = [](const Output& output) { return !output.finish.empty(); };
  if (ended_ || !std::all_of(outputs_.begin(), outputs_.end(), done)) return;
  ended_ = true;
  if (!options_.stream) return exchange_->Respond(200, "application/json", Whole());
  if (options_.include_usage) {
    JsonWriter json;
    json.BeginObject();
    WriteHead(options_.chat ? "chat.completion.chunk" : "text_completion", &json);
    json.Key("choices").BeginArray().EndArray();
    WriteUsage(&json);
    json.EndObject();
    exchange_->Send(fmt::format("data: {}\n\n", json.text()));
  }
  exchange_->Send("data: [DONE]\n\n");
  exchange_->EndStream();
}

void Answer::Fail(const ApiError& error) {
  if (std::exchange(ended_, true)) return;
  status_ = error.status;
  if (!begun_ || !options_.stream) return RespondError(*exchange_, error);
  exchange_->Send(fmt::format("data: {}\n\n", ErrorJson(error)));
  exchange_->EndStream();
}

}  // namespace mla::server
