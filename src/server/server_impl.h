// The server's state and handlers; one thread, that of HttpServer::Run, but for what says otherwise.
#ifndef MLA_SERVER_SERVER_IMPL_H_
#define MLA_SERVER_SERVER_IMPL_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "server/answer.h"
#include "server/api_error.h"
#include "server/metrics.h"
#include "server/server.h"
#include "server/worker.h"

namespace mla::server {

using ExchangePtr = std::shared_ptr<Exchange>;

class ServerImpl final : public Server {
 public:
  ServerImpl(ServerParts parts, ServerOptions options);
  ~ServerImpl() override;
  Status Listen();

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

  void StartDrain();

  void Handle(const ExchangePtr& exchange);
  bool MayCall(const Exchange& exchange) const;
  std::optional<ApiError> Admit(std::int64_t prompts, bool stream) const;

  void Health(const ExchangePtr& e);
  void Ready(const ExchangePtr& e);
  void Home(const ExchangePtr& e);
  void Models(const ExchangePtr& e);
  void StatsJson(const ExchangePtr& e);
  void MetricsPage(const ExchangePtr& e);
  void Tokenize(const ExchangePtr& e);
  void Detokenize(const ExchangePtr& e);
  void Completions(const ExchangePtr& e);
  void Chat(const ExchangePtr& e);
  // Once their prompts are ids.
  void Complete(const ExchangePtr& e, const CompletionRequest& request);
  void Converse(const ExchangePtr& e, const ChatRequest& request, const ChatPrompt& prompt);

  // Reads the request's body on the worker, and does there what takes long; what that returns is done on the server's
  // thread. A preparation uses nothing of the server that changes.
  using Action = std::function<void()>;
  void Prepare(const ExchangePtr& e, std::function<Action(const std::string& body)> prepare);
  Action Refusal(const ExchangePtr& e, ApiError error);

  void Error(const ExchangePtr& e, const ApiError& error);

  RequestLimits Limits() const { return {parts_.info->vocab_size, max_sequences_, options_.max_queue}; }
  std::optional<ApiError> Encode(const std::string& text, bool bos, std::vector<std::int32_t>* out) const;
  std::optional<ApiError> Fits(std::size_t tokens, std::string_view field) const;
  std::optional<ApiError> KnownModel(const Generation& g) const;
  ScheduledRequest Scheduled(const Generation& g, const std::vector<std::int32_t>& prompt, bool echo,
                             std::int64_t max_tokens);
  AnswerOptions OptionsOf(const Generation& g, bool chat);
  void Launch(const ExchangePtr& e, AnswerOptions options, std::vector<ScheduledRequest> requests);

  void OnEvents(const std::vector<LoopEvent>& events, const StepSeconds& seconds);
  void OnGone(const std::shared_ptr<Answer>& answer);
  void Ended(const std::shared_ptr<Answer>& answer);
  double TokensPerSecond();

  ServerParts parts_;
  ServerOptions options_;
  std::int64_t max_prompt_ = 0;
  std::int64_t context_ = 0;
  std::int64_t max_sequences_ = 1;
  std::int64_t bytes_per_token_ = 0;
  std::string kernels_;
  std::int64_t rejected_ = 0;
  std::size_t longest_token_ = 1;
  std::vector<std::int32_t> eos_ids_;
  MemoryPlan memory_;
  Metrics metrics_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<EngineLoop> loop_;
  std::map<Ticket, Pending> tickets_;
  std::unique_ptr<Worker> worker_;
  std::int64_t preparing_ = 0;
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

}  // namespace mla::server

#endif  // MLA_SERVER_SERVER_IMPL_H_
