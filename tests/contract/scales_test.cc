// The factors that a config implies: of the softmax, of cos and sin.
#include <gtest/gtest.h>

#include "contract/config.h"
#include "testing/tiny_checkpoint.h"

namespace mla::contract {
namespace {

ModelConfig Attention(std::int64_t nope, std::int64_t rope_dim, double factor, double mscale, double all) {
  testing::TinyOptions o;
  o.qk_nope_head_dim = nope;
  o.qk_rope_head_dim = rope_dim;
  o.rope_scaling = factor > 0 ? RopeScaling::kYarn : RopeScaling::kNone;
  o.rope_factor = factor;
  o.mscale = mscale;
  o.mscale_all_dim = all;
  const Result<ModelConfig> config = ParseConfig(testing::TinyConfigJson(o), "tiny");
  EXPECT_TRUE(config.ok()) << config.error().message;
  return *config;
}

// Published models' scales, to the five digits that they are known to.
TEST(Scales, SoftmaxScalesOfPublishedModels) {
  EXPECT_NEAR(SoftmaxScale(Attention(128, 64, 40, 1, 1)), 0.13523, 5e-6);          // DeepSeek-V3
  EXPECT_NEAR(SoftmaxScale(Attention(128, 64, 32, 1, 1)), 0.13086, 5e-6);          // Kimi K2
  EXPECT_NEAR(SoftmaxScale(Attention(128, 64, 64, 1, 1)), 0.14468, 5e-6);          // Kimi K2-Thinking
  EXPECT_NEAR(SoftmaxScale(Attention(128, 64, 40, 0.707, 0.707)), 0.11472, 5e-6);  // DeepSeek-V2-Lite
  EXPECT_NEAR(SoftmaxScale(Attention(128, 64, 0, 1, 1)), 0.07217, 5e-6);           // Moonlight
  EXPECT_NEAR(SoftmaxScale(Attention(64, 64, 128, 1, 1)), 0.19497, 5e-6);          // Mistral-Small-4's dims
  EXPECT_NEAR(SoftmaxScale(Attention(192, 64, 0, 1, 1)), 0.0625, 5e-6);            // GLM-4.7-Flash's dims
}

TEST(Scales, CosAndSinTakeTheRatio) {
  EXPECT_EQ(CosSinScale(Attention(16, 8, 40, 1, 1).rope), 1.0);
  EXPECT_EQ(CosSinScale(Attention(16, 8, 0, 1, 0).rope), 1.0);
  // 0.1 ln 40 = 0.36888794541139363, from a table.
  EXPECT_NEAR(CosSinScale(Attention(16, 8, 40, 1, 0).rope), 1.36888794541139363, 1e-15);
  EXPECT_NEAR(CosSinScale(Attention(16, 8, 40, 1, 0.5).rope), 1.36888794541139363 / 1.18444397270569682, 1e-15);
  EXPECT_NEAR(CosSinScale(Attention(16, 8, 40, 0, 0.5).rope), 1 / 1.18444397270569682, 1e-15);
}

TEST(Scales, YarnMscale) {
  EXPECT_EQ(YarnMscale(1, 5), 1.0);
  EXPECT_EQ(YarnMscale(0.5, 5), 1.0);
  EXPECT_EQ(YarnMscale(40, 0), 1.0);
  EXPECT_NEAR(YarnMscale(40, 1), 1.36888794541139363, 1e-15);
}

}  // namespace
}  // namespace mla::contract
