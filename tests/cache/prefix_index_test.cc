// The prefix index against a plain list of everything that was listed.
#include "mla/prefix_index.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace mla {
namespace {

using Ids = std::vector<std::int32_t>;
using Labels = std::vector<PrefixIndex::Label>;

struct Found {
  std::int64_t tokens = 0;
  Ids pages;
  Labels labels;
};

Found MatchIn(PrefixIndex* index, const Ids& ids, const Labels& wanted = {}) {
  Found found;
  found.tokens = index->Match(ids, wanted, &found.pages, &found.labels);
  return found;
}

Ids Count(std::int32_t first, std::size_t size) {
  Ids ids(size);
  for (std::size_t i = 0; i < size; ++i) ids[i] = first + static_cast<std::int32_t>(i);
  return ids;
}

TEST(PrefixIndex, FindsWholePagesAndThePartOfOne) {
  PagePool pool(4);
  PrefixIndex index(&pool, 16);
  const std::int32_t a = pool.Take();
  const std::int32_t b = pool.Take();
  const Ids first = Count(0, 16);
  const Ids second = Count(16, 10);
  EXPECT_EQ(index.Insert(PrefixIndex::kRoot, a, first, Labels(16, 0)), a);
  EXPECT_EQ(index.Insert(a, b, second, Labels(10, 1)), b);
  Ids ids = Count(0, 40);
  Found found = MatchIn(&index, ids);
  EXPECT_EQ(found.tokens, 26);
  EXPECT_EQ(found.pages, (Ids{a, b}));
  EXPECT_EQ(std::count(found.labels.begin(), found.labels.end(), 1), 10);
  ids[18] = 99;
  EXPECT_EQ(MatchIn(&index, ids).tokens, 18);
  EXPECT_EQ(MatchIn(&index, Count(0, 12)).tokens, 12) << "the head of a page";
  EXPECT_EQ(MatchIn(&index, Count(0, 7)).tokens, 0) << "too few";
  EXPECT_EQ(MatchIn(&index, Count(1, 20)).tokens, 0);
  // Labels that are fixed must agree, token by token.
  Labels wanted(26, 0);
  EXPECT_EQ(MatchIn(&index, Count(0, 26), wanted).tokens, 16);
  std::fill(wanted.begin() + 16, wanted.begin() + 20, PrefixIndex::Label{1});
  EXPECT_EQ(MatchIn(&index, Count(0, 26), wanted).tokens, 20);
}

TEST(PrefixIndex, ListsEachPrefixOnce) {
  PagePool pool(4);
  PrefixIndex index(&pool, 16);
  const std::int32_t a = pool.Take();
  const std::int32_t b = pool.Take();
  const std::int32_t c = pool.Take();
  EXPECT_EQ(index.Insert(PrefixIndex::kRoot, a, Count(0, 10), Labels(10, 0)), a);
  EXPECT_EQ(index.Insert(PrefixIndex::kRoot, b, Count(0, 9), Labels(9, 0)), -1) << "begins a listed one";
  EXPECT_EQ(index.Insert(PrefixIndex::kRoot, b, Count(0, 10), Labels(10, 0)), a) << "the same rows";
  EXPECT_EQ(index.Insert(PrefixIndex::kRoot, b, Count(0, 10), Labels(10, 1)), b) << "rows made otherwise";
  EXPECT_EQ(index.Insert(PrefixIndex::kRoot, c, Count(0, 16), Labels(16, 0)), c);
  EXPECT_FALSE(index.Contains(a)) << "its tokens begin a longer page";
  EXPECT_EQ(index.pages(), 2);
}

TEST(PrefixIndex, EvictsIdleLeavesLeastRecentlyUsedFirst) {
  PagePool pool(4);
  PrefixIndex index(&pool, 8);
  std::vector<std::int32_t> page(4);
  for (std::int32_t& p : page) p = pool.Take();
  index.Insert(PrefixIndex::kRoot, page[0], Count(0, 8), Labels(8, 0));
  index.Insert(page[0], page[1], Count(8, 8), Labels(8, 0));
  index.Insert(PrefixIndex::kRoot, page[2], Count(50, 8), Labels(8, 0));
  index.Insert(PrefixIndex::kRoot, page[3], Count(70, 8), Labels(8, 0));
  EXPECT_FALSE(index.Evict()) << "all are held";
  for (const std::int32_t p : {page[0], page[1], page[2]}) pool.Release(p);
  EXPECT_EQ(pool.idle_pages(), 3);
  MatchIn(&index, Count(0, 16));
  EXPECT_TRUE(index.Evict());
  EXPECT_FALSE(index.Contains(page[2])) << "used longest ago";
  EXPECT_TRUE(index.Evict());
  EXPECT_FALSE(index.Contains(page[1])) << "the leaf before its parent";
  EXPECT_TRUE(index.Evict());
  EXPECT_FALSE(index.Evict()) << "the last one is held";
  EXPECT_EQ(pool.free_pages(), 3);
}

// Random listing, matching and eviction. The oracle knows for each listed page the whole path to it.
TEST(PrefixIndex, AgreesWithAPlainList) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed);
    const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(rng() % n); };
    const std::int64_t page_tokens = std::vector<std::int64_t>{1, 3, 8, 20}[seed % 4];
    PagePool pool(24);
    PrefixIndex index(&pool, page_tokens);
    std::map<std::int32_t, std::pair<Ids, Labels>> paths;  // of listed pages
    for (int operation = 0; operation < 300; ++operation) {
      Ids ids;
      Labels labels;
      for (std::int64_t i = below(60); i >= 0; --i) {
        ids.push_back(static_cast<std::int32_t>(below(8) == 0 ? 1 : 0));
        labels.push_back(static_cast<PrefixIndex::Label>(below(16) == 0 ? 1 : 0));
      }
      const Found found = MatchIn(&index, ids, below(2) == 0 ? Labels{} : labels);
      std::int64_t longest = 0;
      for (const auto& [page, path] : paths) {
        const auto common = std::mismatch(ids.begin(), ids.end(), path.first.begin(), path.first.end()).first;
        longest = std::max<std::int64_t>(longest, common - ids.begin());
      }
      ASSERT_LE(found.tokens, longest);
      if (found.tokens > 0) {
        const auto& [path_ids, path_labels] = paths.at(found.pages.back());
        ASSERT_TRUE(std::equal(ids.begin(), ids.begin() + found.tokens, path_ids.begin()));
        ASSERT_TRUE(std::equal(found.labels.begin(), found.labels.end(), path_labels.begin()));
      }
      // A page after the whole pages that were found.
      const std::int64_t whole = found.tokens / page_tokens;
      const std::int64_t begin = whole * page_tokens;
      const std::int64_t size = std::min<std::int64_t>(page_tokens, static_cast<std::int64_t>(ids.size()) - begin);
      std::int32_t page = pool.Take();
      if (page < 0 && index.Evict()) {
        std::erase_if(paths, [&](const auto& entry) { return !index.Contains(entry.first); });
        page = pool.Take();
      }
      const std::int32_t parent = whole > 0 ? found.pages[static_cast<std::size_t>(whole - 1)] : PrefixIndex::kRoot;
      const bool parent_there = parent == PrefixIndex::kRoot || index.Contains(parent);
      if (page >= 0 && size > 0 && parent_there) {
        Ids path(ids.begin(), ids.begin() + begin + size);
        Labels path_labels = found.labels;
        path_labels.resize(static_cast<std::size_t>(begin));
        path_labels.insert(path_labels.end(), labels.begin() + begin, labels.begin() + begin + size);
        const auto tail = std::span(path).last(static_cast<std::size_t>(size));
        const auto tail_labels = std::span(path_labels).last(static_cast<std::size_t>(size));
        if (index.Insert(parent, page, tail, tail_labels) == page) paths[page] = {path, path_labels};
        std::erase_if(paths, [&](const auto& entry) { return !index.Contains(entry.first); });
        ASSERT_EQ(index.pages(), static_cast<std::int64_t>(paths.size()));
      }
      if (page >= 0) pool.Release(page);
      ASSERT_EQ(pool.free_pages() + pool.idle_pages(), pool.pages());
      ASSERT_EQ(pool.idle_pages(), index.pages());
    }
    while (index.Evict()) {
    }
    EXPECT_EQ(pool.free_pages(), pool.pages());
  }
}

}  // namespace
}  // namespace mla
