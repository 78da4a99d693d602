// The meter: it runs what it is given as the executor behind it would, and its times are of the phase at hand alone.
#include "base/meter.h"

#include <atomic>
#include <vector>

#include <gtest/gtest.h>

#include "testing/nodes.h"

namespace mla::testing {
namespace {

void Work() {
  const auto begin = Clock::now();
  while (Since(begin) < 1e-4) {
  }
}

TEST(Meter, RunsEachTaskOnceWithItsWorker) {
  const std::unique_ptr<Executor> pool = MakeThreadPool(3);
  Meter meter(3);
  meter.Watch(pool.get());
  EXPECT_EQ(meter.workers(), pool->workers());
  EXPECT_EQ(meter.nodes(), pool->nodes());
  EXPECT_EQ(meter.node_of(0), pool->node_of(0));
  EXPECT_EQ(meter.system_node(0), pool->system_node(0));
  std::vector<std::atomic<int>> times(1000);
  std::atomic<int> strangers{0};
  ParallelFor(meter, 1000, [&](std::int64_t task, int worker) {
    ++times[static_cast<std::size_t>(task)];
    if (worker < 0 || worker >= pool->workers()) ++strangers;
  });
  for (const std::atomic<int>& n : times) EXPECT_EQ(n.load(), 1);
  EXPECT_EQ(strangers.load(), 0);
}

// No worker is busy for longer than the phase takes, and regions and what lies between them are both in it.
TEST(Meter, TimesOfAPhaseFitTogether) {
  const std::unique_ptr<Executor> pool = MakeThreadPool(2);
  Meter meter(2);
  meter.Watch(pool.get());
  PhaseTime first;
  PhaseTime second;
  ParallelFor(meter, 10, [](std::int64_t, int) { Work(); });  // nobody's
  for (int i = 0; i < 2; ++i) {
    const PhaseScope scope(&meter, &first);
    Work();
    ParallelFor(meter, 10, [](std::int64_t, int) { Work(); });
  }
  {
    const PhaseScope scope(&meter, &second);
    Work();
  }
  EXPECT_EQ(first.times, 2);
  EXPECT_EQ(second.times, 1);
  // Eleven pieces of work of 100 us each time, by two workers.
  EXPECT_GE(first.busy_seconds, 2 * 11 * 1e-4);
  EXPECT_GE(first.busy_largest, first.busy_seconds / 2);
  EXPECT_GE(first.seconds, first.busy_largest * (1 - 1e-9));
  // The phase before has left nothing behind.
  EXPECT_DOUBLE_EQ(second.busy_largest, second.seconds);
  EXPECT_DOUBLE_EQ(second.busy_seconds, second.seconds);
}

TEST(Meter, NoneMeasuresNothing) {
  PhaseTime time;
  { const PhaseScope scope(nullptr, &time); }
  EXPECT_EQ(time.times, 0);
  EXPECT_EQ(time.seconds, 0);
}

TEST(MeterDeathTest, WatchesNoMoreWorkersThanItHasRoomFor) {
  const std::unique_ptr<Executor> pool = MakeThreadPool(2);
  Meter meter(1);
  EXPECT_DEATH(meter.Watch(pool.get()), "workers");
}

}  // namespace
}  // namespace mla::testing
