// The thread that owns a scheduler: requests go in from any thread, what steps did comes out in batches.
#ifndef MLA_SERVER_ENGINE_LOOP_H_
#define MLA_SERVER_ENGINE_LOOP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mla/engine.h"
#include "mla/scheduler.h"

namespace mla::server {

using Ticket = std::uint64_t;  // of a request, given before the scheduler has seen it

struct LoopEvent {
  enum class Kind : std::uint8_t { kAccepted, kRefused, kFull, kAdmitted, kToken, kFinished };
  Kind kind = Kind::kToken;
  Ticket ticket = 0;
  std::int64_t sample = 0;
  std::int32_t id = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;
  FinishReason finish = FinishReason::kNone;
  std::vector<float> prompt_logprobs;
  std::vector<TokenLogprob> top_of_prompt;
  std::int64_t cached_tokens = 0;
  std::string message;  // kRefused
};

// How things stood after the last step.
struct LoopSnapshot {
  SchedulerStats scheduler;
  EngineStats engine;
  PageUse pages;
  double step_seconds = 0;  // of the last step
  std::string forms;        // of the last steps, newest last: a(bsorbed), m(ha) or b(oth), at most kFormsKept
  static constexpr std::size_t kFormsKept = 96;
};

// Seconds of a step; 0 where the engine ran none, or no row of that form.
struct StepSeconds {
  double step = 0;
  double mha_attention = 0;
  double absorbed_attention = 0;
};

class EngineLoop {
 public:
  // Called on the loop's thread, after each step and where there is something to tell; does not throw.
  using Deliver = std::function<void(std::vector<LoopEvent> events, const StepSeconds& seconds)>;

  // `engine` outlives the loop, and is the loop's until it ends.
  EngineLoop(Engine& engine, std::int64_t max_waiting, Deliver deliver);
  // Ends the thread after the step at hand.
  ~EngineLoop();

  // Any thread. `seconds`: until it ends with kDeadline; 0: never.
  void Submit(Ticket ticket, ScheduledRequest request, double seconds);
  // Nothing happens where it has ended. Its pages are free before the next step.
  void Cancel(Ticket ticket);
  LoopSnapshot snapshot() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mla::server

#endif  // MLA_SERVER_ENGINE_LOOP_H_
