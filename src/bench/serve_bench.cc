#include "bench/serve_bench.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "engine/limits.h"

namespace mla::bench {
namespace {

constexpr double kMomentSeconds = 0.01;

class Player {
 public:
  Player(Engine& engine, const ServeBenchOptions& options)
      : engine_(engine),
        options_(options),
        scheduler_(engine, {.max_waiting = static_cast<std::int64_t>(options.load.size()), .now = {}}),
        last_token_(options.load.size()) {
    result_.requests.resize(options.load.size());
    for (std::size_t i = 0; i < options.load.size(); ++i) result_.requests[i].arrival = options.load[i].arrival;
  }

  Result<ServeBenchResult> Play() {
    const EngineStats before = engine_.stats();
    begin_ = Clock::now();
    while (next_ < options_.load.size() || scheduler_.busy()) {
      MLA_RETURN_IF_ERROR(SubmitDue());
      if (!scheduler_.busy()) {
        std::this_thread::sleep_until(begin_ + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(options_.load[next_].arrival)));
        continue;
      }
      Step();
      MLA_RETURN_IF_ERROR(Collect());
      Look();
    }
    result_.seconds = Since(begin_);
    result_.engine = Difference(engine_.stats(), before);
    result_.scheduler = scheduler_.stats();
    engine_.CheckPages();
    return std::move(result_);
  }

 private:
  Status SubmitDue() {
    while (next_ < options_.load.size() && options_.load[next_].arrival <= Since(begin_)) {
      const LoadRequest& load = options_.load[next_];
      ScheduledRequest scheduled;
      scheduled.request.prompt = PromptIds(load, static_cast<std::int64_t>(next_), options_.vocab_size, options_.seed);
      scheduled.request.max_tokens = load.output_tokens;
      MLA_ASSIGN_OR_RETURN(const std::optional<RequestId> id, scheduler_.Submit(scheduled));
      if (!id) return Error{"queue: it is full"};
      index_[*id] = next_++;
    }
    return {};
  }

  void Step() {
    const EngineStats before = engine_.stats();
    const auto begin = Clock::now();
    step_begin_ = Since(begin_);
    scheduler_.Step();
    const double seconds = Since(begin);
    const EngineStats& after = engine_.stats();
    if (after.steps == before.steps) return;
    StepTimes& times = after.prompt_rows > before.prompt_rows ? result_.prompt_steps : result_.decode_steps;
    ++times.steps;
    times.seconds += seconds;
    times.absorbed_seconds += after.attention.absorbed_seconds - before.attention.absorbed_seconds;
    times.mha_seconds += after.attention.mha_seconds - before.attention.mha_seconds;
  }

  Status Collect() {
    const double now = Since(begin_);
    cancels_.clear();
    for (const SchedulerEvent& event : scheduler_.events()) {
      const std::size_t at = index_.at(event.request);
      ServedRequest& served = result_.requests[at];
      switch (event.kind) {
        case SchedulerEvent::Kind::kAdmitted:
          served.admitted = step_begin_;
          served.cached_tokens = event.cached_tokens;
          resident_ += options_.load[at].prompt_tokens;
          break;
        case SchedulerEvent::Kind::kToken: OnToken(event, at, now); break;
        case SchedulerEvent::Kind::kFinished:
          if (event.finish == FinishReason::kNotFinite) {
            return engine::NotFiniteError(options_.load[at].prompt_tokens + served.tokens);
          }
          served.finish = event.finish;
          served.end = now;
          resident_ -= options_.load[at].prompt_tokens + served.tokens;
          if (options_.progress) options_.progress(++ended_, std::ssize(options_.load));
          break;
      }
    }
    for (const RequestId id : cancels_) scheduler_.Cancel(id);
    return {};
  }

  void OnToken(const SchedulerEvent& event, std::size_t at, double now) {
    ServedRequest& served = result_.requests[at];
    if (served.first_token) {
      result_.token_gaps.push_back(now - last_token_[at]);
    } else {
      served.first_token = now;
    }
    last_token_[at] = now;
    ++served.tokens;
    ++tokens_;
    ++resident_;
    if (served.tokens == options_.load[at].cancel_after) cancels_.push_back(event.request);
  }

  void Look() {
    const PageUse pages = engine_.pages();
    const SchedulerStats stats = scheduler_.stats();
    const std::int64_t used = pages.total - pages.free - pages.idle;
    result_.most_used_pages = std::max(result_.most_used_pages, used);
    result_.most_running = std::max(result_.most_running, stats.running);
    result_.most_resident_tokens = std::max(result_.most_resident_tokens, resident_);
    const double now = Since(begin_);
    if (!result_.moments.empty() && now - result_.moments.back().seconds < kMomentSeconds) return;
    result_.moments.push_back({now, tokens_, stats.running, stats.waiting, used});
  }

  static EngineStats Difference(EngineStats after, const EngineStats& before) {
    after.steps -= before.steps;
    after.mha_steps -= before.mha_steps;
    after.absorbed_steps -= before.absorbed_steps;
    after.prompt_rows -= before.prompt_rows;
    after.generated_rows -= before.generated_rows;
    after.draft_rows -= before.draft_rows;
    after.accepted -= before.accepted;
    after.hits -= before.hits;
    after.cached_tokens -= before.cached_tokens;
    after.copied_pages -= before.copied_pages;
    after.evicted_pages -= before.evicted_pages;
    after.attention.absorbed_seconds -= before.attention.absorbed_seconds;
    after.attention.mha_seconds -= before.attention.mha_seconds;
    return after;
  }

  Engine& engine_;
  const ServeBenchOptions& options_;
  Scheduler scheduler_;
  Clock::time_point begin_;
  double step_begin_ = 0;
  std::size_t next_ = 0;
  std::unordered_map<RequestId, std::size_t> index_;
  std::vector<double> last_token_;
  std::vector<RequestId> cancels_;
  std::int64_t tokens_ = 0;
  std::int64_t resident_ = 0;
  std::int64_t ended_ = 0;
  ServeBenchResult result_;
};

}  // namespace

Result<ServeBenchResult> BenchServe(Engine& engine, const ServeBenchOptions& options) {
  return Player(engine, options).Play();
}

ServeSummary Summarise(const ServeBenchOptions& options, const ServeBenchResult& result) {
  ServeSummary s;
  for (std::size_t i = 0; i < result.requests.size(); ++i) {
    const ServedRequest& r = result.requests[i];
    const LoadRequest& load = options.load[i];
    s.output_tokens += r.tokens;
    if (r.admitted) s.prompt_tokens += load.prompt_tokens;
    s.cached_tokens += r.cached_tokens;
    r.finish == FinishReason::kCancelled ? ++s.cancelled : ++s.finished;
    if (!r.first_token) continue;
    s.first_token.push_back(*r.first_token - r.arrival);
    (r.cached_tokens > 0 ? s.hit_first_token : s.miss_first_token).push_back(*r.first_token - *r.admitted);
    if (r.cached_tokens > 0) s.hit_rows += load.prompt_tokens - r.cached_tokens;
    if (r.finish == FinishReason::kCancelled) continue;
    const double mean = r.tokens > 1 ? (r.end - *r.first_token) / static_cast<double>(r.tokens - 1) : 0;
    if (s.first_token.back() <= options.first_token_limit && mean <= options.token_limit) ++s.good;
  }
  return s;
}

}  // namespace mla::bench
