// What sets one family's config apart from another's.
#include "contract/families.h"

#include <cmath>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/config.h"
#include "contract/doc.h"
#include "contract/tensors.h"

namespace mla::contract {
namespace {

using ::testing::HasSubstr;

bool Expects(const ModelConfig& config, const std::string& name) {
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    if (spec.name == name) return true;
  }
  return false;
}

Doc V2() {
  return Doc()
      .Set("model_type", R"("deepseek_v2")")
      .Set("scoring_func", R"("softmax")")
      .Set("topk_method", R"("group_limited_greedy")")
      .Set("norm_topk_prob", "false")
      .Remove("num_nextn_predict_layers");
}

Doc MiniCpm3() {
  Doc doc;
  for (const char* name :
       {"num_nextn_predict_layers", "n_shared_experts", "n_routed_experts", "routed_scaling_factor", "topk_method",
        "n_group", "topk_group", "num_experts_per_tok", "moe_layer_freq", "first_k_dense_replace", "norm_topk_prob",
        "scoring_func", "moe_intermediate_size", "rope_theta", "v_head_dim"}) {
    doc.Remove(name);
  }
  return doc.Set("model_type", R"("minicpm3")")
      .Set("scale_emb", "12")
      .Set("scale_depth", "1.4")
      .Set("dim_model_base", "16")
      .Set("rope_scaling", R"({"type": "longrope", "short_factor": [1, 1.5, 2, 3], "long_factor": [2, 3, 4, 5.5],
                               "original_max_position_embeddings": 1024})");
}

Doc Glm() {
  std::string types = R"(["dense", "sparse", "sparse"])";
  return Doc()
      .Set("model_type", R"("glm4_moe_lite")")
      .Set("mlp_layer_types", types)
      .Set("rope_parameters", R"({"rope_type": "default", "rope_theta": 1000000, "partial_rotary_factor": 1.0})")
      .Remove("rope_scaling")
      .Remove("rope_theta")
      .Remove("scoring_func")
      .Remove("first_k_dense_replace")
      .Remove("moe_layer_freq");
}

TEST(Families, RoutingFollowsTheFields) {
  const ModelConfig grouped = Good(V2());
  EXPECT_EQ(grouped.moe->scoring_func, ScoringFunc::kSoftmax);
  EXPECT_EQ(grouped.moe->topk_method, TopkMethod::kGroupLimitedGreedy);
  EXPECT_EQ(grouped.moe->topk_group, 2);
  EXPECT_FALSE(Expects(grouped, "model.layers.1.mlp.gate.e_score_correction_bias"));
  EXPECT_TRUE(Expects(grouped, "model.layers.1.mlp.gate.weight"));
  EXPECT_TRUE(Expects(Good(Doc()), "model.layers.1.mlp.gate.e_score_correction_bias"));
  // Greedy choice has no groups; some exports say null.
  const ModelConfig greedy = Good(V2().Set("topk_method", R"("greedy")").Set("n_group", "null").Remove("topk_group"));
  EXPECT_EQ(greedy.moe->topk_method, TopkMethod::kGreedy);
  EXPECT_EQ(greedy.moe->n_group, 1);
  EXPECT_EQ(greedy.moe->topk_group, 1);
  EXPECT_THAT(Fault(V2().Set("n_group", "null")), HasSubstr("n_group: expected a whole number"));
  // One expert a group is enough where a group counts as its best.
  EXPECT_EQ(Fault(V2().Set("n_group", "16").Set("topk_group", "8")), "");
  EXPECT_THAT(Fault(Doc().Set("n_group", "16").Set("topk_group", "8")), HasSubstr("at least 2 of the 16 experts"));
}

// No published checkpoint needs it, and the family's two codes compute it apart.
TEST(Families, V2RefusesToNormaliseAndScale) {
  EXPECT_THAT(Fault(V2().Set("norm_topk_prob", "true")),
              HasSubstr("norm_topk_prob: expected false, or routed_scaling_factor 1"));
  EXPECT_EQ(Fault(V2().Set("norm_topk_prob", "true").Set("routed_scaling_factor", "1.0")), "");
  EXPECT_EQ(Fault(Doc().Set("model_type", R"("kimi_k2")")), "");
}

