// Many requests over one engine: a queue, continuous batching, preemption, and events as tokens come.
#ifndef MLA_SCHEDULER_H_
#define MLA_SCHEDULER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mla/engine.h"
#include "mla/result.h"

namespace mla {

using RequestId = std::int64_t;

// What a request asks of the scheduler beside what it asks of the engine.
struct ScheduledRequest {
  Request request;
  // Continuations of one prompt, which is run once; sample i draws with request.sampling.sample + i. At most the
  // engine's max_sequences.
  std::int64_t samples = 1;
  // Seconds on the scheduler's clock after which the request ends with kDeadline, wherever it is.
  std::optional<double> deadline;
};

// What a step, or a call between steps, did to one sample of a request. Samples end one by one; a request has ended
// when each of its samples has sent kFinished, which is then its last event.
struct SchedulerEvent {
  enum class Kind : std::uint8_t {
    kAdmitted,  // once a request (sample 0), when it leaves the queue for the first time
    kToken,     // a token of output
    kFinished,  // with the reason
  };
  Kind kind = Kind::kToken;
  RequestId request = 0;
  std::int64_t sample = 0;
  std::int32_t id = 0;                          // kToken
  float logprob = 0;                            // kToken: natural log, of the raw logits
  std::span<const TokenLogprob> top;            // kToken: the request's top_logprobs likeliest, likeliest first
  FinishReason finish = FinishReason::kNone;    // kFinished
  std::span<const float> prompt_logprobs;       // kFinished of sample 0, where asked for
  std::span<const TokenLogprob> top_of_prompt;  // ... [prompt - 1, top_logprobs], row by row
  // kAdmitted: positions whose rows were found in the cache; kFinished: the same, of the last admission.
  std::int64_t cached_tokens = 0;
  Form prompt_form = Form::kAbsorbed;  // kAdmitted
};

struct SchedulerStats {
  std::int64_t submitted = 0;
  std::int64_t finished = 0;  // requests, by whatever reason
  std::int64_t cancelled = 0;
  std::int64_t expired = 0;      // by deadline
  std::int64_t preemptions = 0;  // sequences that gave their pages back and went on later
  std::int64_t waiting = 0;      // now
  std::int64_t running = 0;      // sequences, now
};

// First come, first served. Each step runs one row (and its drafts) of every sequence that has begun its output, then
// prompt rows of the others in the order of arrival, as far as the engine's rows go: a long prompt never starves
// decoding, and the oldest prompt always moves. A request is admitted when the pages of its prompt are to be had; when
// pages run out, the youngest sequence gives its own back and is run again later, each position in its own form, to the
// same bits. Not thread-safe: one caller at a time, which is also the engine's only one.
class Scheduler {
 public:
  struct Options {
    std::int64_t max_waiting = 4096;  // requests in the queue
    std::function<double()> now;      // seconds, never going back; empty: the steady clock
  };

  // `engine` outlives the scheduler, and holds no sequences.
  Scheduler(Engine& engine, Options options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Queues a request. Fails, saying what was expected, where no engine like this could ever run it (Engine::Check).
  // nullopt: the queue is full, a normal answer.
  Result<std::optional<RequestId>> Submit(const ScheduledRequest& request);

  // Ends a request: its pages are free when this returns, and its samples' kFinished (kCancelled) are among the next
  // step's events. Nothing happens where it has ended already.
  void Cancel(RequestId id);

  // Runs one step. False where there was nothing to run and nothing to tell.
  bool Step();
  // Whether a request waits or runs, or the end of one is still to be told.
  bool busy() const;

  // Of the last Step and of calls since the one before; valid until the next call.
  std::span<const SchedulerEvent> events() const;

  SchedulerStats stats() const;
  const Engine& engine() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mla

#endif  // MLA_SCHEDULER_H_
