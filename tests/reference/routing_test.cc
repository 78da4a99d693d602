// Tables worked out by hand. Values are multiples of 1/16, so that sums are exact and ties are ties.
#include "reference/routing.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace mla::reference {
namespace {

struct Case {
  std::string name;
  contract::MoeConfig moe;
  std::vector<double> scores;  // in sixteenths
  std::vector<double> bias;    // in sixteenths
  std::vector<std::int64_t> experts;
  std::vector<double> weights;
};

contract::MoeConfig Moe(std::int64_t experts, std::int64_t top_k, std::int64_t n_group, std::int64_t topk_group,
                        bool norm, double scale) {
  contract::MoeConfig moe;
  moe.n_routed_experts = experts;
  moe.num_experts_per_tok = top_k;
  moe.n_group = n_group;
  moe.topk_group = topk_group;
  moe.norm_topk_prob = norm;
  moe.routed_scaling_factor = scale;
  return moe;
}

std::vector<Case> Cases() {
  return {
      // Every s + b is negative: masking the other groups with 0 instead of leaving them out would pick 4, 5, 6, an
      // inverted mask too. Groups are worth 16, 18, 16, 11 sixteenths (less 2): group 1, and of the equal 0 and 2 the
      // 0.
      {"NegativeBiasAndTiedGroups",
       Moe(8, 3, 4, 2, true, 2.0),
       {14, 2, 10, 8, 13, 3, 5, 6},
       {-16, -16, -16, -16, -16, -16, -16, -16},
       {0, 2, 3},
       {2.0 * 14 / 32, 2.0 * 10 / 32, 2.0 * 8 / 32}},
      {"AllTied", Moe(8, 2, 4, 2, true, 1.0), std::vector<double>(8, 8), std::vector<double>(8, 0), {0, 1}, {0.5, 0.5}},
      // s + b = 8, 12, 4, 14; the weights are the scores, not s + b.
      {"BiasPicksButDoesNotWeigh",
       Moe(4, 2, 1, 1, false, 2.5),
       {8, 4, 12, 2},
       {0, 8, -8, 12},
       {3, 1},
       {2.5 * 2 / 16, 2.5 * 4 / 16}},
      // By the two best: 15, 16, 14. By the best alone group 0 would win, by the sum of all group 2.
      {"GroupsByTheirTwoBest",
       Moe(12, 2, 3, 1, true, 1.0),
       {14, 1, 1, 1, 8, 8, 0, 0, 7, 7, 7, 7},
       std::vector<double>(12, 0),
       {4, 5},
       {0.5, 0.5}},
      // Group 1 is the better, but among experts the lower index goes first.
      {"TiedExpertsOfTwoGroups",
       Moe(6, 1, 3, 2, false, 1.0),
       {8, 4, 8, 6, 1, 1},
       std::vector<double>(6, 0),
       {0},
       {0.5}},
      // A bias may lift a group whose scores are lower: 11 + 8 against 15 + 1.
      {"BiasMovesGroups", Moe(4, 2, 2, 1, true, 1.0), {15, 1, 3, 1}, {0, 0, 8, 7}, {2, 3}, {0.75, 0.25}},
      // One expert a group: the group's value is that of its one member.
      {"GroupsOfOne", Moe(3, 1, 3, 2, true, 3.0), {1, 9, 5}, {0, 0, 8}, {2}, {3.0}},
  };
}

class RoutingTable : public ::testing::TestWithParam<Case> {};

TEST_P(RoutingTable, MatchesTheHand) {
  const Case& c = GetParam();
  std::vector<double> scores = c.scores;
  std::vector<double> bias = c.bias;
  for (double& value : scores) value /= 16;
  for (double& value : bias) value /= 16;
  const Routing routing = Route(scores, bias, c.moe);
  EXPECT_EQ(routing.experts, c.experts);
  ASSERT_EQ(routing.weights.size(), c.weights.size());
  for (std::size_t i = 0; i < c.weights.size(); ++i) EXPECT_DOUBLE_EQ(routing.weights[i], c.weights[i]) << "slot " << i;
}

INSTANTIATE_TEST_SUITE_P(ByHand, RoutingTable, ::testing::ValuesIn(Cases()),
                         [](const auto& test) { return test.param.name; });

TEST(Routing, ScoresOfZeroGiveNoNan) {
  // What the 1e-20 under the sum is for: sigmoids that all underflow.
  const Routing routing = Route(std::vector<double>(4, 0.0), std::vector<double>(4, 0.0), Moe(4, 2, 1, 1, true, 1.0));
  EXPECT_EQ(routing.weights, (std::vector<double>{0.0, 0.0}));
}

}  // namespace
}  // namespace mla::reference
