// Where parallel work runs. The library brings a thread pool (MakeThreadPool); a caller with a pool of its own
// implements Executor over it instead.
#ifndef MLA_EXECUTOR_H_
#define MLA_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace mla {

// Most nodes that an executor may tell apart.
inline constexpr int kMaxNodes = 64;

class Executor {
 public:
  using TaskFn = void (*)(void* context, std::int64_t task, int worker);

  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor() = default;

  // How many tasks may run at the same time, at least 1. Constant over the executor's life.
  virtual int workers() const = 0;

  // Calls fn(context, task, worker) exactly once for each task in [0, tasks), in any order, and returns when all have
  // returned. `worker` is in [0, workers()), and no two tasks that run at the same time see the same one: it indexes
  // scratch memory. What tasks wrote is visible to the caller afterwards. fn does not throw and does not call Run.
  // One Run at a time on one executor. Results of this library never depend on workers() or on who ran which task.
  virtual void Run(std::int64_t tasks, TaskFn fn, void* context) = 0;

  // Where memory is not equally near to all workers (NUMA): groups of workers that share a near one. Weights are laid
  // near the workers that draw their products first; no result depends on it. Constant over the executor's life; an
  // executor that says nothing has one node.
  virtual int nodes() const { return 1; }  // in [1, kMaxNodes]
  // In [0, nodes()).
  virtual int node_of(int /*worker*/) const { return 0; }
  // The system's number of a node's memory; -1: unknown, and the system is not asked for it.
  virtual int system_node(int /*node*/) const { return -1; }
};

// Calls f(task, worker) for each task in [0, tasks) on the executor. f is not copied and nothing is allocated.
template <class F>
void ParallelFor(Executor& executor, std::int64_t tasks, F&& f) {
  using Fn = std::remove_reference_t<F>;
  executor.Run(
      tasks, [](void* context, std::int64_t task, int worker) { (*static_cast<Fn*>(context))(task, worker); },
      const_cast<void*>(
          static_cast<const void*>(&f)));  // NOLINT(cppcoreguidelines-pro-type-const-cast): Run's C-style context
}

// A pool of `threads` workers, the calling thread being one of them (so 1 starts no thread). Workers spin briefly for
// the next Run, then sleep; an idle pool uses no CPU. threads is at least 1; where the system refuses to start so many,
// the pool has fewer (workers() says how many).
std::unique_ptr<Executor> MakeThreadPool(int threads);

// A node of the machine: its number, and the processors beside its memory.
struct NumaNode {
  int id = 0;
  std::vector<int> cpus;
};

// As above, with the workers spread over `nodes` in proportion to their processors, and each kept to its node's: the
// calling thread too, from here until the pool ends. With fewer than two nodes that have processors, as above.
std::unique_ptr<Executor> MakeThreadPool(int threads, const std::vector<NumaNode>& nodes);

}  // namespace mla

#endif  // MLA_EXECUTOR_H_
