// The golden values can tell a right reading of a config from the wrong ones that engines have shipped: each moves the
// logits by far more than the tolerance of golden_test.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reference/demo.h"
#include "reference/reference.h"
#include "reference/tensor_set.h"

namespace mla::reference {
namespace {

using contract::ModelConfig;

// A million times golden_test's 1e-9.
constexpr double kFar = 1e-3;

std::vector<double> DemoLogits(const ModelConfig& config) {
  const ReferenceModel model = testing::DemoModel(config);
  auto state = model.NewState();
  return model.Append(state, testing::GoldenIds("tokens_128"));
}

double Moved(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

struct Reading {
  std::string name;
  std::function<void(ModelConfig&)> change;
};

class WrongReading : public ::testing::TestWithParam<Reading> {};

TEST_P(WrongReading, MovesTheLogits) {
  static const std::vector<double> right = DemoLogits(testing::DemoConfig());
  ModelConfig config = testing::DemoConfig();
  GetParam().change(config);
  const double moved = Moved(DemoLogits(config), right);
  RecordProperty("moved", std::to_string(moved));
  EXPECT_GT(moved, kFar);
}

std::vector<Reading> Readings() {
  return {
      {"HalfSplitRope", [](ModelConfig& c) { c.rope.layout = RopeLayout::kHalfSplit; }},
      {"NoRotation", [](ModelConfig& c) { c.rope.layout = RopeLayout::kNone; }},
      // cos and sin stay as they are (a ratio of 1), the softmax scale loses its mscale squared.
      {"NoMscaleInTheSoftmax", [](ModelConfig& c) { c.rope.mscale = c.rope.mscale_all_dim = 0; }},
      // The softmax scale stays, cos and sin get a ratio: what a config with mscale 0 would say.
      {"AnotherCosSinRatio", [](ModelConfig& c) { c.rope.mscale = 0; }},
      {"RampOfTheStretchedWindow",
       [](ModelConfig& c) { c.rope.original_max_position_embeddings = c.max_position_embeddings; }},
      {"NoYarn", [](ModelConfig& c) { c.rope.scaling = RopeScaling::kNone; }},
      {"AnotherTheta", [](ModelConfig& c) { c.rope.theta = 50000; }},
      {"NoGroups", [](ModelConfig& c) { c.moe->n_group = c.moe->topk_group = 1; }},
      {"FewerGroups", [](ModelConfig& c) { c.moe->topk_group = 1; }},
      {"WeightsNotNormed", [](ModelConfig& c) { c.moe->norm_topk_prob = false; }},
      {"RoutedNotScaled", [](ModelConfig& c) { c.moe->routed_scaling_factor = 1; }},
      {"FewerExperts", [](ModelConfig& c) { c.moe->num_experts_per_tok = 1; }},
      {"LatentEpsilon", [](ModelConfig& c) { c.latent_norm_eps = 1e-2; }},
      {"NormEpsilon", [](ModelConfig& c) { c.rms_norm_eps = 1e-2; }},
  };
}

INSTANTIATE_TEST_SUITE_P(Demo, WrongReading, ::testing::ValuesIn(Readings()),
                         [](const auto& test) { return test.param.name; });

testing::TensorSet DemoTensors() {
  const auto checkpoint = testing::Must(io::Checkpoint::Open(testing::DemoDir()));
  return testing::TensorSet::Read(checkpoint);
}

std::vector<double> Logits(const ReferenceModel& model) {
  auto state = model.NewState();
  return model.Append(state, testing::GoldenIds("tokens_128"));
}

// The norm of the latent, skipped: an epsilon of 2^40 makes it a division by 2^20 (to one part in 2^40), and kv_b_proj
// 2^20 times as large undoes that. Likewise the one of the query.
TEST(SkippedNorm, OfTheLatentsMovesTheLogits) {
  ModelConfig config = testing::DemoConfig();
  testing::TensorSet tensors = DemoTensors();
  const auto right = Logits(tensors.Model(config));
  EXPECT_EQ(right, DemoLogits(config));  // the copy is the model
  config.latent_norm_eps = 0x1p40;
  for (auto& [name, tensor] : tensors.all()) {
    if (name.ends_with("kv_b_proj.weight") || name.ends_with("q_b_proj.weight")) {
      for (float& value : tensor.values) value *= 0x1p20F;
    }
  }
  EXPECT_GT(Moved(Logits(tensors.Model(config)), right), kFar);
}

// Were the bias to weigh experts, or not to pick them.
TEST(RouterBias, PicksExperts) {
  const ModelConfig config = testing::DemoConfig();
  testing::TensorSet tensors = DemoTensors();
  const auto right = Logits(tensors.Model(config));
  testing::TensorSet shifted = DemoTensors();
  for (auto& [name, tensor] : tensors.all()) {
    if (name.ends_with("e_score_correction_bias")) std::fill(tensor.values.begin(), tensor.values.end(), 0.0F);
  }
  EXPECT_GT(Moved(Logits(tensors.Model(config)), right), kFar);
  // The same for all experts of all groups: no other choice, and so not a bit of difference.
  for (auto& [name, tensor] : shifted.all()) {
    if (name.ends_with("e_score_correction_bias")) {
      for (float& value : tensor.values) value -= 0.5F;
    }
  }
  EXPECT_EQ(Logits(shifted.Model(config)), right);
}

}  // namespace
}  // namespace mla::reference
