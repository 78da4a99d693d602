// Measures phases of a call: an executor that stands before the caller's own and times what each worker does of it. Who
// is not profiled has no meter, reads no clock and meets no other executor.
#ifndef MLA_BASE_METER_H_
#define MLA_BASE_METER_H_

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "mla/executor.h"
#include "mla/profile.h"

namespace mla {

// Runs everything on the executor that it watches, with the same workers and tasks: no result depends on it. Allocates
// nothing after it was made. Not thread-safe, as an executor is not.
class Meter final : public Executor {
 public:
  // For executors of up to so many workers.
  explicit Meter(int workers) : busy_(static_cast<std::size_t>(workers)) {}

  // What runs the work from here on, while it lives.
  void Watch(Executor* executor);

  int workers() const override { return executor_->workers(); }
  void Run(std::int64_t tasks, TaskFn fn, void* context) override;
  int nodes() const override { return executor_->nodes(); }
  int node_of(int worker) const override { return executor_->node_of(worker); }
  int system_node(int node) const override { return executor_->system_node(node); }

 private:
  friend class PhaseScope;
  struct alignas(64) Busy {
    double seconds = 0;
  };
  void Begin();
  void End(PhaseTime* to);

  Executor* executor_ = nullptr;
  std::vector<Busy> busy_;  // of the phase at hand, by worker
  double in_regions_ = 0;   // ... and from the begin to the end of its parallel regions
  Clock::time_point begin_;
};

// From here to the end of its scope is a phase, added to `to`. What runs outside of parallel regions is the first
// worker's. Phases of one meter don't overlap. Without a meter it is nothing.
class PhaseScope {
 public:
  PhaseScope(Meter* meter, PhaseTime* to) : meter_(meter), to_(to) {
    if (meter_ != nullptr) meter_->Begin();
  }
  ~PhaseScope() {
    if (meter_ != nullptr) meter_->End(to_);
  }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Meter* meter_;
  PhaseTime* to_;
};

}  // namespace mla

#endif  // MLA_BASE_METER_H_
