// Page ids over random traces, against a plain model of who holds what.
#include <map>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "mla/cache.h"

namespace mla {
namespace {

TEST(PagePool, HandsOutEachPageOnceThenNone) {
  PagePool pool(5);
  EXPECT_EQ(pool.pages(), 5);
  EXPECT_EQ(pool.free_pages(), 5);
  std::set<std::int32_t> taken;
  for (int i = 0; i < 5; ++i) {
    const std::int32_t page = pool.Take();
    EXPECT_GE(page, 0);
    EXPECT_LT(page, 5);
    EXPECT_EQ(pool.holders(page), 1);
    taken.insert(page);
  }
  EXPECT_EQ(taken.size(), 5U);
  EXPECT_EQ(pool.Take(), -1);
  EXPECT_EQ(pool.Take(), -1);
  EXPECT_EQ(pool.free_pages(), 0);
  pool.Release(3);
  EXPECT_EQ(pool.Take(), 3);
}

TEST(PagePool, EmptyPool) {
  PagePool pool(0);
  EXPECT_EQ(pool.pages(), 0);
  EXPECT_EQ(pool.Take(), -1);
}

TEST(PagePool, TheLastHolderFrees) {
  PagePool pool(1);
  const std::int32_t page = pool.Take();
  pool.Share(page);
  pool.Share(page);
  EXPECT_EQ(pool.holders(page), 3);
  pool.Release(page);
  pool.Release(page);
  EXPECT_EQ(pool.free_pages(), 0);
  EXPECT_EQ(pool.Take(), -1);
  pool.Release(page);
  EXPECT_EQ(pool.free_pages(), 1);
  EXPECT_EQ(pool.holders(page), 0);
}

TEST(PagePool, RandomTraces) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 rng(seed);
    const std::int64_t pages = 1 + static_cast<std::int64_t>(rng() % 20);
    PagePool pool(pages);
    std::map<std::int32_t, std::int32_t> held;  // page -> holders
    const auto any_held = [&] {
      auto it = held.begin();
      std::advance(it, static_cast<std::ptrdiff_t>(rng() % held.size()));
      return it;
    };
    bool exhausted = false;
    for (int step = 0; step < 2000; ++step) {
      const std::uint32_t choice = rng() % 8;
      if (choice < 3 || held.empty()) {
        const std::int32_t page = pool.Take();
        if (static_cast<std::int64_t>(held.size()) == pages) {
          ASSERT_EQ(page, -1);
          exhausted = true;
        } else {
          ASSERT_TRUE(page >= 0 && page < pages);
          ASSERT_TRUE(held.emplace(page, 1).second) << "page " << page << " was held";
        }
      } else if (choice < 5) {
        const auto it = any_held();
        pool.Share(it->first);
        ++it->second;
      } else {
        const auto it = any_held();
        pool.Release(it->first);
        if (--it->second == 0) held.erase(it);
      }
      ASSERT_EQ(pool.free_pages() + static_cast<std::int64_t>(held.size()), pages);
      for (std::int32_t page = 0; page < pages; ++page) {
        ASSERT_EQ(pool.holders(page), held.count(page) != 0 ? held[page] : 0);
      }
    }
    EXPECT_TRUE(exhausted || pages > 10) << "the trace never ran out of " << pages << " pages";
    while (!held.empty()) {
      const auto it = held.begin();
      for (; it->second > 0; --it->second) pool.Release(it->first);
      held.erase(it);
    }
    EXPECT_EQ(pool.free_pages(), pages);
  }
}

TEST(PagePoolDeathTest, Misuse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  PagePool pool(2);
  EXPECT_DEATH(pool.Release(0), "check failed.*holders");
  EXPECT_DEATH(pool.Share(0), "check failed.*holders");
  EXPECT_DEATH((void)pool.holders(2), "check failed.*page");
  EXPECT_DEATH((void)pool.holders(-1), "check failed.*page");
  EXPECT_DEATH(pool.Release(2), "check failed.*page");
  const std::int32_t page = pool.Take();
  pool.Release(page);
  EXPECT_DEATH(pool.Release(page), "check failed.*holders");
}

}  // namespace
}  // namespace mla
