// Tasks that allocate, on an executor, whose tasks don't throw.
#ifndef MLA_REFERENCE_TASKS_H_
#define MLA_REFERENCE_TASKS_H_

#include <atomic>
#include <cstdint>
#include <new>

#include "mla/executor.h"

namespace mla::reference {

// work(task) for each task in [0, tasks). Throws std::bad_alloc afterwards where one did.
template <class Work>
void ForTasks(Executor& executor, std::int64_t tasks, const Work& work) {
  std::atomic<bool> no_memory = false;
  ParallelFor(executor, tasks, [&](std::int64_t task, int /*worker*/) {
    try {
      work(task);
    } catch (const std::bad_alloc&) {
      no_memory = true;
    }
  });
  if (no_memory) throw std::bad_alloc();
}

}  // namespace mla::reference

#endif  // MLA_REFERENCE_TASKS_H_
