// When work is too small to share.
#ifndef MLA_BASE_PARALLEL_H_
#define MLA_BASE_PARALLEL_H_

#include <cstdint>

#include "mla/executor.h"

namespace mla {

// Multiply-adds below which the calling thread does a region alone: about 5 us of one core's products, where waking
// others costs 1 us while they spin and 40 us or more once they sleep.
inline constexpr double kSerialWork = 1 << 18;

// ParallelFor, or a plain loop as worker 0 where all tasks together are `work` multiply-adds, too few to share. No
// result depends on which.
template <class F>
void ParallelForWork(Executor& executor, std::int64_t tasks, double work, F&& f) {
  if (work >= kSerialWork) {
    ParallelFor(executor, tasks, f);
    return;
  }
  for (std::int64_t task = 0; task < tasks; ++task) f(task, 0);
}

}  // namespace mla

#endif  // MLA_BASE_PARALLEL_H_
