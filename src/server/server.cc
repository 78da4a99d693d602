#include "server/server.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "io/quote.h"
#include "server/server_impl.h"
#include "text/prompt.h"

namespace mla::server {
namespace {

// Time depends on the lengths alone.
bool SameText(std::string_view a, std::string_view b) {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  }
  return different == 0;
}

}  // namespace

ServerImpl::ServerImpl(ServerParts parts, ServerOptions options)
    : parts_(std::move(parts)), options_(std::move(options)) {
  const std::int64_t context = parts_.engine->context();
  max_prompt_ = options_.max_prompt > 0 ? std::min(options_.max_prompt, context) : context;
  longest_token_ = text::LongestToken(*parts_.tokenizer);
  eos_ids_ = text::EosIds(parts_.info->eos_ids, parts_.tokenizer);
  memory_ = parts_.engine->memory();
  bytes_per_token_ = parts_.engine->cache_bytes_per_token();
  kernels_ = parts_.engine->kernels();
  rejected_ = static_cast<std::int64_t>(parts_.engine->rejected_kernels().size());
  max_sequences_ = parts_.engine->options().max_sequences;
  context_ = context;
}

ServerImpl::~ServerImpl() {
  closing_ = true;
  worker_.reset();
  loop_.reset();
  tickets_.clear();
  http_.reset();
}

Status ServerImpl::Listen() {
  MLA_ASSIGN_OR_RETURN(http_, HttpServer::Listen(options_.host, options_.port, options_.http,
                                                 [this](const ExchangePtr& exchange) { Handle(exchange); }));
  worker_ = std::make_unique<Worker>();
  loop_ = std::make_unique<EngineLoop>(
      *parts_.engine, options_.max_queue, [this](std::vector<LoopEvent> events, const StepSeconds& seconds) {
        http_->Post([this, events = std::move(events), seconds] { OnEvents(events, seconds); });
      });
  return {};
}

void ServerImpl::StartDrain() {
  if (std::exchange(draining_, true)) return;
  parts_.log(fmt::format("event=drain running={}", tickets_.size()));
  http_->Drain();
}

void ServerImpl::Error(const ExchangePtr& e, const ApiError& error) {
  ++metrics_.answers[error.status];
  parts_.log(fmt::format("event=refused method={} path={} status={} reason={}", io::Quoted(e->request().method, 10),
                         io::Quoted(e->request().path, 60), error.status, io::Quoted(error.message, 200)));
  RespondError(*e, error);
}

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
    return Error(
        e, {.status = 405, .message = fmt::format("expected the method {}", route->method), .allow = route->method});
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

double ServerImpl::TokensPerSecond() {
  const double seconds = Since(window_begin_);
  if (seconds < 1) return rate_;
  rate_ = static_cast<double>(metrics_.output_tokens - window_tokens_) / seconds;
  window_begin_ = Clock::now();
  window_tokens_ = metrics_.output_tokens;
  return rate_;
}

std::optional<ApiError> ServerImpl::Admit(std::int64_t prompts, bool stream) const {
  if (draining_) return ApiError{.status = 503, .message = "the server is draining", .code = "draining"};
  const auto queued = std::count_if(tickets_.begin(), tickets_.end(), [](const auto& t) { return t.second.waiting; });
  const std::int64_t waiting = queued + preparing_;
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

void ServerImpl::Prepare(const ExchangePtr& e, std::function<Action(const std::string& body)> prepare) {
  ++preparing_;
  worker_->Post([this, e = ExchangePtr(e), body = e->request().body, prepare = std::move(prepare)]() mutable {
    Action action;
    try {
      action = prepare(body);
    } catch (const std::exception& fault) {
      action = Refusal(e, {.status = 500, .message = fault.what()});
    }
    prepare = nullptr;
    // Connections end on the server's thread: the last word of this one is let go there.
    http_->Post([this, keep = std::move(e), action = std::move(action)] {
      --preparing_;
      action();
    });
  });
}

ServerImpl::Action ServerImpl::Refusal(const ExchangePtr& e, ApiError error) {
  return [this, e, error = std::move(error)] { Error(e, error); };
}

void ServerImpl::Launch(const ExchangePtr& e, AnswerOptions options, std::vector<ScheduledRequest> requests) {
  std::vector<std::vector<std::int32_t>> prompts;
  prompts.reserve(requests.size());
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

void ServerImpl::OnEvents(const std::vector<LoopEvent>& events, const StepSeconds& seconds) {
  if (seconds.step > 0) metrics_.step.Add(seconds.step);
  if (seconds.mha_attention > 0) metrics_.mha_attention.Add(seconds.mha_attention);
  if (seconds.absorbed_attention > 0) metrics_.absorbed_attention.Add(seconds.absorbed_attention);
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

Result<std::unique_ptr<Server>> Server::Start(ServerParts parts, ServerOptions options) {
  auto server = std::make_unique<ServerImpl>(std::move(parts), std::move(options));
  MLA_RETURN_IF_ERROR(server->Listen());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace mla::server
