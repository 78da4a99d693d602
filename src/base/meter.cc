#include "base/meter.h"

#include <algorithm>

#include "base/check.h"

namespace mla {

void Meter::Watch(Executor* executor) {
  MLA_CHECK_LE(executor->workers(), static_cast<int>(busy_.size()));
  executor_ = executor;
}

void Meter::Run(std::int64_t tasks, TaskFn fn, void* context) {
  struct Region {
    TaskFn fn;
    void* context;
    Busy* busy;
  };
  Region region{fn, context, busy_.data()};
  const auto begin = Clock::now();
  executor_->Run(
      tasks,
      [](void* of, std::int64_t task, int worker) {
        const auto& r = *static_cast<const Region*>(of);
        const auto task_begin = Clock::now();
        r.fn(r.context, task, worker);
        r.busy[worker].seconds += Since(task_begin);
      },
      &region);
  in_regions_ += Since(begin);
}

void Meter::Begin() {
  std::fill(busy_.begin(), busy_.end(), Busy());
  in_regions_ = 0;
  begin_ = Clock::now();
}

void Meter::End(PhaseTime* to) {
  PhaseTime time;
  time.seconds = Since(begin_);
  time.times = 1;
  busy_.front().seconds += time.seconds - in_regions_;
  for (const Busy& busy : busy_) {
    time.busy_seconds += busy.seconds;
    time.busy_largest = std::max(time.busy_largest, busy.seconds);
  }
  *to += time;
}

}  // namespace mla
