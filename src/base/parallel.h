// How work is shared out: when it is too small to share, and who draws which part first where memory has places.
#ifndef MLA_BASE_PARALLEL_H_
#define MLA_BASE_PARALLEL_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "mla/executor.h"

namespace mla {

// Multiply-adds below which the calling thread does a region alone: about 5 us of one core's products, where waking
// others costs 1 us while they spin and 40 us or more once they sleep.
inline constexpr double kSerialWork = 1 << 18;

// What rounding and moving an element counts as, in multiply-adds.
inline constexpr double kWorkOfElement = 8;

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

// How much of everything is each node's: in proportion to its workers, one contiguous part after another. The same for
// whoever lays memory out and whoever reads it.
class NodeShares {
 public:
  explicit NodeShares(const Executor& executor) : nodes_(executor.nodes()), workers_(executor.workers()) {
    MLA_CHECK(nodes_ >= 1 && nodes_ <= kMaxNodes);
    if (nodes_ == 1) {
      before_[1] = workers_;
      return;
    }
    for (int worker = 0; worker < workers_; ++worker) ++before_[static_cast<std::size_t>(executor.node_of(worker)) + 1];
    for (std::size_t node = 0; node < static_cast<std::size_t>(nodes_); ++node) before_[node + 1] += before_[node];
  }

  int nodes() const { return nodes_; }
  // Where a node's part of `total` begins, at a multiple of `grain`; Begin(total, nodes()) is total.
  std::int64_t Begin(std::int64_t total, int node, std::int64_t grain = 1) const {
    if (node == 0) return 0;
    if (node == nodes_) return total;
    const std::int64_t grains = (total + grain - 1) / grain;
    return std::min(total, grains * before_[static_cast<std::size_t>(node)] / workers_ * grain);
  }

 private:
  int nodes_;
  std::int64_t workers_;
  std::array<std::int64_t, kMaxNodes + 1> before_ = {};  // workers of all earlier nodes
};

// Calls f(node, index, worker) exactly once for each index in [0, counts[node]) of each of the executor's nodes. A
// worker draws its own node's tasks first, in order; when there are none left, those of the nodes after it. Allocates
// nothing.
template <class F>
void ParallelForPlaced(Executor& executor, std::span<const std::int64_t> counts, F&& f) {
  const int nodes = executor.nodes();
  MLA_CHECK_EQ(static_cast<int>(counts.size()), nodes);
  if (nodes == 1) {
    ParallelFor(executor, counts[0], [&](std::int64_t task, int worker) { f(0, task, worker); });
    return;
  }
  struct alignas(64) Counter {
    std::atomic<std::int64_t> next{0};
  };
  std::array<Counter, kMaxNodes> drawn;
  std::int64_t tasks = 0;
  for (const std::int64_t count : counts) tasks += count;
  // What the executor gives is a right to draw one task, whichever. As many rights as tasks: a right finds a task.
  ParallelFor(executor, tasks, [&](std::int64_t /*right*/, int worker) {
    const int home = executor.node_of(worker);
    for (int i = 0; i < nodes; ++i) {
      const int node = (home + i) % nodes;
      const auto at = static_cast<std::size_t>(node);
      if (drawn[at].next.load(std::memory_order_relaxed) >= counts[at]) continue;
      const std::int64_t index = drawn[at].next.fetch_add(1, std::memory_order_relaxed);
      if (index >= counts[at]) continue;
      f(node, index, worker);
      return;
    }
  });
}

// ParallelForPlaced, or a plain loop as worker 0 where all tasks together are `work` multiply-adds, too few to share.
template <class F>
void ParallelForPlacedWork(Executor& executor, std::span<const std::int64_t> counts, double work, F&& f) {
  if (work >= kSerialWork) {
    ParallelForPlaced(executor, counts, f);
    return;
  }
  for (int node = 0; node < static_cast<int>(counts.size()); ++node) {
    for (std::int64_t index = 0; index < counts[static_cast<std::size_t>(node)]; ++index) f(node, index, 0);
  }
}

}  // namespace mla

#endif  // MLA_BASE_PARALLEL_H_
