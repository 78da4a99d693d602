// Work that belongs to nodes: who draws what, on machines that are only simulated.
#include "base/parallel.h"

#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/nodes.h"

namespace mla::testing {
namespace {

using ::testing::ElementsAre;

// Gives task i to worker turns[i mod size], one after another.
class Scripted final : public Executor {
 public:
  Scripted(std::vector<int> node_of, std::vector<int> turns) : node_of_(std::move(node_of)), turns_(std::move(turns)) {}
  int workers() const override { return static_cast<int>(node_of_.size()); }
  int nodes() const override { return *std::max_element(node_of_.begin(), node_of_.end()) + 1; }
  int node_of(int worker) const override { return node_of_[static_cast<std::size_t>(worker)]; }
  void Run(std::int64_t tasks, TaskFn fn, void* context) override {
    for (std::int64_t task = 0; task < tasks; ++task) {
      fn(context, task, turns_[static_cast<std::size_t>(task) % turns_.size()]);
    }
  }

 private:
  std::vector<int> node_of_;
  std::vector<int> turns_;
};

struct Drawn {
  int node;
  std::int64_t index;
  int worker;
  bool operator==(const Drawn&) const = default;
};

std::vector<Drawn> Draw(Executor& executor, const std::vector<std::int64_t>& counts) {
  std::vector<Drawn> drawn;
  ParallelForPlaced(executor, counts, [&](int node, std::int64_t index, int worker) {
    drawn.push_back({node, index, worker});
  });
  return drawn;
}

TEST(NodeShares, FollowTheWorkers) {
  Scripted executor({0, 0, 0, 1, 2, 2}, {0});
  const NodeShares shares(executor);
  EXPECT_EQ(shares.nodes(), 3);
  EXPECT_EQ(shares.Begin(600, 0), 0);
  EXPECT_EQ(shares.Begin(600, 1), 300);
  EXPECT_EQ(shares.Begin(600, 2), 400);
  EXPECT_EQ(shares.Begin(600, 3), 600);
  // At multiples of the grain, and within the total.
  EXPECT_EQ(shares.Begin(601, 1, 8), 304);
  EXPECT_EQ(shares.Begin(601, 3, 8), 601);
  EXPECT_EQ(shares.Begin(3, 1, 8), 0);
  EXPECT_EQ(shares.Begin(3, 2, 8), 0);
  EXPECT_EQ(shares.Begin(0, 2), 0);
  const auto pool = MakeThreadPool(3);
  EXPECT_EQ(NodeShares(*pool).Begin(600, 0), 0);
  EXPECT_EQ(NodeShares(*pool).Begin(600, 1), 600);
}

TEST(ParallelForPlaced, AWorkerDrawsItsOwnNodesTasksInOrder) {
  Scripted executor({0, 1}, {0, 1});
  EXPECT_THAT(Draw(executor, {2, 3}), ElementsAre(Drawn{0, 0, 0}, Drawn{1, 0, 1}, Drawn{0, 1, 0}, Drawn{1, 1, 1},
                                                  Drawn{1, 2, 0}));  // the last is helped with
}

TEST(ParallelForPlaced, WhatALateNodeLeavesIsDrawnByTheOthers) {
  Scripted late({0, 1, 2}, {1});  // workers 0 and 2 never come
  EXPECT_THAT(Draw(late, {1, 2, 1}), ElementsAre(Drawn{1, 0, 1}, Drawn{1, 1, 1}, Drawn{2, 0, 1}, Drawn{0, 0, 1}));
  Scripted alone({0}, {0});
  EXPECT_THAT(Draw(alone, {2}), ElementsAre(Drawn{0, 0, 0}, Drawn{0, 1, 0}));
  EXPECT_THAT(Draw(late, {0, 0, 0}), ElementsAre());
  EXPECT_THAT(Draw(late, {0, 0, 1}), ElementsAre(Drawn{2, 0, 1}));
}

TEST(ParallelForPlaced, TooLittleToShareIsTheCallersAlone) {
  Scripted executor({0, 1}, {1});
  const auto draw = [&](double work) {
    std::vector<Drawn> drawn;
    ParallelForPlacedWork(executor, std::vector<std::int64_t>{1, 1}, work,
                          [&](int node, std::int64_t index, int worker) {
                            drawn.push_back({node, index, worker});
                          });
    return drawn;
  };
  EXPECT_THAT(draw(kSerialWork - 1), ElementsAre(Drawn{0, 0, 0}, Drawn{1, 0, 0}));
  EXPECT_THAT(draw(kSerialWork), ElementsAre(Drawn{1, 0, 1}, Drawn{0, 0, 1}));
}

TEST(ParallelForPlaced, RunsEveryTaskOnceOnRealThreads) {
  for (const int nodes : {1, 2, 3}) {
    for (const int threads : {1, 2, 3, 8}) {
      NodesExecutor executor(threads, nodes);
      for (int region = 0; region < 30; ++region) {
        std::vector<std::int64_t> counts;
        std::vector<std::vector<std::atomic<int>>> runs;
        for (int node = 0; node < executor.nodes(); ++node) {
          counts.push_back((region * 7 + node * 5) % 23);
          runs.emplace_back(static_cast<std::size_t>(counts.back()));
        }
        ParallelForPlaced(executor, counts, [&](int node, std::int64_t index, int /*worker*/) {
          ++runs[static_cast<std::size_t>(node)][static_cast<std::size_t>(index)];
        });
        for (const auto& of_node : runs) {
          for (const auto& count : of_node) ASSERT_EQ(count, 1);
        }
      }
    }
  }
}

// As long as a node has tasks left, its workers draw no others, whatever the timing.
TEST(ParallelForPlaced, NobodyHelpsWhileItsOwnNodeHasWork) {
  NodesExecutor executor(4, 2);
  for (int region = 0; region < 30; ++region) {
    const std::vector<std::int64_t> counts = {40, 60};
    std::atomic<std::int64_t> begun[2] = {0, 0};
    std::atomic<int> bad{0};
    ParallelForPlaced(executor, counts, [&](int node, std::int64_t index, int worker) {
      const int home = executor.node_of(worker);
      // A helper came after the last task of its own node was drawn, so that at most its workers' last ones are yet to
      // be counted here.
      if (home != node && begun[home] + executor.workers() < counts[static_cast<std::size_t>(home)]) ++bad;
      ++begun[node];
      if (index % 7 == 0) std::this_thread::yield();
    });
    ASSERT_EQ(bad, 0);
  }
}

TEST(NumaPool, SpreadsItsWorkersAndGivesTheCallerItsProcessorsBack) {
  const std::vector<int> before = AllowedCpus();
  {
    // Two nodes that share this machine's processors: what is pinned is pinned to what there is.
    const auto pool = MakeThreadPool(5, {{3, before}, {8, {}}, {7, before}});
    EXPECT_EQ(pool->workers(), 5);
    ASSERT_EQ(pool->nodes(), 2);
    EXPECT_EQ(pool->system_node(0), 3);
    EXPECT_EQ(pool->system_node(1), 7);
    std::vector<int> nodes;
    for (int worker = 0; worker < 5; ++worker) nodes.push_back(pool->node_of(worker));
    EXPECT_THAT(nodes, ElementsAre(0, 0, 0, 1, 1));
    std::atomic<int> runs{0};
    ParallelFor(*pool, 1000, [&](std::int64_t, int) { ++runs; });
    EXPECT_EQ(runs, 1000);
  }
  EXPECT_EQ(AllowedCpus(), before);
  if (before.size() < 2) GTEST_SKIP() << "one processor: nothing to pin apart";
  {
    const auto pool = MakeThreadPool(2, {{0, {before[0]}}, {1, {before[1]}}});
    std::atomic<int> inside{0};
    std::vector<std::vector<int>> cpus(2);
    ParallelFor(*pool, 2, [&](std::int64_t, int worker) {
      cpus[static_cast<std::size_t>(worker)] = AllowedCpus();
      ++inside;
      while (inside < 2) std::this_thread::yield();  // both workers take part
    });
    EXPECT_THAT(cpus[0], ElementsAre(before[0]));
    EXPECT_THAT(cpus[1], ElementsAre(before[1]));
  }
  EXPECT_EQ(AllowedCpus(), before);
}

TEST(NumaPool, OfOneNodePinsNothing) {
  const std::vector<int> before = AllowedCpus();
  for (const std::vector<NumaNode>& nodes :
       {std::vector<NumaNode>{}, {{0, {before[0]}}}, {{0, {before[0]}}, {1, {}}}}) {
    const auto pool = MakeThreadPool(2, nodes);
    EXPECT_EQ(pool->nodes(), 1);
    EXPECT_EQ(pool->node_of(1), 0);
    EXPECT_EQ(pool->system_node(0), -1);
    EXPECT_EQ(AllowedCpus(), before);
  }
}

}  // namespace
}  // namespace mla::testing
