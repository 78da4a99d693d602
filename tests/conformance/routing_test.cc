// Expert routing against vectors worked out apart from it: two scorings, three ways to pick, ties, negative choices.
#include "ops/routing.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "conformance/data.h"
#include "contract/config.h"
#include "reference/routing.h"

namespace mla::testing {
namespace {

using contract::ScoringFunc;
using contract::TopkMethod;

struct Vector {
  std::string name;
  contract::MoeConfig moe;
  std::vector<double> logits;
  std::vector<double> bias;  // empty unless noaux_tc
  std::vector<std::int64_t> experts;
  std::vector<double> weights;
};

ScoringFunc ScoringOf(const std::string& word) {
  MLA_CHECK(word == "softmax" || word == "sigmoid");
  return word == "softmax" ? ScoringFunc::kSoftmax : ScoringFunc::kSigmoid;
}

TopkMethod MethodOf(const std::string& word) {
  if (word == "greedy") return TopkMethod::kGreedy;
  MLA_CHECK(word == "group_limited_greedy" || word == "noaux_tc");
  return word == "noaux_tc" ? TopkMethod::kNoauxTc : TopkMethod::kGroupLimitedGreedy;
}

std::vector<Vector> Vectors() {
  std::vector<Vector> vectors;
  const io::JsonValue json = Need(io::ReadJsonFile(ConformanceData("routing.json")));
  for (const io::JsonValue& item : json.items()) {
    Vector v;
    v.name = Member(item, "name").string();
    v.logits = NumbersOf<double>(Member(item, "logits"));
    v.bias = NumbersOf<double>(Member(item, "bias"));
    v.experts = NumbersOf<std::int64_t>(Member(item, "experts"));
    v.weights = NumbersOf<double>(Member(item, "weights"));
    v.moe.n_routed_experts = std::ssize(v.logits);
    v.moe.num_experts_per_tok = Member(item, "num_experts_per_tok").integer();
    v.moe.n_group = Member(item, "n_group").integer();
    v.moe.topk_group = Member(item, "topk_group").integer();
    v.moe.norm_topk_prob = Member(item, "norm_topk_prob").boolean();
    v.moe.routed_scaling_factor = Member(item, "routed_scaling_factor").number();
    v.moe.scoring_func = ScoringOf(Member(item, "scoring_func").string());
    v.moe.topk_method = MethodOf(Member(item, "topk_method").string());
    vectors.push_back(v);
  }
  return vectors;
}

ops::RouterSpec SpecOf(const contract::MoeConfig& moe) {
  ops::RouterSpec spec;
  spec.experts = moe.n_routed_experts;
  spec.top_k = moe.num_experts_per_tok;
  spec.groups = moe.n_group;
  spec.topk_group = moe.topk_group;
  spec.norm_topk_prob = moe.norm_topk_prob;
  spec.routed_scaling_factor = moe.routed_scaling_factor;
  spec.scoring = moe.scoring_func == ScoringFunc::kSoftmax ? ops::Scoring::kSoftmax : ops::Scoring::kSigmoid;
  spec.method = moe.topk_method == TopkMethod::kGreedy               ? ops::TopK::kGreedy
                : moe.topk_method == TopkMethod::kGroupLimitedGreedy ? ops::TopK::kGroupLimited
                                                                     : ops::TopK::kNoauxTc;
  return spec;
}

// Logits and biases are exact in fp32. A score is rounded to it once; the sum of the chosen ones is off by as much at
// most; the weight is rounded once more: 3 u, u = 2^-24.
TEST(RoutingVectors, OpsRouteToken) {
  for (const Vector& v : Vectors()) {
    SCOPED_TRACE(v.name);
    const ops::RouterSpec spec = SpecOf(v.moe);
    const std::vector<float> logits(v.logits.begin(), v.logits.end());
    const std::vector<float> bias(v.bias.begin(), v.bias.end());
    std::vector<float> scratch(static_cast<std::size_t>(ops::RouteScratch(spec.experts, spec.groups)));
    std::vector<std::int32_t> index(v.experts.size());
    std::vector<float> weight(v.experts.size());
    ASSERT_EQ(std::ssize(index), spec.top_k);
    ops::RouteToken(spec, logits.data(), bias.empty() ? nullptr : bias.data(), scratch.data(), index.data(),
                    weight.data());
    EXPECT_EQ(std::vector<std::int64_t>(index.begin(), index.end()), v.experts);
    for (std::size_t k = 0; k < weight.size(); ++k) {
      EXPECT_NEAR(static_cast<double>(weight[k]), v.weights[k], 3.01 * 0x1p-24 * v.weights[k]) << k;
    }
  }
}

// Float64 on both sides: an exponential, sums of up to 16 terms and a few roundings, 32 times 2^-53 at most in each.
TEST(RoutingVectors, ReferenceRoute) {
  for (const Vector& v : Vectors()) {
    SCOPED_TRACE(v.name);
    const reference::Routing routing = reference::Route(reference::GateScores(v.logits, v.moe), v.bias, v.moe);
    EXPECT_EQ(routing.experts, v.experts);
    ASSERT_EQ(routing.weights.size(), v.weights.size());
    for (std::size_t k = 0; k < v.weights.size(); ++k) {
      EXPECT_NEAR(routing.weights[k], v.weights[k], 64 * 0x1p-53 * v.weights[k]) << k;
    }
  }
}

TEST(RoutingVectors, AreThere) { EXPECT_EQ(Vectors().size(), 108U); }

}  // namespace
}  // namespace mla::testing
