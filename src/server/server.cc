#include "server/server.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <map>
#include <optional>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "io/json.h"
#include "io/quote.h"
#include "server/answer.h"
#include "server/fields.h"
#include "server/json_writer.h"
#include "server/metrics.h"
#include "server/page.h"

namespace mla::server {
namespace {

using ExchangePtr = std::shared_ptr<Exchange>;
constexpr std::string_view kJson = "application/json";
constexpr std::int64_t kDefaultMaxTokens = 16;  // of completions, as OpenAI's

// Time depends on the lengths alone.
bool SameText(std::string_view a, std::string_view b) {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  }
  return different == 0;
}

std::int64_t ResidentBytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  long long total = 0;
  long long resident = 0;
  if (std::fscanf(file, "%lld %lld", &total, &resident) != 2) resident = 0;
  std::fclose(file);
  return resident * sysconf(_SC_PAGESIZE);
}

class ServerImpl final : public Server {
 public:
  ServerImpl(ServerParts parts, ServerOptions options) : parts_(std::move(parts)), options_(std::move(options)) {
    const std::int64_t context = parts_.engine->context();
    max_prompt_ = options_.max_prompt > 0 ? std::min(options_.max_prompt, context) : context;
    for (std::int32_t id = 0; id < parts_.tokenizer->vocab_size(); ++id) {
      longest_token_ = std::max(longest_token_, parts_.tokenizer->TokenBytes(id).size());
    }
    eos_ids_ = parts_.info->eos_ids;
    if (eos_ids_.empty() && parts_.tokenizer->eos_id()) eos_ids_ = {*parts_.tokenizer->eos_id()};
    memory_ = parts_.engine->memory();
    bytes_per_token_ = parts_.engine->cache_bytes_per_token();
    max_sequences_ = parts_.engine->options().max_sequences;
    context_ = context;
  }

  ~ServerImpl() override {
    closing_ = true;
    loop_.reset();
    tickets_.clear();
    http_.reset();
  }

  Status Listen() {
    MLA_ASSIGN_OR_RETURN(http_, HttpServer::Listen(options_.host, options_.port, options_.http,
                                                   [this](const ExchangePtr& exchange) { Handle(exchange); }));
    loop_ = std::make_unique<EngineLoop>(
        *parts_.engine, options_.max_queue, [this](std::vector<LoopEvent> events, double seconds) {
          http_->Post([this, events = std::move(events), seconds] { OnEvents(events, seconds); });
        });
    return {};
  }

  int port() const override { return http_->port(); }
  bool Run(bool signals) override {
    return http_->Run(signals, [this] { StartDrain(); });
  }
  void Drain() override {
    http_->Post([this] { StartDrain(); });
  }
  void Stop() override { http_->Stop(); }
  LoopSnapshot snapshot() const override { return loop_->snapshot(); }

 private:
  using Method = void (ServerImpl::*)(const ExchangePtr&);
  struct Route {
    std::string_view method;
    std::string_view path;
    bool open;  // no key is asked for
    Method handle;
  };
  struct Pending {
    std::shared_ptr<Answer> answer;
    std::int64_t prompt = 0;
    bool waiting = true;
  };

  void StartDrain() {
    if (std::exchange(draining_, true)) return;
    parts_.log(fmt::format("event=drain running={}", tickets_.size()));
    http_->Drain();
  }

  void Handle(const ExchangePtr& exchange);
  bool MayCall(const Exchange& exchange) const;
  std::optional<ApiError> Admit(std::int64_t prompts, bool stream) const;

  void Health(const ExchangePtr& e) { e->Respond(200, kJson, "{\"status\":\"ok\"}"); }
  void Ready(const ExchangePtr& e) {
    if (draining_) return Error(e, {.status = 503, .message = "the server is draining", .code = "draining"});
    e->Respond(200, kJson, "{\"status\":\"ready\"}");
  }
  void Home(const ExchangePtr& e) {
    e->Respond(200, "text/html; charset=utf-8", Page(), "Referrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\n");
  }
  void Models(const ExchangePtr& e);
  void StatsJson(const ExchangePtr& e);
  void MetricsPage(const ExchangePtr& e);
  void Tokenize(const ExchangePtr& e);
  void Detokenize(const ExchangePtr& e);
  void Completions(const ExchangePtr& e);
  void Chat(const ExchangePtr& e);

