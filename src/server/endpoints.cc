// What each path answers.
#include <algorithm>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "base/cpu_info.h"
#include "io/json.h"
#include "io/quote.h"
#include "server/fields.h"
#include "server/json_writer.h"
#include "server/page.h"
#include "server/server_impl.h"
#include "text/prompt.h"

namespace mla::server {
namespace {

constexpr std::string_view kJson = "application/json";
constexpr std::int64_t kDefaultMaxTokens = 16;  // of completions, as OpenAI's

}  // namespace

void ServerImpl::Health(const ExchangePtr& e) { e->Respond(200, kJson, "{\"status\":\"ok\"}"); }

void ServerImpl::Home(const ExchangePtr& e) {
  e->Respond(
      200, "text/html; charset=utf-8", Page(),
      "Referrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\nContent-Security-Policy: default-src 'none'; "
      "script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; "
      "form-action 'none'; frame-ancestors 'none'\r\n");
}

void ServerImpl::Ready(const ExchangePtr& e) {
  if (draining_) return Error(e, {.status = 503, .message = "the server is draining", .code = "draining"});
  e->Respond(200, kJson, "{\"status\":\"ready\"}");
}

void ServerImpl::Models(const ExchangePtr& e) {
  JsonWriter json;
  json.BeginObject().Key("object").String("list").Key("data").BeginArray().BeginObject();
  json.Key("id").String(options_.model_name).Key("object").String("model").Key("created").Int(0);
  json.Key("owned_by").String("mla").Key("max_model_len").Int(context_);
  json.Key("chat").Bool(parts_.chat != nullptr);
  json.EndObject().EndArray().EndObject();
  e->Respond(200, kJson, json.text());
}

void ServerImpl::StatsJson(const ExchangePtr& e) {
  const LoopSnapshot now = loop_->snapshot();
  JsonWriter json;
  json.BeginObject().Key("tokens_per_second").Number(TokensPerSecond());
  json.Key("running").Int(now.scheduler.running).Key("waiting").Int(now.scheduler.waiting);
  json.Key("pages").BeginObject().Key("total").Int(now.pages.total).Key("free").Int(now.pages.free);
  json.Key("idle").Int(now.pages.idle).Key("shared").Int(now.pages.shared).EndObject();
  json.Key("prefix_hits").Int(now.engine.hits).Key("prefix_tokens_saved").Int(now.engine.cached_tokens);
  json.Key("draft_rows").Int(now.engine.draft_rows).Key("drafts_accepted").Int(now.engine.accepted);
  json.Key("steps").Int(now.engine.steps).Key("recent_forms").String(now.forms);
  json.Key("last_step_seconds")
      .Number(now.step_seconds)
      .Key("connections")
      .Int(static_cast<std::int64_t>(http_->connections()));
  json.EndObject();
  e->Respond(200, kJson, json.text(), "Cache-Control: no-store\r\n");
}

void ServerImpl::MetricsPage(const ExchangePtr& e) {
  const MetricsContext context{memory_, kernels_, rejected_, bytes_per_token_, ResidentBytes(), http_->connections()};
  e->Respond(200, "text/plain; version=0.0.4; charset=utf-8", MetricsText(metrics_, loop_->snapshot(), context));
}

std::optional<ApiError> ServerImpl::Fits(std::size_t tokens, std::string_view field) const {
  if (static_cast<std::int64_t>(tokens) <= max_prompt_) return std::nullopt;
  return ApiError{.message = fmt::format("{}: expected at most {} tokens, found {}", field, max_prompt_, tokens),
                  .param = std::string(field),
                  .code = "context_length_exceeded"};
}

std::optional<ApiError> ServerImpl::Encode(const std::string& prompt, bool bos, std::vector<std::int32_t>* out) const {
  if (auto error = Fits(prompt.size() / longest_token_, "prompt")) return error;
  auto ids = text::EncodePrompt(*parts_.tokenizer, prompt, Tokenizer::AddedTokens::kAsText, bos, parts_.info->bos_id,
                                parts_.info->vocab_size);
  if (!ids.ok()) return ApiError{.message = ids.error().message, .param = "prompt"};
  *out = std::move(ids).value();
  return Fits(out->size(), "prompt");
}

void ServerImpl::Tokenize(const ExchangePtr& e) {
  Prepare(e, [this, e](const std::string& body) -> Action {
    auto root = io::ParseJson(body, "body");
    if (!root.ok()) return Refusal(e, {.message = root.error().message});
    Fields fields(*root);
    std::string text;
    bool special = true;
    fields.Text("prompt", &text);
    fields.Bool("add_special_tokens", &special);
    if (fields.Find("prompt") == nullptr) {
      fields.Fail({.message = "prompt: expected a text, found none", .param = "prompt"});
    }
    if (fields.error()) return Refusal(e, *fields.error());
    std::vector<std::int32_t> ids;
    if (auto error = Encode(text, special, &ids)) return Refusal(e, *error);
    JsonWriter json;
    json.BeginObject().Key("count").Int(static_cast<std::int64_t>(ids.size())).Key("max_model_len").Int(context_);
    json.Key("tokens").BeginArray();
    for (const std::int32_t id : ids) json.Int(id);
    json.EndArray().EndObject();
    return [e, answer = json.Take()] { e->Respond(200, kJson, answer); };
  });
}

void ServerImpl::Detokenize(const ExchangePtr& e) {
  Prepare(e, [this, e](const std::string& body) -> Action {
    auto root = io::ParseJson(body, "body");
    if (!root.ok()) return Refusal(e, {.message = root.error().message});
    const io::JsonValue* tokens = root->Find("tokens");
    if (tokens == nullptr || !tokens->is_array()) {
      return Refusal(e, {.message = "tokens: expected a list of token ids", .param = "tokens"});
    }
    StreamDecoder decoder(*parts_.tokenizer);
    std::string text;
    for (const io::JsonValue& id : tokens->items()) {
      if (!id.is_int() || id.integer() < 0 || id.integer() >= parts_.info->vocab_size) {
        return Refusal(e, {.message = fmt::format("tokens: expected ids from 0 to {}, found {}",
                                                  parts_.info->vocab_size - 1, id.Describe()),
                           .param = "tokens"});
      }
      text += decoder.Push(static_cast<std::int32_t>(id.integer()));
    }
    text += decoder.Finish();
    JsonWriter json;
    json.BeginObject().Key("prompt").String(text).EndObject();
    return [e, answer = json.Take()] { e->Respond(200, kJson, answer); };
  });
}

std::optional<ApiError> ServerImpl::KnownModel(const Generation& g) const {
  if (g.model.empty() || g.model == options_.model_name) return std::nullopt;
  return ApiError{
      .status = 404,
      .message = fmt::format("model: expected {}, found {}", io::Quoted(options_.model_name), io::Quoted(g.model)),
      .param = "model",
      .code = "model_not_found"};
}

ScheduledRequest ServerImpl::Scheduled(const Generation& g, const std::vector<std::int32_t>& prompt, bool echo,
                                       std::int64_t max_tokens) {
  ScheduledRequest scheduled;
  scheduled.samples = g.n;
  Request& r = scheduled.request;
  r.prompt = prompt;
  r.max_tokens = max_tokens;
  SamplingParams& s = r.sampling;
  s = parts_.info->sampling;
  s.temperature = g.temperature.value_or(s.temperature);
  s.top_k = g.top_k.value_or(s.top_k);
  s.top_p = g.top_p.value_or(s.top_p);
  s.min_p = g.min_p.value_or(s.min_p);
  s.repetition_penalty = g.repetition_penalty.value_or(s.repetition_penalty);
  s.presence_penalty = g.presence_penalty;
  s.frequency_penalty = g.frequency_penalty;
  s.seed = g.seed ? *g.seed : random_();
  if (!g.ignore_eos) r.eos_ids = eos_ids_;
  r.prompt_logprobs = echo && g.logprobs.has_value();
  r.top_logprobs = g.logprobs.value_or(0);
  r.logit_bias = g.logit_bias;
  return scheduled;
}

AnswerOptions ServerImpl::OptionsOf(const Generation& g, bool chat) {
  AnswerOptions o;
  o.chat = chat;
  o.stream = g.stream;
  o.include_usage = g.include_usage;
  o.logprobs = g.logprobs;
  o.samples = g.n;
  o.id = fmt::format("{}-{:016x}{:x}", chat ? "chatcmpl" : "cmpl", name_, next_answer_++);
  o.model = options_.model_name;
  o.created = static_cast<std::int64_t>(std::time(nullptr));
  o.stop = g.stop;
  return o;
}

void ServerImpl::Completions(const ExchangePtr& e) {
  if (auto error = Admit(1, false)) return Error(e, *error);
  Prepare(e, [this, e](const std::string& body) -> Action {
    CompletionRequest request;
    if (auto error = ParseCompletion(body, Limits(), &request)) return Refusal(e, *error);
    if (auto error = KnownModel(request.generation)) return Refusal(e, *error);
    for (Prompt& prompt : request.prompts) {
      std::vector<std::int32_t> ids;
      if (auto error = prompt.ids ? Fits(prompt.ids->size(), "prompt") : Encode(prompt.text, true, &ids)) {
        return Refusal(e, *error);
      }
      if (!prompt.ids) prompt.ids = std::move(ids);
    }
    return [this, e, request = std::move(request)] { Complete(e, request); };
  });
}

void ServerImpl::Complete(const ExchangePtr& e, const CompletionRequest& request) {
  const Generation& g = request.generation;
  if (auto error = Admit(static_cast<std::int64_t>(request.prompts.size()), g.stream)) return Error(e, *error);
  std::vector<ScheduledRequest> scheduled;
  for (const Prompt& prompt : request.prompts) {
    if (options_.log_prompts) parts_.log(fmt::format("event=prompt text={}", io::Quoted(prompt.text, 4000)));
    scheduled.push_back(Scheduled(g, *prompt.ids, request.echo, g.max_tokens.value_or(kDefaultMaxTokens)));
  }
  AnswerOptions options = OptionsOf(g, false);
  options.echo = request.echo;
  Launch(e, std::move(options), std::move(scheduled));
}

void ServerImpl::Chat(const ExchangePtr& e) {
  if (!parts_.chat) return Error(e, {.message = "this model has no chat template", .code = "no_chat_template"});
  if (auto error = Admit(1, false)) return Error(e, *error);
  Prepare(e, [this, e](const std::string& body) -> Action {
    ChatRequest request;
    if (auto error = ParseChat(body, Limits(), &request)) return Refusal(e, *error);
    if (auto error = KnownModel(request.generation)) return Refusal(e, *error);
    auto prompt = parts_.chat(request);
    if (!prompt.ok()) return Refusal(e, {.message = prompt.error().message, .param = "messages"});
    if (auto error = Fits(prompt->ids.size(), "messages")) return Refusal(e, *error);
    return [this, e, request = std::move(request), p = std::move(prompt).value()] { Converse(e, request, p); };
  });
}

void ServerImpl::Converse(const ExchangePtr& e, const ChatRequest& request, const ChatPrompt& prompt) {
  const Generation& g = request.generation;
  if (auto error = Admit(1, g.stream)) return Error(e, *error);
  if (options_.log_prompts) parts_.log(fmt::format("event=prompt text={}", io::Quoted(request.messages, 4000)));
  const std::int64_t room = std::max<std::int64_t>(1, context_ - static_cast<std::int64_t>(prompt.ids.size()));
  AnswerOptions options = OptionsOf(g, true);
  options.reply = ReplyParser::Options{prompt.in_reasoning, request.parse_tools};
  options.replied = prompt.replied;
  Launch(e, std::move(options), {Scheduled(g, prompt.ids, false, g.max_tokens.value_or(room))});
}

}  // namespace mla::server
