// A load played to an engine's scheduler in real time, and what its clients would have seen.
#ifndef MLA_BENCH_SERVE_BENCH_H_
#define MLA_BENCH_SERVE_BENCH_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "bench/serve_load.h"
#include "mla/engine.h"
#include "mla/result.h"
#include "mla/scheduler.h"

namespace mla::bench {

struct ServeBenchOptions {
  std::vector<LoadRequest> load;
  std::int64_t vocab_size = 0;
  std::uint64_t seed = 0;
  // What a request must keep to count as good: seconds to its first token, and, in the mean, from a token to the next.
  double first_token_limit = 1;
  double token_limit = 0.1;
  std::function<void(std::int64_t ended, std::int64_t all)> progress;  // may be empty
};

// A request as its client saw it. Seconds after the beginning of the run; times of what did not happen are empty.
struct ServedRequest {
  double arrival = 0;
  std::optional<double> admitted;  // the beginning of the step that took it from the queue
  std::optional<double> first_token;
  double end = 0;
  std::int64_t tokens = 0;  // of output
  std::int64_t cached_tokens = 0;
  FinishReason finish = FinishReason::kNone;
};

// Steps of one kind, added up.
struct StepTimes {
  std::int64_t steps = 0;
  double seconds = 0;  // sampling and the scheduler's work included
  double absorbed_seconds = 0;
  double mha_seconds = 0;
};

// The state after a step, at most every hundredth of a second.
struct ServeMoment {
  double seconds = 0;
  std::int64_t tokens = 0;  // of output, so far
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t used_pages = 0;  // that sequences hold
};

struct ServeBenchResult {
  double seconds = 0;
  std::vector<ServedRequest> requests;  // as the load has them
  std::vector<double> token_gaps;       // seconds from a token to the next of one request: tokens of one step have none
  StepTimes prompt_steps;               // with rows of prompts among others
  StepTimes decode_steps;               // without
  std::vector<ServeMoment> moments;
  std::int64_t most_running = 0;  // sequences
  std::int64_t most_used_pages = 0;
  std::int64_t most_resident_tokens = 0;  // positions held by running sequences, shared ones once for each
  EngineStats engine;                     // of this run
  SchedulerStats scheduler;
};

// Prompts of random ids, greedy output whatever ends a text. A request whose time has come is submitted between steps;
// where nothing runs, the thread sleeps until the next. Fails as Scheduler::Submit does, and where logits are not
// finite. Aborts where pages were lost (Engine::CheckPages).
Result<ServeBenchResult> BenchServe(Engine& engine, const ServeBenchOptions& options);

// Of a finished run.
struct ServeSummary {
  std::int64_t finished = 0;  // neither cancelled nor failed
  std::int64_t cancelled = 0;
  std::int64_t prompt_tokens = 0;  // of admitted requests
  std::int64_t cached_tokens = 0;
  std::int64_t output_tokens = 0;
  std::int64_t good = 0;
  std::vector<double> first_token;       // seconds from arrival, of those that had one
  std::vector<double> hit_first_token;   // seconds from admission, of those that found rows
  std::vector<double> miss_first_token;  // ... and of those that did not
  std::int64_t hit_rows = 0;             // prompt positions that hits had to run
};
ServeSummary Summarise(const ServeBenchOptions& options, const ServeBenchResult& result);

}  // namespace mla::bench

#endif  // MLA_BENCH_SERVE_BENCH_H_