  void Error(const ExchangePtr& e, const ApiError& error) {
    ++metrics_.answers[error.status];
    parts_.log(fmt::format("event=refused method={} path={} status={} reason={}", io::Quoted(e->request().method, 10),
                           io::Quoted(e->request().path, 60), error.status, io::Quoted(error.message, 200)));
    RespondError(*e, error);
  }

  RequestLimits Limits() const { return {parts_.info->vocab_size, max_sequences_, options_.max_queue}; }
  std::optional<ApiError> Encode(const std::string& text, bool bos, std::vector<std::int32_t>* out) const;
  std::optional<ApiError> Fits(std::size_t tokens, std::string_view field) const;
  std::optional<ApiError> KnownModel(const Generation& g) const;
  ScheduledRequest Scheduled(const Generation& g, const std::vector<std::int32_t>& prompt, bool echo,
                             std::int64_t max_tokens);
  AnswerOptions OptionsOf(const Generation& g, bool chat);
  void Launch(const ExchangePtr& e, AnswerOptions options, std::vector<ScheduledRequest> requests);

  void OnEvents(const std::vector<LoopEvent>& events, double seconds);
  void OnGone(const std::shared_ptr<Answer>& answer);
  void Ended(const std::shared_ptr<Answer>& answer);
  double TokensPerSecond();

  ServerParts parts_;
  ServerOptions options_;
  std::int64_t max_prompt_ = 0;
  std::int64_t context_ = 0;
  std::int64_t max_sequences_ = 1;
  std::int64_t bytes_per_token_ = 0;
  std::size_t longest_token_ = 1;
  std::vector<std::int32_t> eos_ids_;
  MemoryPlan memory_;
  Metrics metrics_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<EngineLoop> loop_;
  std::map<Ticket, Pending> tickets_;
  Ticket next_ticket_ = 1;
  std::int64_t next_answer_ = 1;
  std::int64_t streams_ = 0;
  std::mt19937_64 random_{std::random_device{}()};
  const std::uint64_t name_ = random_();
  bool draining_ = false;
  bool closing_ = false;
  Clock::time_point window_begin_ = Clock::now();  // of tokens a second
  std::int64_t window_tokens_ = 0;
  double rate_ = 0;
};

bool ServerImpl::MayCall(const Exchange& exchange) const {
  if (options_.api_keys.empty()) return true;
  constexpr std::string_view kBearer = "Bearer ";
  const std::string& given = exchange.request().authorization;
  if (given.compare(0, kBearer.size(), kBearer) != 0) return false;
  const std::string_view key = std::string_view(given).substr(kBearer.size());
  bool known = false;
  for (const std::string& right : options_.api_keys) known = SameText(key, right) || known;
  return known;
}

void ServerImpl::Handle(const ExchangePtr& e) {
  static constexpr std::array kRoutes = {
      Route{"GET", "/", true, &ServerImpl::Home},
      Route{"GET", "/health", true, &ServerImpl::Health},
      Route{"GET", "/ready", true, &ServerImpl::Ready},
      Route{"GET", "/metrics", false, &ServerImpl::MetricsPage},
      Route{"GET", "/stats", false, &ServerImpl::StatsJson},
      Route{"GET", "/v1/models", false, &ServerImpl::Models},
      Route{"POST", "/v1/completions", false, &ServerImpl::Completions},
      Route{"POST", "/v1/chat/completions", false, &ServerImpl::Chat},
      Route{"POST", "/tokenize", false, &ServerImpl::Tokenize},
      Route{"POST", "/detokenize", false, &ServerImpl::Detokenize},
  };
  const HttpRequest& request = e->request();
  const auto* route =
      std::find_if(kRoutes.begin(), kRoutes.end(), [&](const Route& r) { return r.path == request.path; });
  if (route == kRoutes.end()) return Error(e, {.status = 404, .message = "no such path", .code = "not_found"});
  if (request.method != route->method && !(request.method == "HEAD" && route->method == "GET")) {
    return Error(e, {.status = 405, .message = fmt::format("expected the method {}", route->method)});
  }
  // Another site's page must not use a visitor's own server.
  const std::string& origin = request.origin;
  const auto host = origin.find("://");
  if (!origin.empty() && (host == std::string::npos || origin.substr(host + 3) != request.host)) {
    return Error(e, {.status = 403, .message = "requests from pages of other sites are refused"});
  }
  if (!route->open && !MayCall(*e)) {
    return Error(
        e, {.status = 401, .message = "expected the header Authorization: Bearer KEY", .code = "invalid_api_key"});
  }
  try {
    (this->*route->handle)(e);
  } catch (const std::exception& fault) {
    Error(e, {.status = 500, .message = fault.what()});
  }
}

