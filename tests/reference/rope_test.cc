#include "reference/rope.h"

#include <cmath>
#include <numbers>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mla::reference {
namespace {

RopeSpec Yarn() {
  RopeSpec spec;
  spec.scaling = RopeScaling::kYarn;
  spec.dim = 16;
  spec.theta = 1e4;
  spec.factor = 4;
  spec.original_max_position_embeddings = 512;
  spec.mscale = 1;
  spec.mscale_all_dim = 1;
  return spec;
}

TEST(Frequencies, PlainPowersOfTheta) {
  RopeSpec spec;
  spec.dim = 8;
  spec.theta = 1e4;
  const auto frequencies = RopeFrequencies(spec, 4096);
  ASSERT_EQ(frequencies.size(), 4U);
  EXPECT_DOUBLE_EQ(frequencies[0], 1.0);
  EXPECT_DOUBLE_EQ(frequencies[1], 0.1);
  EXPECT_DOUBLE_EQ(frequencies[2], 0.01);
  EXPECT_DOUBLE_EQ(frequencies[3], 0.001);
}

TEST(Frequencies, YarnRampByHand) {
  // 32 turns in 512 positions: pair 16 ln(512 / 64 pi) / 2 ln 1e4 = 0.81, so low = 0. One turn: 3.82, so high = 4.
  const auto frequencies = RopeFrequencies(Yarn(), 4096);
  ASSERT_EQ(frequencies.size(), 8U);
  const double ramp[8] = {0, 0.25, 0.5, 0.75, 1, 1, 1, 1};
  for (int i = 0; i < 8; ++i) {
    const double plain = std::pow(10.0, -i / 2.0);
    EXPECT_NEAR(frequencies[static_cast<std::size_t>(i)] / plain, ramp[i] / 4 + 1 - ramp[i], 1e-14) << "pair " << i;
  }
}

TEST(Frequencies, YarnRampOfNoWidth) {
  // low == high == 0: the first pair keeps its frequency, all others are slowed whole.
  RopeSpec spec = Yarn();
  spec.original_max_position_embeddings = 6;  // less than one turn of the fastest pair
  const auto frequencies = RopeFrequencies(spec, 4096);
  EXPECT_DOUBLE_EQ(frequencies[0], 1.0);
  for (std::size_t i = 1; i < frequencies.size(); ++i) {
    EXPECT_NEAR(frequencies[i], std::pow(10.0, -static_cast<double>(i) / 2.0) / 4, 1e-15);
  }
}

TEST(Frequencies, NoChannelsNoPairs) {
  RopeSpec spec = Yarn();
  spec.dim = 0;
  EXPECT_TRUE(RopeFrequencies(spec, 4096).empty());
}

TEST(Mscale, ByHand) {
  EXPECT_DOUBLE_EQ(MscaleOf(std::exp(10.0), 1.0), 2.0);
  EXPECT_DOUBLE_EQ(MscaleOf(std::exp(10.0), 0.5), 1.5);
  EXPECT_DOUBLE_EQ(MscaleOf(std::exp(10.0), 0.0), 1.0);
  EXPECT_DOUBLE_EQ(MscaleOf(1.0, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(MscaleOf(0.5, 1.0), 1.0);
}

TEST(Angles, AreScaledByTheRatioOfTheTwoMscales) {
  RopeSpec spec = Yarn();
  spec.factor = std::exp(10.0);
  spec.mscale = 1.0;
  spec.mscale_all_dim = 0.5;
  EXPECT_DOUBLE_EQ(AnglesAt(spec, {1.0}, 0).cos[0], 2.0 / 1.5);
  spec.mscale_all_dim = 0.0;
  EXPECT_DOUBLE_EQ(AnglesAt(spec, {1.0}, 0).cos[0], 2.0);
  spec.scaling = RopeScaling::kNone;
  EXPECT_DOUBLE_EQ(AnglesAt(spec, {1.0}, 0).cos[0], 1.0);
}

// (N + P)^-1/2 and yarn of published configs; figures known from elsewhere, to five digits.
TEST(AttentionScale, OfPublishedModels) {
  contract::ModelConfig config;
  config.qk_nope_head_dim = 128;
  config.qk_rope_head_dim = 64;
  EXPECT_NEAR(AttentionScale(config), 0.07217, 5e-6);  // Moonlight: no scaling
  config.rope.scaling = RopeScaling::kYarn;
  config.rope.factor = 40;
  config.rope.mscale_all_dim = 1;
  EXPECT_NEAR(AttentionScale(config), 0.13523, 5e-6);  // DeepSeek-V3
  config.rope.mscale_all_dim = 0.707;
  EXPECT_NEAR(AttentionScale(config), 0.11472, 5e-6);  // DeepSeek-V2-Lite
  config.rope.factor = 64;
  config.rope.mscale_all_dim = 1;
  EXPECT_NEAR(AttentionScale(config), 0.14468, 5e-6);  // Kimi K2-Thinking
  config.rope.mscale_all_dim = 0;
  EXPECT_NEAR(AttentionScale(config), 0.07217, 5e-6);
}

TEST(Rotate, PairsOfEachLayout) {
  // Pair 0 by a quarter turn, pair 1 by a half turn.
  const RopeAngles angles = {{0.0, -1.0}, {1.0, 0.0}};
  double interleaved[4] = {1, 2, 3, 4};
  Rotate(RopeLayout::kInterleaved, angles, interleaved);
  EXPECT_THAT(interleaved, ::testing::ElementsAre(-2, 1, -3, -4));
  double half_split[4] = {1, 2, 3, 4};
  Rotate(RopeLayout::kHalfSplit, angles, half_split);
  EXPECT_THAT(half_split, ::testing::ElementsAre(-3, -2, 1, -4));
  double none[4] = {1, 2, 3, 4};
  Rotate(RopeLayout::kNone, angles, none);
  EXPECT_THAT(none, ::testing::ElementsAre(1, 2, 3, 4));
}

TEST(Angles, TurnWithThePosition) {
  const RopeAngles angles = AnglesAt(RopeSpec{}, {std::numbers::pi / 6, 0.5}, 3);
  EXPECT_NEAR(angles.cos[0], 0.0, 1e-15);
  EXPECT_NEAR(angles.sin[0], 1.0, 1e-15);
  EXPECT_DOUBLE_EQ(angles.cos[1], std::cos(1.5));
  EXPECT_DOUBLE_EQ(angles.sin[1], std::sin(1.5));
}

}  // namespace
}  // namespace mla::reference
