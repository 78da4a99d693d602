// Expert routing: hand-made vectors, and a brute force that shares nothing with the code under test.
#include "ops/routing.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace mla {
namespace {

using ops::RouterSpec;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Routed {
  std::vector<std::int32_t> index;
  std::vector<float> weight;
};

Routed Route(const RouterSpec& spec, const std::vector<float>& logits, const std::vector<float>& bias) {
  constexpr float kGuard = -99;
  std::vector<float> scratch(static_cast<std::size_t>(ops::RouteScratch(spec.experts, spec.groups)) + 1, kGuard);
  Routed out{std::vector<std::int32_t>(static_cast<std::size_t>(spec.top_k), -1),
             std::vector<float>(static_cast<std::size_t>(spec.top_k), kNan)};
  ops::RouteToken(spec, logits.data(), bias.data(), scratch.data(), out.index.data(), out.weight.data());
  EXPECT_EQ(scratch.back(), kGuard);
  return out;
}

float Sigmoid(float x) { return static_cast<float>(1 / (1 + std::exp(-static_cast<double>(x)))); }

using Indices = std::vector<std::int32_t>;

TEST(Routing, BestFirstAndTiesToTheLowerExpert) {
  const RouterSpec spec{.experts = 6, .top_k = 4};
  const auto routed = Route(spec, {0, 1, 2, 1, 2, 1}, std::vector<float>(6, 0.0F));
  EXPECT_EQ(routed.index, (Indices{2, 4, 1, 3}));
}

TEST(Routing, AllEqualTakesTheFirst) {
  const RouterSpec spec{.experts = 8, .top_k = 3, .groups = 4, .topk_group = 2};
  EXPECT_EQ(Route(spec, std::vector<float>(8, 0.5F), std::vector<float>(8, 0.0F)).index, (Indices{0, 1, 2}));
}

TEST(Routing, TheBiasPicksButDoesNotWeigh) {
  const RouterSpec spec{.experts = 4, .top_k = 2};
  const std::vector<float> logits = {0.0F, 3.0F, 1.0F, -1.0F};
  const auto routed = Route(spec, logits, {0.0F, -5.0F, 0.0F, 5.0F});
  EXPECT_EQ(routed.index, (Indices{3, 2}));
  EXPECT_EQ(routed.weight, (std::vector<float>{Sigmoid(-1), Sigmoid(1)}));
}

// A group counts by its two best together: group 1 (0.6 + 0.6) beats group 0 (0.9 + 0.1).
TEST(Routing, AGroupIsWorthItsTwoBest) {
  const RouterSpec spec{.experts = 6, .top_k = 1, .groups = 2, .topk_group = 1};
  const std::vector<float> logits(6, 0.0F);  // score 0.5 each
  EXPECT_EQ(Route(spec, logits, {0.4F, -0.4F, -0.4F, 0.1F, 0.1F, -0.5F}).index, (Indices{3}));
}

TEST(Routing, TiedGroupsGoToTheLower) {
  const RouterSpec spec{.experts = 8, .top_k = 4, .groups = 4, .topk_group = 2};
  // Groups 1, 2 and 3 tie above group 0.
  EXPECT_EQ(Route(spec, {0, 0, 1, 2, 2, 1, 1, 2}, std::vector<float>(8, 0.0F)).index, (Indices{3, 4, 2, 5}));
}

// With every choice value negative, an expert outside the chosen groups must not come in as if it were worth zero.
TEST(Routing, NegativeChoicesStayInTheirGroups) {
  const RouterSpec spec{.experts = 8, .top_k = 4, .groups = 4, .topk_group = 2};
  const std::vector<float> bias = {-9, -9, -3, -8, -2, -4, -9, -7};
  EXPECT_EQ(Route(spec, std::vector<float>(8, 0.0F), bias).index, (Indices{4, 2, 5, 3}));
}

TEST(Routing, EveryExpertOfOneGroup) {
  const RouterSpec spec{.experts = 5, .top_k = 5};
  const auto routed = Route(spec, {-1, 4, 0, 2, -3}, std::vector<float>(5, -2.0F));
  EXPECT_EQ(routed.index, (Indices{1, 3, 2, 0, 4}));
}

TEST(Routing, AsManyExpertsAsTheKeptGroupsHold) {
  const RouterSpec spec{.experts = 6, .top_k = 4, .groups = 3, .topk_group = 2};
  EXPECT_EQ(Route(spec, {5, -5, 1, 1, 2, 2}, std::vector<float>(6, 0.0F)).index, (Indices{4, 5, 2, 3}));
}

TEST(Routing, GroupsOfOneExpert) {
  const RouterSpec spec{.experts = 4, .top_k = 2, .groups = 4, .topk_group = 3};
  EXPECT_EQ(Route(spec, {1, 4, 3, 2}, std::vector<float>(4, 0.0F)).index, (Indices{1, 2}));
}

TEST(Routing, NormalisesAndScales) {
  RouterSpec spec{.experts = 3, .top_k = 2, .norm_topk_prob = true, .routed_scaling_factor = 2.5};
  const std::vector<float> logits = {0.0F, 1.0F, 2.0F};
  const std::vector<float> none(3, 0.0F);
  const double a = Sigmoid(2);
  const double b = Sigmoid(1);
  auto routed = Route(spec, logits, none);
  EXPECT_FLOAT_EQ(routed.weight[0], static_cast<float>(2.5 * a / (a + b)));
  EXPECT_FLOAT_EQ(routed.weight[1], static_cast<float>(2.5 * b / (a + b)));
  spec.norm_topk_prob = false;
  routed = Route(spec, logits, none);
  EXPECT_FLOAT_EQ(routed.weight[0], static_cast<float>(2.5 * a));
  EXPECT_FLOAT_EQ(routed.weight[1], static_cast<float>(2.5 * b));
}

TEST(Routing, ScoresThatVanishStayFinite) {
  const RouterSpec spec{.experts = 4, .top_k = 2, .norm_topk_prob = true};
  const auto routed = Route(spec, std::vector<float>(4, -1e30F), std::vector<float>(4, 0.0F));
  EXPECT_EQ(routed.index, (Indices{0, 1}));
  EXPECT_EQ(routed.weight, (std::vector<float>{0, 0}));
}

TEST(Routing, NanIsNeverChosenBeforeANumber) {
  const RouterSpec spec{.experts = 4, .top_k = 2};
  EXPECT_EQ(Route(spec, {kNan, -20, kNan, -30}, std::vector<float>(4, 0.0F)).index, (Indices{1, 3}));
}

TEST(Routing, NoExpertComesTwiceEvenOfABrokenModel) {
  for (const std::int64_t groups : {1, 4}) {
    const RouterSpec spec{.experts = 8, .top_k = 4, .groups = groups, .topk_group = groups == 1 ? 1 : 2};
    for (int numbers = 0; numbers <= 8; ++numbers) {  // how many logits are no NaN: those at 3, 6, 1, 4, ...
      std::vector<float> logits(8, kNan);
      for (int i = 0; i < numbers; ++i) logits[static_cast<std::size_t>((3 * i + 3) % 8)] = static_cast<float>(i);
      const auto routed = Route(spec, logits, std::vector<float>(8, 0.0F));
      const std::set<std::int32_t> distinct(routed.index.begin(), routed.index.end());
      EXPECT_EQ(distinct.size(), 4U) << groups << " groups, " << numbers << " numbers";
      EXPECT_GE(*distinct.begin(), 0);
      EXPECT_LT(*distinct.rbegin(), 8);
    }
  }
}

// Sorts everything, counts everything.
Routed BruteForce(const RouterSpec& spec, const std::vector<float>& logits, const std::vector<float>& bias) {
  const auto experts = static_cast<std::size_t>(spec.experts);
  const std::size_t size = experts / static_cast<std::size_t>(spec.groups);
  std::vector<float> choice(experts);
  for (std::size_t e = 0; e < experts; ++e) choice[e] = Sigmoid(logits[e]) + bias[e];
  // An expert's group is kept if fewer than topk_group groups come before it.
  std::vector<float> worth;
  for (std::size_t g = 0; g < static_cast<std::size_t>(spec.groups); ++g) {
    std::vector<float> members(choice.begin() + static_cast<std::ptrdiff_t>(g * size),
                               choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::sort(members.rbegin(), members.rend());
    worth.push_back(size == 1 ? members[0] : members[0] + members[1]);
  }
  const auto rank = [](const std::vector<float>& values, std::size_t at) {
    std::int64_t before = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      before += values[i] > values[at] || (values[i] == values[at] && i < at);
    return before;
  };
  Routed out;
  std::vector<std::size_t> order;
  for (std::size_t e = 0; e < experts; ++e) {
    if (rank(worth, e / size) < spec.topk_group) order.push_back(e);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return choice[a] > choice[b]; });
  order.resize(static_cast<std::size_t>(spec.top_k));
  double sum = 0;
  for (const std::size_t e : order) sum += Sigmoid(logits[e]);
  for (const std::size_t e : order) {
    out.index.push_back(static_cast<std::int32_t>(e));
    const double weight = Sigmoid(logits[e]) * spec.routed_scaling_factor;
    out.weight.push_back(static_cast<float>(spec.norm_topk_prob ? weight / sum : weight));
  }
  return out;
}

TEST(Routing, AgreesWithBruteForceOnRandomTokens) {
  std::mt19937 random(81);
  const std::vector<RouterSpec> specs = {
      {.experts = 256, .top_k = 8, .groups = 8, .topk_group = 4, .norm_topk_prob = true, .routed_scaling_factor = 2.5},
      {.experts = 384, .top_k = 8, .norm_topk_prob = true, .routed_scaling_factor = 2.827},
      {.experts = 64, .top_k = 6, .norm_topk_prob = false, .routed_scaling_factor = 1.0},
      {.experts = 16, .top_k = 4, .groups = 4, .topk_group = 1, .norm_topk_prob = true, .routed_scaling_factor = 1.8},
      {.experts = 16, .top_k = 5, .groups = 16, .topk_group = 7, .norm_topk_prob = true, .routed_scaling_factor = 1.0},
      {.experts = 3, .top_k = 3, .norm_topk_prob = true, .routed_scaling_factor = 1.0},
      {.experts = 1, .top_k = 1, .norm_topk_prob = false, .routed_scaling_factor = 1.0}};
  for (const RouterSpec& spec : specs) {
    for (int token = 0; token < 400; ++token) {
      const bool coarse = token % 2 == 0;  // few different values: many ties, of experts and of groups
      std::vector<float> logits(static_cast<std::size_t>(spec.experts));
      std::vector<float> bias(logits.size());
      std::uniform_real_distribution<float> fine(-6, 6);
      for (float& v : logits) v = coarse ? static_cast<float>(static_cast<int>(random() % 5) - 2) : fine(random);
      for (float& v : bias)
        v = coarse ? static_cast<float>(static_cast<int>(random() % 3) - 2) / 4 : fine(random) / 8 - 1;
      const Routed found = Route(spec, logits, bias);
      const Routed expected = BruteForce(spec, logits, bias);
      ASSERT_EQ(found.index, expected.index);
      // Both in float64 from the same scores but for the order of the factors: at most one rounding to float apart.
      for (std::size_t k = 0; k < found.weight.size(); ++k) {
        ASSERT_LE(std::fabs(found.weight[k] - expected.weight[k]), 0x1p-23F * expected.weight[k]);
      }
    }
  }
}

}  // namespace
}  // namespace mla
