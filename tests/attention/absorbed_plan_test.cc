// The plan of a step's absorbed rows, over random calls: every tile once, states apart, work balanced.
#include "attention/absorbed_plan.h"

#include <algorithm>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "attention/scratch.h"

namespace mla::testing {
namespace {

using attention::kMaxBlockRows;
using attention::kSegmentKeys;
using attention::Part;
using attention::Pass;
using attention::PassCursor;
using attention::PlanLimits;

struct Case {
  PlanLimits limits;
  std::vector<AttentionSequence> sequences;
};

AttentionSequence Sequence(std::int64_t first_row, std::int64_t rows, std::int64_t keys, Form form = Form::kAbsorbed) {
  AttentionSequence s;
  s.first_row = first_row;
  s.rows = rows;
  s.keys = keys;
  s.form = form;
  return s;
}

Case RandomCase(std::mt19937_64& rng) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
  };
  Case c;
  c.limits.heads = pick(0, 1) == 0 ? pick(1, 40) : 128;
  c.limits.workers = pick(1, 9);
  c.limits.pass_rows = pick(1, 40);
  c.limits.block_multiple = pick(0, 1) == 0 ? 1 : 16;
  std::int64_t row = 0;
  std::int64_t longest = 1;
  for (std::int64_t i = pick(1, 12); i > 0; --i) {
    const std::int64_t rows = pick(0, 3) == 0 ? pick(0, 60) : pick(0, 2);
    const std::int64_t keys = rows + (pick(0, 1) == 0 ? pick(0, 70) : pick(0, 9000));
    c.sequences.push_back(Sequence(row, rows, keys, pick(0, 4) == 0 ? Form::kMha : Form::kAbsorbed));
    row += rows + pick(0, 2);  // rows of `out` that belong to nobody
    longest = std::max(longest, keys);
  }
  c.limits.partial_states =
      pick(0, 3) == 0 ? pick(0, 3000) : attention::PartialStates(c.limits.heads, c.limits.workers, longest);
  return c;
}

struct Planned {
  std::vector<std::vector<Part>> passes;
  std::vector<std::vector<std::int32_t>> row_ids;
};

Planned PlanAll(const Case& c) {
  Planned planned;
  PassCursor cursor;
  for (;;) {
    std::vector<Part> parts(static_cast<std::size_t>(c.limits.pass_rows));
    std::vector<std::int32_t> row_ids(parts.size(), -1);
    const Pass pass = attention::PlanPass(c.limits, c.sequences, &cursor, parts.data(), row_ids.data());
    if (pass.rows == 0) return planned;
    EXPECT_LE(pass.rows, c.limits.pass_rows);
    parts.resize(static_cast<std::size_t>(pass.parts));
    row_ids.resize(static_cast<std::size_t>(pass.rows));
    planned.passes.push_back(parts);
    planned.row_ids.push_back(row_ids);
  }
}

// (row of the call, head, segment) of each item's states, as RunItem walks them.
TEST(AbsorbedPlan, EveryStateMeetsEverySegmentOnce) {
  std::mt19937_64 rng(51);
  for (int round = 0; round < 300; ++round) {
    const Case c = RandomCase(rng);
    const Planned planned = PlanAll(c);
    std::map<std::pair<std::int64_t, std::int64_t>, std::set<std::int64_t>> met;
    for (std::size_t pass = 0; pass < planned.passes.size(); ++pass) {
      for (const Part& part : planned.passes[pass]) {
        ASSERT_EQ(part.states, part.rows * c.limits.heads);
        for (std::int64_t item = 0; item < part.items(); ++item) {
          const std::int64_t begin = item % part.blocks * part.block;
          const std::int64_t end = std::min(begin + part.block, part.states);
          ASSERT_LT(begin, end);
          ASSERT_LE(end - begin, kMaxBlockRows);
          ASSERT_EQ(begin % c.limits.block_multiple, 0);
          for (std::int64_t state = begin; state < end; ++state) {
            const auto at = static_cast<std::size_t>(part.pass_row + state / c.limits.heads);
            const std::int64_t row = planned.row_ids[pass][at];
            std::set<std::int64_t>& segments = met[{row, state % c.limits.heads}];
            const bool apart = part.partial >= 0;
            const std::int64_t first = apart ? item / part.blocks * part.run : 0;
            const std::int64_t last = apart ? std::min(first + part.run, part.segments) : part.segments;
            ASSERT_EQ(part.first_segment(item), first);
            ASSERT_EQ(part.end_segment(item), last);
            for (std::int64_t segment = first; segment < last; ++segment) {
              ASSERT_TRUE(segments.insert(segment).second) << "round " << round << " row " << row;
            }
          }
        }
      }
    }
    std::size_t expected = 0;
    for (const AttentionSequence& s : c.sequences) {
      if (s.form != Form::kAbsorbed) continue;
      for (std::int64_t t = 0; t < s.rows; ++t) {
        for (std::int64_t head = 0; head < c.limits.heads; ++head) {
          ++expected;
          const std::set<std::int64_t>& segments = met[{s.first_row + t, head}];
          // As many as its last key needs, and no gap before them; rows that see less skip what is masked for all.
          const std::int64_t needed = (s.keys - s.rows + t) / kSegmentKeys + 1;
          ASSERT_GE(std::ssize(segments), needed);
          ASSERT_EQ(*segments.rbegin() + 1, std::ssize(segments));
        }
      }
    }
    ASSERT_EQ(met.size(), expected);
  }
}