void ServerImpl::Models(const ExchangePtr& e) {
  JsonWriter json;
  json.BeginObject().Key("object").String("list").Key("data").BeginArray().BeginObject();
  json.Key("id").String(options_.model_name).Key("object").String("model").Key("created").Int(0);
  json.Key("owned_by").String("mla").Key("max_model_len").Int(context_);
  json.EndObject().EndArray().EndObject();
  e->Respond(200, kJson, json.text());
}

double ServerImpl::TokensPerSecond() {
  const double seconds = Since(window_begin_);
  if (seconds < 1) return rate_;
  rate_ = static_cast<double>(metrics_.output_tokens - window_tokens_) / seconds;
  window_begin_ = Clock::now();
  window_tokens_ = metrics_.output_tokens;
  return rate_;
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
  json.Key("steps").Int(now.engine.steps).Key("last_form").String(now.form);
  json.Key("last_step_seconds")
      .Number(now.step_seconds)
      .Key("connections")
      .Int(static_cast<std::int64_t>(http_->connections()));
  json.EndObject();
  e->Respond(200, kJson, json.text(), "Cache-Control: no-store\r\n");
}

void ServerImpl::MetricsPage(const ExchangePtr& e) {
  const MetricsContext context{memory_, bytes_per_token_, ResidentBytes(), http_->connections()};
  e->Respond(200, "text/plain; version=0.0.4; charset=utf-8", MetricsText(metrics_, loop_->snapshot(), context));
}

std::optional<ApiError> ServerImpl::Fits(std::size_t tokens, std::string_view field) const {
  if (static_cast<std::int64_t>(tokens) <= max_prompt_) return std::nullopt;
  return ApiError{.message = fmt::format("{}: expected at most {} tokens, found {}", field, max_prompt_, tokens),
                  .param = std::string(field),
                  .code = "context_length_exceeded"};
}

std::optional<ApiError> ServerImpl::Encode(const std::string& text, bool bos, std::vector<std::int32_t>* out) const {
  // No token covers more bytes than the longest: what can't fit is refused before it is cut into tokens.
  if (auto error = Fits(text.size() / longest_token_, "prompt")) return error;
  auto ids = parts_.tokenizer->Encode(text);
  if (!ids.ok()) return ApiError{.message = ids.error().message, .param = "prompt"};
  *out = std::move(ids).value();
  for (const std::int32_t id : *out) {
    if (id < parts_.info->vocab_size) continue;
    return ApiError{.message = fmt::format("prompt: gives token id {}, and the model's vocabulary has {}", id,
                                           parts_.info->vocab_size),
                    .param = "prompt"};
  }
  const auto bos_id = parts_.tokenizer->bos_id() ? parts_.tokenizer->bos_id() : parts_.info->bos_id;
  const bool has_bos = bos_id && !out->empty() && out->front() == *bos_id;
  if (bos && bos_id && !has_bos && (parts_.tokenizer->add_bos() || out->empty())) out->insert(out->begin(), *bos_id);
  return Fits(out->size(), "prompt");
}