// Published codes disagree: with one expert a token its weight would be 1, or the score.
TEST(Families, OneExpertIsNotNormalised) {
  EXPECT_THAT(Fault(Doc().Set("num_experts_per_tok", "1")),
              HasSubstr("norm_topk_prob: expected false with one expert a token"));
  EXPECT_EQ(Fault(Doc().Set("num_experts_per_tok", "1").Set("norm_topk_prob", "false")), "");
}

// A family takes what its own code has.
TEST(Families, WhatACodeLacksIsRefused) {
  const std::string lists =
      R"({"type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [2, 2, 2, 2],
          "original_max_position_embeddings": 1024})";
  EXPECT_THAT(Fault(Doc().Set("rope_scaling", lists)),
              HasSubstr(R"(rope_scaling.type: expected "default" or "yarn", found "longrope")"));
  EXPECT_THAT(Fault(MiniCpm3().Set("rope_scaling", Doc::Yarn())),
              HasSubstr(R"(rope_scaling.type: expected "default" or "longrope", found "yarn")"));
  EXPECT_THAT(Fault(MiniCpm3().Set("n_routed_experts", "8")), HasSubstr(R"("n_routed_experts": expected no such)"));
}

TEST(Families, MiniCpm3) {
  const ModelConfig c = Good(MiniCpm3());
  EXPECT_EQ(c.rope.layout, RopeLayout::kHalfSplit);
  EXPECT_EQ(c.rope.theta, 10000);
  EXPECT_EQ(c.rope.scaling, RopeScaling::kLongrope);
  EXPECT_EQ(c.rope.factors(1024), (std::vector<double>{1, 1.5, 2, 3}));
  EXPECT_EQ(c.rope.factors(1025), (std::vector<double>{2, 3, 4, 5.5}));
  EXPECT_NEAR(c.rope.attention_factor, std::sqrt(1 + std::log(4.0) / std::log(1024.0)), 1e-15);
  EXPECT_EQ(CosSinScale(c.rope), c.rope.attention_factor);
  EXPECT_EQ(SoftmaxScale(c), 1 / std::sqrt(24.0));
  EXPECT_EQ(c.v_head_dim, 16);  // 64 / 4
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_EQ(c.embedding_scale, 12);
  EXPECT_NEAR(c.residual_scale, 1.4 / std::sqrt(3.0), 1e-15);
  EXPECT_EQ(c.logit_scale, 0.25);
  EXPECT_EQ(c.latent_norm_eps, 1e-6);
  EXPECT_EQ(c.rms_norm_eps, 1e-5);
  EXPECT_FALSE(c.moe.has_value());
  for (const char* name : {"scale_emb", "scale_depth", "dim_model_base"}) {
    EXPECT_THAT(Fault(MiniCpm3().Remove(name)), HasSubstr(std::string(name) + ": expected "));
  }
  const ModelConfig plain = Good(MiniCpm3().Set("scale_depth", "null").Set("dim_model_base", "null"));
  EXPECT_EQ(plain.residual_scale, 1);
  EXPECT_EQ(plain.logit_scale, 1);
  EXPECT_THAT(Fault(Doc().Set("scale_emb", "12")), HasSubstr(R"("scale_emb": expected no such field)"));
}