TEST(AbsorbedPlan, StatesKeptApartAndTilesOverlapNowhere) {
  std::mt19937_64 rng(52);
  for (int round = 0; round < 300; ++round) {
    const Case c = RandomCase(rng);
    const Planned planned = PlanAll(c);
    for (const std::vector<Part>& pass : planned.passes) {
      std::set<std::int64_t> partial;
      std::set<std::int64_t> tiles;
      for (const Part& part : pass) {
        for (std::int64_t i = 0; part.partial >= 0 && i < part.states * part.segments; ++i) {
          ASSERT_TRUE(partial.insert(part.partial + i).second);
        }
        for (std::int64_t i = 0; i < (part.states + 15) / 16; ++i) ASSERT_TRUE(tiles.insert(part.tile + i).second);
        ASSERT_EQ(part.folds(), part.partial >= 0 ? (part.states + 15) / 16 : 0);
      }
      if (!partial.empty()) {
        ASSERT_GE(*partial.begin(), 0);
        ASSERT_LT(*partial.rbegin(), c.limits.partial_states);
      }
      ASSERT_LT(*tiles.rbegin(), c.limits.pass_rows * ((c.limits.heads + 15) / 16));
    }
  }
}

// Items in the plan's order, each to the worker that is free first, as the pool hands them out: the last worker to end
// is late by at most one item (Graham, SIAM J. Appl. Math. 17, 1969), which is what the plan keeps small.
std::int64_t Makespan(const std::vector<Part>& parts, std::int64_t workers) {
  std::priority_queue<std::int64_t, std::vector<std::int64_t>, std::greater<>> free;
  for (std::int64_t i = 0; i < workers; ++i) free.push(0);
  for (const Part& part : parts) {
    for (std::int64_t item = 0; item < part.items(); ++item) {
      const std::int64_t now = free.top() + part.item_cost();
      free.pop();
      free.push(now);
    }
  }
  std::int64_t last = 0;
  for (; !free.empty(); free.pop()) last = std::max(last, free.top());
  return last;
}

void ExpectBalanced(const PlanLimits& limits, const std::vector<AttentionSequence>& sequences, double times) {
  const Planned planned = PlanAll({limits, sequences});
  ASSERT_EQ(planned.passes.size(), 1U);
  std::int64_t total = 0;
  for (const Part& part : planned.passes[0]) total += part.cost();
  const double fair = static_cast<double>(total) / static_cast<double>(limits.workers);
  EXPECT_LE(static_cast<double>(Makespan(planned.passes[0], limits.workers)), times * fair);
}

// One long request, many short ones; some of each: with DeepSeek-V3's heads, by two to 64 workers.
TEST(AbsorbedPlan, WorkIsBalancedByTilesNotByRequest) {
  for (const std::int64_t workers : {2, 8, 64}) {
    PlanLimits limits{128, workers, 128, attention::PartialStates(128, workers, 65536), 16};
    ExpectBalanced(limits, {Sequence(0, 1, 65536)}, 1.01);
    std::vector<AttentionSequence> mixed;
    for (std::int64_t i = 0; i < 32; ++i) mixed.push_back(Sequence(i, 1, 1024 + i * 1000));
    ExpectBalanced(limits, mixed, 1.25);
    mixed.push_back(Sequence(32, 1, 65536));
    ExpectBalanced(limits, mixed, 1.25);
  }
}

// Where requests alone keep the workers busy, nothing is kept apart, and so nothing is folded twice.
TEST(AbsorbedPlan, ManyLikeRequestsAreNotSplit) {
  std::vector<AttentionSequence> like;
  for (std::int64_t i = 0; i < 32; ++i) like.push_back(Sequence(i, 1, 8192));
  const PlanLimits limits{128, 2, 128, attention::PartialStates(128, 2, 8192), 16};
  const Planned planned = PlanAll({limits, like});
  ASSERT_EQ(planned.passes.size(), 1U);
  for (const Part& part : planned.passes[0]) EXPECT_EQ(part.partial, -1);
}

// Segments that go to an item together save the reading of rows that nothing has asked for; they must not cost balance.
TEST(AbsorbedPlan, JoinedSegmentsEndNoLater) {
  std::int64_t joined = 0;
  for (const std::int64_t workers : {1, 2, 3, 5, 8, 16}) {
    for (const std::int64_t heads : {1, 16, 128}) {
      for (std::int64_t keys = 1024; keys <= 65536; keys += 3000) {
        const PlanLimits limits{heads, workers, 128, attention::PartialStates(heads, workers, 65536), 16};
        std::vector<Part> parts = PlanAll({limits, {Sequence(0, 1, keys)}}).passes.at(0);
        const std::int64_t with = Makespan(parts, workers);
        for (Part& part : parts) {
          joined += part.run - 1;
          part.run = 1;
        }
        ASSERT_LE(with, Makespan(parts, workers)) << workers << " workers, " << heads << " heads, " << keys << " keys";
      }
    }
  }
  EXPECT_GT(joined, 100);
}

TEST(AbsorbedPlan, LargestItemsComeFirst) {
  std::mt19937_64 rng(53);
  for (int round = 0; round < 100; ++round) {
    const Planned planned = PlanAll(RandomCase(rng));
    for (const std::vector<Part>& pass : planned.passes) {
      for (std::size_t i = 1; i < pass.size(); ++i) ASSERT_GE(pass[i - 1].item_cost(), pass[i].item_cost());
    }
  }
}

}  // namespace
}  // namespace mla::testing