void ServerImpl::Tokenize(const ExchangePtr& e) {
  auto root = io::ParseJson(e->request().body, "body");
  if (!root.ok()) return Error(e, {.message = root.error().message});
  Fields fields(*root);
  std::string text;
  bool special = true;
  fields.Text("prompt", &text);
  fields.Bool("add_special_tokens", &special);
  if (!root->is_object() || fields.Find("prompt") == nullptr) {
    fields.Fail({.message = "prompt: expected a text, found none", .param = "prompt"});
  }
  if (fields.error()) return Error(e, *fields.error());
  std::vector<std::int32_t> ids;
  if (auto error = Encode(text, special, &ids)) return Error(e, *error);
  JsonWriter json;
  json.BeginObject().Key("count").Int(static_cast<std::int64_t>(ids.size())).Key("max_model_len").Int(context_);
  json.Key("tokens").BeginArray();
  for (const std::int32_t id : ids) json.Int(id);
  json.EndArray().EndObject();
  e->Respond(200, kJson, json.text());
}

void ServerImpl::Detokenize(const ExchangePtr& e) {
  auto root = io::ParseJson(e->request().body, "body");
  if (!root.ok()) return Error(e, {.message = root.error().message});
  const io::JsonValue* tokens = root->Find("tokens");
  if (tokens == nullptr || !tokens->is_array()) {
    return Error(e, {.message = "tokens: expected a list of token ids", .param = "tokens"});
  }
  StreamDecoder decoder(*parts_.tokenizer);
  std::string text;
  for (const io::JsonValue& id : tokens->items()) {
    if (!id.is_int() || id.integer() < 0 || id.integer() >= parts_.info->vocab_size) {
      return Error(e, {.message = fmt::format("tokens: expected ids from 0 to {}, found {}",
                                              parts_.info->vocab_size - 1, id.Describe()),
                       .param = "tokens"});
    }
    text += decoder.Push(static_cast<std::int32_t>(id.integer()));
  }
  text += decoder.Finish();
  JsonWriter json;
  json.BeginObject().Key("prompt").String(text).EndObject();
  e->Respond(200, kJson, json.text());
}

std::optional<ApiError> ServerImpl::KnownModel(const Generation& g) const {
  if (g.model.empty() || g.model == options_.model_name) return std::nullopt;
  return ApiError{
      .status = 404,
      .message = fmt::format("model: expected {}, found {}", io::Quoted(options_.model_name), io::Quoted(g.model)),
      .param = "model",
      .code = "model_not_found"};
}

std::optional<ApiError> ServerImpl::Admit(std::int64_t prompts, bool stream) const {
  if (draining_) return ApiError{.status = 503, .message = "the server is draining", .code = "draining"};
  const auto waiting = std::count_if(tickets_.begin(), tickets_.end(), [](const auto& t) { return t.second.waiting; });
  if (waiting + prompts > options_.max_queue) {
    return ApiError{
        .status = 429,
        .message = fmt::format("the queue is full: {} of {} prompts wait (--max-queue)", waiting, options_.max_queue),
        .code = "queue_full",
        .retry_after = 1};
  }
  if (stream && streams_ >= options_.max_streams) {
    return ApiError{.status = 429,
                    .message = fmt::format("{} answers are streamed already (--max-streams)", streams_),
                    .code = "too_many_streams",
                    .retry_after = 1};
  }
  return std::nullopt;
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
  CompletionRequest request;
  if (auto error = ParseCompletion(e->request().body, Limits(), &request)) return Error(e, *error);
  const Generation& g = request.generation;
  if (auto error = KnownModel(g)) return Error(e, *error);
  if (auto error = Admit(static_cast<std::int64_t>(request.prompts.size()), g.stream)) return Error(e, *error);
  std::vector<ScheduledRequest> scheduled;
  for (const Prompt& prompt : request.prompts) {
    std::vector<std::int32_t> ids = prompt.ids.value_or(std::vector<std::int32_t>{});
    if (auto error = prompt.ids ? Fits(ids.size(), "prompt") : Encode(prompt.text, true, &ids)) return Error(e, *error);
    if (options_.log_prompts) parts_.log(fmt::format("event=prompt text={}", io::Quoted(prompt.text, 4000)));
    scheduled.push_back(Scheduled(g, ids, request.echo, g.max_tokens.value_or(kDefaultMaxTokens)));
  }
  AnswerOptions options = OptionsOf(g, false);
  options.echo = request.echo;
  Launch(e, std::move(options), std::move(scheduled));
}