TEST(Families, LongropeHasItsFaults) {
  const auto fault = [](const std::string& body) {
    return Fault(MiniCpm3().Set("rope_scaling", R"({"type": "longrope", )" + body + "}"));
  };
  const std::string lists = R"("short_factor": [1, 1, 1, 1], "long_factor": [2, 2, 2, 2], )";
  const std::string window = R"("original_max_position_embeddings": 1024)";
  EXPECT_EQ(fault(lists + window), "");
  EXPECT_EQ(fault(lists + window + R"(, "factor": 4.0)"), "");
  EXPECT_EQ(fault(lists + window + R"(, "attention_factor": 1.25)"), "");
  EXPECT_THAT(fault(lists + window + R"(, "factor": 8)"), HasSubstr("factor: expected 4, max_position_embeddings / "));
  EXPECT_THAT(fault(lists + R"("factor": 4)"), HasSubstr("original_max_position_embeddings: expected "));
  EXPECT_THAT(fault(lists + R"("original_max_position_embeddings": 8192)"),
              HasSubstr("original_max_position_embeddings: expected a whole number from 2 to 4096, found 8192"));
  EXPECT_THAT(fault(R"("long_factor": [2, 2, 2, 2], )" + window),
              HasSubstr("short_factor: expected a list of 4 numbers, found nothing"));
  EXPECT_THAT(fault(R"("short_factor": [1, 1, 1], "long_factor": [2, 2, 2, 2], )" + window),
              HasSubstr("short_factor: expected a list of 4 numbers, found one of 3"));
  EXPECT_THAT(fault(R"("short_factor": [1, 1, 1, 1], "long_factor": [2, 0, 2, 2], )" + window),
              HasSubstr("long_factor[1]: expected a number above 0"));
  EXPECT_THAT(fault(R"("short_factor": 1, "long_factor": [2, 2, 2, 2], )" + window), HasSubstr("short_factor: "));
  EXPECT_THAT(fault(lists + window + R"(, "mscale": 1)"), HasSubstr(R"(expected no field "mscale")"));
}

TEST(Families, GlmListsItsSparseLayers) {
  const ModelConfig c = Good(Glm());
  EXPECT_EQ(c.moe->scoring_func, ScoringFunc::kSigmoid);
  EXPECT_EQ(c.rope.theta, 1e6);
  EXPECT_EQ(c.rope.layout, RopeLayout::kInterleaved);
  EXPECT_FALSE(c.IsMoeLayer(0));
  EXPECT_TRUE(c.IsMoeLayer(1));
  EXPECT_TRUE(c.IsMoeLayer(3));  // MTP
  const ModelConfig odd = Good(Glm().Set("mlp_layer_types", R"(["sparse", "dense", "sparse"])"));
  EXPECT_TRUE(odd.IsMoeLayer(0));
  EXPECT_FALSE(odd.IsMoeLayer(1));
  EXPECT_FALSE(Expects(odd, "model.layers.1.mlp.gate.weight"));
  EXPECT_TRUE(Expects(odd, "model.layers.0.mlp.gate.weight"));
  EXPECT_EQ(CountParameters(odd).total, CountParameters(c).total);
  // Neither spelling: its configuration class has the first layer dense.
  EXPECT_FALSE(Good(Glm().Remove("mlp_layer_types")).IsMoeLayer(0));
  EXPECT_TRUE(Good(Glm().Remove("mlp_layer_types")).IsMoeLayer(1));
  EXPECT_EQ(Fault(Glm().Set("first_k_dense_replace", "1")), "");
  EXPECT_THAT(Fault(Glm().Set("first_k_dense_replace", "2")),
              HasSubstr(R"(mlp_layer_types[1]: expected "dense" as first_k_dense_replace says, found "sparse")"));
  EXPECT_THAT(Fault(Glm().Set("mlp_layer_types", R"(["dense"])")), HasSubstr("a list of 3 of "));
  EXPECT_THAT(Fault(Glm().Set("mlp_layer_types", R"(["dense", "moe", "sparse"])")), HasSubstr("mlp_layer_types[1]: "));
  EXPECT_THAT(Fault(Glm().Set("scoring_func", R"("softmax")")), HasSubstr(R"(scoring_func: expected "sigmoid")"));
  EXPECT_THAT(Fault(Doc().Set("mlp_layer_types", R"(["dense", "sparse", "sparse"])")),
              HasSubstr(R"("mlp_layer_types": expected no such field)"));
}

TEST(Families, NopeInBothShapes) {
  const ModelConfig kept = Good(Doc().Set("mla_use_nope", "true").Remove("rope_theta"));
  EXPECT_EQ(kept.rope.layout, RopeLayout::kNone);
  EXPECT_EQ(kept.rope.dim, 8);
  const ModelConfig without = Good(Doc().Set("qk_rope_head_dim", "0"));
  EXPECT_EQ(without.rope.layout, RopeLayout::kNone);
  EXPECT_EQ(without.rope.dim, 0);
  EXPECT_EQ(Good(Doc().Set("mla_use_nope", "false")).rope.layout, RopeLayout::kInterleaved);
}

}  // namespace
}  // namespace mla::contract
