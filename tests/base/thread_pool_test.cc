#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "mla/executor.h"

namespace mla {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {
 protected:
  std::unique_ptr<Executor> pool_ = MakeThreadPool(GetParam());
};

TEST_P(ThreadPoolTest, SaysHowManyWorkersItHas) { EXPECT_EQ(pool_->workers(), GetParam()); }

TEST_P(ThreadPoolTest, RunsEveryTaskOnceAndItsWritesAreSeen) {
  for (const std::int64_t tasks : {0, 1, 2, 7, 64, 1000, 500000}) {  // many: two workers may want the same one
    std::vector<int> runs(static_cast<std::size_t>(tasks), 0);       // plain: each task has its own, read after Run
    ParallelFor(*pool_, tasks, [&](std::int64_t task, int) { ++runs[static_cast<std::size_t>(task)]; });
    EXPECT_EQ(std::count(runs.begin(), runs.end(), 1), tasks);
  }
}

TEST_P(ThreadPoolTest, NoTwoTasksAtATimeShareAWorkerId) {
  std::vector<std::atomic<bool>> busy(static_cast<std::size_t>(GetParam()));
  std::vector<int> scratch(static_cast<std::size_t>(GetParam()), 0);  // plain: safe only if ids are not shared
  std::atomic<int> bad{0};
  ParallelFor(*pool_, 2000, [&](std::int64_t, int worker) {
    if (worker < 0 || worker >= GetParam()) {
      ++bad;
      return;
    }
    const auto w = static_cast<std::size_t>(worker);
    if (busy[w].exchange(true)) ++bad;
    ++scratch[w];
    if (scratch[w] % 16 == 0) std::this_thread::yield();
    busy[w] = false;
  });
  EXPECT_EQ(bad, 0);
  int sum = 0;
  for (const int count : scratch) sum += count;
  EXPECT_EQ(sum, 2000);
}

TEST_P(ThreadPoolTest, ManyShortRegionsBackToBack) {
  std::vector<std::int64_t> last(16, -1);
  for (std::int64_t region = 0; region < 4000; ++region) {
    const std::int64_t tasks = region % 17;
    ParallelFor(*pool_, tasks, [&](std::int64_t task, int) { last[static_cast<std::size_t>(task)] = region; });
    for (std::int64_t task = 0; task < tasks; ++task) ASSERT_EQ(last[static_cast<std::size_t>(task)], region);
  }
}

// Workers fall asleep between regions, at every phase of falling asleep: a wake-up that is lost hangs here.
TEST_P(ThreadPoolTest, RegionsAfterPausesOfEveryLength) {
  std::atomic<int> runs{0};
  constexpr int kRegions = 600;
  for (int region = 0; region < kRegions; ++region) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(region % 150);
    while (std::chrono::steady_clock::now() < until) {
    }
    ParallelFor(*pool_, 3, [&](std::int64_t, int) { runs.fetch_add(1, std::memory_order_relaxed); });
  }
  EXPECT_EQ(runs, 3 * kRegions);
}

// A task that takes long keeps the caller waiting past its spin: it must sleep and be woken.
TEST_P(ThreadPoolTest, WaitsForATaskThatOutlastsTheSpin) {
  for (int region = 0; region < 5; ++region) {
    std::vector<int> done(8, 0);
    ParallelFor(*pool_, 8, [&](std::int64_t task, int) {
      if (task % 3 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      done[static_cast<std::size_t>(task)] = 1;
    });
    EXPECT_EQ(std::count(done.begin(), done.end(), 1), 8);
  }
}

TEST_P(ThreadPoolTest, TakesAFunctorThatCanNeitherBeCopiedNorMoved) {
  struct Counter {
    std::atomic<int> runs{0};
    void operator()(std::int64_t, int) { ++runs; }
  } counter;
  ParallelFor(*pool_, 10, counter);
  EXPECT_EQ(counter.runs, 10);
}

TEST_P(ThreadPoolTest, TwoPoolsTakeTurns) {
  const auto other = MakeThreadPool(GetParam());
  std::int64_t sum = 0;
  for (int region = 0; region < 200; ++region) {
    std::vector<std::int64_t> part(5, 0);
    ParallelFor(region % 2 == 0 ? *pool_ : *other, 5,
                [&](std::int64_t task, int) { part[static_cast<std::size_t>(task)] = task; });
    for (const std::int64_t p : part) sum += p;
  }
  EXPECT_EQ(sum, 200 * 10);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

TEST(ThreadPool, StartsAndStopsAtOnceManyTimes) {
  for (int i = 0; i < 200; ++i) {
    const auto pool = MakeThreadPool(3);
    if (i % 2 == 0) ParallelFor(*pool, 2, [](std::int64_t, int) {});
  }
}

TEST(ThreadPool, MoreThanOneThreadTakesPart) {
  const auto pool = MakeThreadPool(2);
  std::atomic<int> inside{0};
  // Each task waits until the other is inside: with one thread alone this would never end.
  ParallelFor(*pool, 2, [&](std::int64_t, int) {
    ++inside;
    while (inside < 2) std::this_thread::yield();
  });
  EXPECT_EQ(inside, 2);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they map more than any limit
// In a process of its own: room for few of the stacks that 64 threads would need.
void RunWithLittleAddressSpace() {
  std::ifstream in("/proc/self/statm");
  rlim_t pages = 0;
  in >> pages;
  rlimit stack{};
  getrlimit(RLIMIT_STACK, &stack);
  const rlim_t one_stack = std::min<rlim_t>(stack.rlim_cur, rlim_t{8} << 20);
  const rlimit limit = {pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + 20 * one_stack, RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &limit);
  const auto pool = MakeThreadPool(64);
  std::atomic<int> runs{0};
  ParallelFor(*pool, 1000, [&](std::int64_t, int worker) { runs += worker < pool->workers() ? 1 : 0; });
  std::fprintf(stderr, "fewer: %d, runs: %d\n", pool->workers() < 64 ? 1 : 0, runs.load());
  std::_Exit(0);
}

TEST(ThreadPoolDeathTest, MakesDoWithTheThreadsThatTheSystemGives) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(RunWithLittleAddressSpace(), ::testing::ExitedWithCode(0), "fewer: 1, runs: 1000");
}
#endif

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(ThreadPool, AnIdlePoolUsesNoCpu) {
  const auto pool = MakeThreadPool(8);
  std::atomic<int> runs{0};
  ParallelFor(*pool, 100, [&](std::int64_t, int) { ++runs; });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // past the spin, on a busy machine too
  const double before = CpuSeconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  // One worker that kept spinning would use up to 0.3 s, seven more than that; sleepers use nothing.
  EXPECT_LT(CpuSeconds() - before, 0.03);
}

}  // namespace
}  // namespace mla