void ServerImpl::Chat(const ExchangePtr& e) {
  if (!parts_.chat) return Error(e, {.message = "this model has no chat template", .code = "no_chat_template"});
  ChatRequest request;
  if (auto error = ParseChat(e->request().body, Limits(), &request)) return Error(e, *error);
  const Generation& g = request.generation;
  if (auto error = KnownModel(g)) return Error(e, *error);
  if (auto error = Admit(1, g.stream)) return Error(e, *error);
  const auto prompt = parts_.chat(request);
  if (!prompt.ok()) return Error(e, {.message = prompt.error().message, .param = "messages"});
  if (auto error = Fits(prompt->ids.size(), "messages")) return Error(e, *error);
  if (options_.log_prompts) parts_.log(fmt::format("event=prompt text={}", io::Quoted(request.messages, 4000)));
  const std::int64_t room = std::max<std::int64_t>(1, context_ - static_cast<std::int64_t>(prompt->ids.size()));
  AnswerOptions options = OptionsOf(g, true);
  options.reply = ReplyParser::Options{prompt->in_reasoning, request.parse_tools};
  Launch(e, std::move(options), {Scheduled(g, prompt->ids, false, g.max_tokens.value_or(room))});
}

void ServerImpl::Launch(const ExchangePtr& e, AnswerOptions options, std::vector<ScheduledRequest> requests) {
  std::vector<std::vector<std::int32_t>> prompts;
  for (const ScheduledRequest& request : requests) prompts.push_back(request.request.prompt);
  const bool stream = options.stream;
  auto answer = std::make_shared<Answer>(*parts_.tokenizer, metrics_, e, std::move(options), std::move(prompts));
  if (stream) ++streams_;
  e->OnGone([this, answer] {
    // Not at once: it may be a write of this very answer that found the client gone.
    if (!closing_) http_->Post([this, answer] { OnGone(answer); });
  });
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Ticket ticket = next_ticket_++;
    tickets_[ticket] = {answer, static_cast<std::int64_t>(i), true};
    loop_->Submit(ticket, std::move(requests[i]), options_.request_seconds);
  }
}

void ServerImpl::OnEvents(const std::vector<LoopEvent>& events, double seconds) {
  metrics_.step.Add(seconds);
  for (const LoopEvent& event : events) {
    const auto found = tickets_.find(event.ticket);
    if (found == tickets_.end()) continue;
    if (event.kind == LoopEvent::Kind::kAdmitted) found->second.waiting = false;
    const std::shared_ptr<Answer> answer = found->second.answer;
    const bool done = answer->OnEvent(found->second.prompt, event);
    if (done) {
      loop_->Cancel(event.ticket);
      tickets_.erase(event.ticket);
    }
    if (answer->ended()) Ended(answer);
  }
}

void ServerImpl::OnGone(const std::shared_ptr<Answer>& answer) {
  if (answer->ended()) return;
  answer->Leave();
  ++metrics_.left;
  Ended(answer);
}

void ServerImpl::Ended(const std::shared_ptr<Answer>& answer) {
  for (auto it = tickets_.begin(); it != tickets_.end();) {
    if (it->second.answer != answer) {
      ++it;
      continue;
    }
    loop_->Cancel(it->first);
    it = tickets_.erase(it);
  }
  if (answer->stream()) --streams_;
  ++metrics_.answers[answer->status()];
  parts_.log(fmt::format(
      "event=answer id={} status={} prompt_tokens={} cached_tokens={} output_tokens={} seconds={:.3f}", answer->id(),
      answer->status(), answer->prompt_tokens(), answer->cached_tokens(), answer->output_tokens(), answer->seconds()));
}

}  // namespace

Result<std::unique_ptr<Server>> Server::Start(ServerParts parts, ServerOptions options) {
  auto server = std::make_unique<ServerImpl>(std::move(parts), std::move(options));
  MLA_RETURN_IF_ERROR(server->Listen());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace mla::server
