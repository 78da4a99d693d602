#include "contract/config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/doc.h"
#include "testing/temp_dir.h"

namespace mla::contract {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Config, EveryFieldIsRead) {
  const ModelConfig c = Good(Doc().Set("eos_token_id", "[1, 7, 1]").Set("tie_word_embeddings", "true"));
  EXPECT_EQ(c.model_type, "deepseek_v3");
  EXPECT_EQ(c.vocab_size, 100);
  EXPECT_EQ(c.hidden_size, 64);
  EXPECT_EQ(c.intermediate_size, 96);
  EXPECT_EQ(c.num_hidden_layers, 3);
  EXPECT_EQ(c.num_nextn_predict_layers, 1);
  EXPECT_EQ(c.num_attention_heads, 4);
  EXPECT_EQ(c.q_lora_rank, 48);
  EXPECT_EQ(c.kv_lora_rank, 32);
  EXPECT_EQ(c.qk_nope_head_dim, 16);
  EXPECT_EQ(c.qk_rope_head_dim, 8);
  EXPECT_EQ(c.v_head_dim, 24);
  EXPECT_EQ(c.max_position_embeddings, 4096);
  EXPECT_EQ(c.rms_norm_eps, 1e-5);
  EXPECT_EQ(c.latent_norm_eps, 1e-6);
  EXPECT_EQ(c.rope.layout, RopeLayout::kInterleaved);
  EXPECT_EQ(c.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(c.rope.dim, 8);
  EXPECT_EQ(c.rope.theta, 50000);
  EXPECT_EQ(c.rope.factor, 40);
  EXPECT_EQ(c.rope.original_max_position_embeddings, 1024);
  EXPECT_EQ(c.rope.beta_fast, 16);
  EXPECT_EQ(c.rope.beta_slow, 2);
  EXPECT_EQ(c.rope.mscale, 0.7);
  EXPECT_EQ(c.rope.mscale_all_dim, 0.5);
  ASSERT_TRUE(c.moe.has_value());
  EXPECT_EQ(c.moe->n_routed_experts, 16);
  EXPECT_EQ(c.moe->num_experts_per_tok, 4);
  EXPECT_EQ(c.moe->n_shared_experts, 1);
  EXPECT_EQ(c.moe->moe_intermediate_size, 32);
  EXPECT_EQ(c.moe->n_group, 4);
  EXPECT_EQ(c.moe->topk_group, 2);
  EXPECT_EQ(c.moe->routed_scaling_factor, 2.5);
  EXPECT_TRUE(c.moe->norm_topk_prob);
  EXPECT_EQ(c.first_k_dense_replace, 1);
  EXPECT_EQ(c.moe_layer_freq, 1);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_EQ(c.bos_token_id, 0);
  EXPECT_EQ(c.eos_token_ids, (std::vector<std::int64_t>{1, 7}));
}

TEST(Config, WhatMayBeAbsentOrNull) {
  for (const char* name : {"num_nextn_predict_layers", "num_key_value_heads", "moe_layer_freq", "bos_token_id",
                           "eos_token_id", "rope_scaling"}) {
    Good(Doc().Remove(name));
    Good(Doc().Set(name, "null"));
  }
  EXPECT_FALSE(Good(Doc().Set("q_lora_rank", "null")).q_lora_rank.has_value());
  EXPECT_EQ(Good(Doc().Set("n_shared_experts", "null")).moe->n_shared_experts, 0);
  EXPECT_EQ(Good(Doc().Set("n_shared_experts", "0")).moe->n_shared_experts, 0);
  EXPECT_EQ(Good(Doc().Set("first_k_dense_replace", "0")).first_k_dense_replace, 0);
  EXPECT_EQ(Good(Doc().Set("first_k_dense_replace", "9")).first_k_dense_replace, 9);
  EXPECT_TRUE(Good(Doc().Remove("eos_token_id")).eos_token_ids.empty());
  Good(Doc().Set("quantization_config", "null"));
}

TEST(Config, DenseModels) {
  Doc bare;
  for (const char* name : {"n_routed_experts", "n_shared_experts", "moe_intermediate_size", "topk_method", "n_group",
                           "topk_group", "num_experts_per_tok", "moe_layer_freq", "first_k_dense_replace",
                           "norm_topk_prob", "scoring_func", "routed_scaling_factor"}) {
    bare.Remove(name);
  }
  const ModelConfig c = Good(bare);
  EXPECT_FALSE(c.moe.has_value());
  EXPECT_FALSE(c.IsMoeLayer(5));
  EXPECT_FALSE(Good(Doc().Set("n_routed_experts", "null")).moe.has_value());
  EXPECT_FALSE(Good(bare.Set("num_experts_per_tok", "null").Set("topk_method", "null")).moe.has_value());
  // Fields that are not used are still held to their types.
  EXPECT_THAT(Fault(Doc().Set("n_routed_experts", "null").Set("n_group", R"("4")")), HasSubstr("n_group: "));
  // A config that lost its number of experts is no dense one.
  EXPECT_THAT(Fault(Doc().Remove("n_routed_experts")),
              HasSubstr("n_routed_experts: expected a number of experts, or null"));
}

struct Broken {
  const char* field;
  const char* raw;  // nullptr: the field is removed
  const char* words;
};

TEST(Config, DimsMustBeWholeAndInRange) {
  const std::vector<const char*> dims = {"hidden_size",
                                         "intermediate_size",
                                         "num_hidden_layers",
                                         "num_attention_heads",
                                         "kv_lora_rank",
                                         "qk_nope_head_dim",
                                         "v_head_dim",
                                         "n_group",
                                         "topk_group",
                                         "num_experts_per_tok",
                                         "vocab_size",
                                         "n_routed_experts",
                                         "q_lora_rank",
                                         "moe_intermediate_size",
                                         "max_position_embeddings"};
  for (const char* name : dims) {
    const bool wide = std::string(name) == "vocab_size" || std::string(name) == "max_position_embeddings";
    for (const char* raw : {"0", "-1", "1e30", "2.5", "64.0", R"("64")", "true", "[64]", "{}", "9223372036854775807",
                            "18446744073709551616", wide ? "2147483649" : "16777217", "1e5"}) {
      EXPECT_THAT(Fault(Doc().Set(name, raw)),
                  HasSubstr(std::string("json: ") + name + ": expected a whole number from 1 to"))
          << raw;
    }
    const bool nullable = std::string(name) == "n_routed_experts" || std::string(name) == "q_lora_rank";
    if (!nullable) {
      EXPECT_THAT(Fault(Doc().Set(name, "null")), HasSubstr(std::string(name) + ": expected")) << name;
    }
    EXPECT_THAT(Fault(Doc().Remove(name)),
                AllOf(HasSubstr(std::string(name) + ": expected"), HasSubstr("found nothing")));
  }
}

TEST(Config, EveryOtherFieldHasItsFaults) {
  const std::vector<Broken> table = {
      {"model_type", nullptr, R"("glm4_moe_lite"), found nothing)"},
      {"model_type", R"("llama")", R"("glm4_moe_lite"), found "llama")"},
      {"model_type", "3", "model_type: "},
      {"num_nextn_predict_layers", "-1", "num_nextn_predict_layers: expected a whole number from 0"},
      {"num_nextn_predict_layers", "1.5", "found 1.5"},
      {"num_key_value_heads", "8", "num_key_value_heads: expected 4 (num_attention_heads), found 8"},
      {"num_key_value_heads", R"("4")", R"(found "4")"},
      {"qk_rope_head_dim", "7", "qk_rope_head_dim: expected an even number, found 7"},
      {"qk_rope_head_dim", "-2", "qk_rope_head_dim: expected a whole number from 0"},
      {"qk_rope_head_dim", nullptr, "qk_rope_head_dim: expected a whole number"},
      {"qk_head_dim", "25", "qk_head_dim: expected 24 (qk_nope_head_dim + qk_rope_head_dim), found 25"},
      {"head_dim", "24", "head_dim: expected 8 (qk_rope_head_dim), found 24"},
      {"q_lora_rank", nullptr, "q_lora_rank: expected a whole number from 1 to 16777216, or null, found nothing"},
      {"rms_norm_eps", nullptr, "rms_norm_eps: expected a number above 0"},
      {"rms_norm_eps", "0", "rms_norm_eps: "},
      {"rms_norm_eps", "-1e-6", "rms_norm_eps: "},
      {"rms_norm_eps", "2", "rms_norm_eps: "},
      {"rms_norm_eps", R"("1e-6")", "rms_norm_eps: "},
      {"hidden_act", R"("gelu")", R"(hidden_act: expected "silu", found "gelu")"},
      {"hidden_act", nullptr, "hidden_act: "},
      {"attention_bias", "true", "attention_bias: expected false, found true"},
      {"attention_bias", R"("false")", R"(attention_bias: expected false, found "false")"},
      {"mlp_bias", "true", "mlp_bias: expected false"},
      {"is_encoder_decoder", "true", "is_encoder_decoder: expected false"},
      {"tie_word_embeddings", R"("true")", "tie_word_embeddings: expected true or false"},
      {"tie_word_embeddings", "1", "tie_word_embeddings: expected true or false"},
      {"bos_token_id", "100", "bos_token_id: expected a whole number from 0 to 99, found 100"},
      {"bos_token_id", "-1", "bos_token_id: "},
      {"bos_token_id", "[0]", "bos_token_id: "},
      {"eos_token_id", "100", "eos_token_id: expected token ids from 0 to 99, found 100"},
      {"eos_token_id", "[1, 100]", "eos_token_id: expected token ids from 0 to 99, found 100"},
      {"eos_token_id", "[]", "eos_token_id: "},
      {"eos_token_id", R"(["1"])", "eos_token_id: "},
      {"eos_token_id", R"("<eos>")", "eos_token_id: "},
      // Experts.
      {"n_shared_experts", nullptr,
       "n_shared_experts: expected a number of experts, or null or 0 for none, found nothing"},
      {"n_shared_experts", "-1", "n_shared_experts: "},
      {"routed_scaling_factor", nullptr, "routed_scaling_factor: expected a number above 0"},
      {"routed_scaling_factor", "0", "routed_scaling_factor: "},
      {"routed_scaling_factor", "-2.5", "routed_scaling_factor: "},
      {"routed_scaling_factor", "1e30", "routed_scaling_factor: "},
      {"norm_topk_prob", nullptr, "norm_topk_prob: expected true or false, found nothing"},
      {"norm_topk_prob", R"("true")", R"(norm_topk_prob: expected true or false, found "true")"},
      {"scoring_func", R"("relu")", R"(scoring_func: expected "softmax" or "sigmoid", found "relu")"},
      {"scoring_func", nullptr,
       R"(scoring_func: expected "softmax" or "sigmoid", found nothing; the routing is not guessed)"},
      {"scoring_func", "null", "scoring_func: "},
      {"topk_method", R"("aux_tc")", R"(or "noaux_tc", found "aux_tc")"},
      {"topk_method", nullptr, R"(or "noaux_tc", found nothing; the routing is not guessed)"},
      {"first_k_dense_replace", nullptr, "first_k_dense_replace: "},
      {"first_k_dense_replace", "-1", "first_k_dense_replace: "},
      {"moe_layer_freq", "0", "moe_layer_freq: expected a whole number from 1"},
      {"moe_layer_freq", "[0, 1, 1]", "moe_layer_freq: expected a whole number from 1"},
      {"num_local_experts", "8", "num_local_experts: expected 16 (n_routed_experts), found 8"},
      {"n_group", "3", "n_group: expected a divisor of n_routed_experts, 16, found 3"},
      {"n_group", "16", "n_group: expected at least 2 of the 16 experts in each group, found 16"},
      {"topk_group", "5", "topk_group: expected at most n_group, 4, found 5"},
      {"num_experts_per_tok", "9", "num_experts_per_tok: expected at most the 8 experts of topk_group groups, found 9"},
      {"num_experts_per_tok", "17", "num_experts_per_tok: expected at most n_routed_experts, 16, found 17"},
      // Rope.
      {"rope_theta", nullptr, "rope_theta: expected a number above 1"},
      {"rope_theta", "null", "rope_theta: "},
      {"rope_theta", "0", "rope_theta: "},
      {"rope_theta", "1", "rope_theta: "},
      {"rope_theta", "1e30", "rope_theta: "},
      {"rope_theta", R"("10000")", R"(rope_theta: expected a number above 1, at most 1e15, found "10000")"},
      {"rope_interleave", R"("true")", "rope_interleave: expected true or false"},
      {"rope_scaling", R"("yarn")", R"(rope_scaling: expected an object or null, found "yarn")"},
      {"rope_scaling", "[]", "rope_scaling: expected an object or null"},
      {"rope_scaling", "{}", R"(rope_scaling.rope_type: expected "default" or "yarn", found nothing)"},
      {"rope_scaling", R"({"type": "linear", "factor": 2})",
       R"(rope_scaling.type: expected "default" or "yarn", found "linear")"},
      {"rope_scaling", R"({"type": "dynamic", "factor": 2})", R"(found "dynamic")"},
      {"rope_scaling", R"({"rope_type": "llama3", "factor": 2})",
       R"(rope_scaling.rope_type: expected "default" or "yarn")"},
      {"rope_scaling", R"({"rope_type": "longrope"})", R"(found "longrope")"},
      {"rope_scaling", R"({"type": "default", "factor": 2})", R"(rope_scaling: expected no field "factor" with this)"},
      {"rope_scaling", R"({"type": "default", "rope_type": "yarn"})", R"(rope_type: expected "default" as in type)"},
      // Whole-config refusals.
      {"quantization_config", R"({"bits": 4})", "quantization_config.quant_method: "},
      {"index_topk", "2048", R"("index_topk": expected no such field)"},
      {"sliding_window", "null", R"("sliding_window": expected no such field)"},
      {"new\\nline", "1", R"("new\x0aline": expected no such field)"},
  };
  for (const Broken& broken : table) {
    Doc doc;
    if (broken.raw == nullptr) {
      doc.Remove(broken.field);
    } else {
      doc.Set(broken.field, broken.raw);
    }
    EXPECT_THAT(Fault(doc), HasSubstr(broken.words)) << broken.field << " = " << (broken.raw ? broken.raw : "(absent)");
  }
}

TEST(Config, YarnHasItsFaults) {
  const auto yarn = [](const std::string& body) {
    return Fault(Doc().Set("rope_scaling", R"({"type": "yarn", )" + body + "}"));
  };
  const std::string orig = R"("original_max_position_embeddings": 4096)";
  EXPECT_EQ(yarn(R"("factor": 1, )" + orig), "");
  EXPECT_THAT(yarn(orig), HasSubstr("rope_scaling.factor: expected a number from 1 to 1e9, found nothing"));
  for (const char* factor : {"0.5", "-1", "0", R"("40")", "null", "1e10", "true"}) {
    EXPECT_THAT(yarn(std::string(R"("factor": )") + factor + ", " + orig), HasSubstr("rope_scaling.factor: "));
  }
  EXPECT_THAT(yarn(R"("factor": 4)"),
              HasSubstr("rope_scaling.original_max_position_embeddings: expected a whole number from 1"));
  const std::string base = R"("factor": 4, )" + orig + ", ";
  const std::vector<std::pair<const char*, const char*>> table = {
      {R"("original_max_position_embeddings2": 1)", R"(expected no field "original_max_position_embeddings2")"},
      {R"("beta_fast": 0)", "rope_scaling.beta_fast: "},
      {R"("beta_fast": "32")", "rope_scaling.beta_fast: "},
      {R"("beta_slow": -1)", "rope_scaling.beta_slow: "},
      {R"("beta_fast": 0.5)", "rope_scaling.beta_fast: expected at least beta_slow, 1, found 0.5"},
      {R"("mscale": -1)", "rope_scaling.mscale: expected a number from 0 to 1000, found -1"},
      {R"("mscale_all_dim": "1")", "rope_scaling.mscale_all_dim: "},
      {R"("attention_factor": 1.2)", "rope_scaling.attention_factor: expected none"},
      {R"("truncate": false)", "rope_scaling.truncate: expected true, found false"},
      {R"("partial_rotary_factor": 0.5)", "rope_scaling.partial_rotary_factor: expected 1, or 0.3333333333333333, "},
      {R"("short_factor": [1, 1])", R"(expected no field "short_factor")"},
  };
  for (const auto& [extra, words] : table) EXPECT_THAT(yarn(base + extra), HasSubstr(words)) << extra;
  for (const char* fine : {R"("attention_factor": null)", R"("truncate": true)", R"("partial_rotary_factor": 1.0)",
                           R"("partial_rotary_factor": 0.3333333333333333)", R"("rope_type": "yarn")",
                           R"("beta_fast": 1, "beta_slow": 1)"}) {
    EXPECT_EQ(yarn(base + fine), "") << fine;
  }
}

TEST(Config, YarnDefaultsAreDeepSeeks) {
  const ModelConfig c = Good(
      Doc().Set("rope_scaling", R"({"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096})"));
  EXPECT_EQ(c.rope.beta_fast, 32);
  EXPECT_EQ(c.rope.beta_slow, 1);
  EXPECT_EQ(c.rope.mscale, 1);
  EXPECT_EQ(c.rope.mscale_all_dim, 0);
  EXPECT_DOUBLE_EQ(SoftmaxScale(c), 1 / std::sqrt(24.0));
  EXPECT_DOUBLE_EQ(CosSinScale(c.rope), 0.1 * std::log(40.0) + 1);
}

bool SameRope(const RopeSpec& a, const RopeSpec& b) {
  return a.layout == b.layout && a.scaling == b.scaling && a.dim == b.dim && a.theta == b.theta &&
         a.factor == b.factor && a.original_max_position_embeddings == b.original_max_position_embeddings &&
         a.beta_fast == b.beta_fast && a.beta_slow == b.beta_slow && a.mscale == b.mscale &&
         a.mscale_all_dim == b.mscale_all_dim;
}

TEST(Config, BothSpellingsOfRopeSayTheSame) {
  const RopeSpec old_one = Good(Doc()).rope;
  const std::string yarn = Doc::Yarn(R"(, "rope_type": "yarn", "rope_theta": 50000.0)");
  EXPECT_TRUE(
      SameRope(old_one, Good(Doc().Remove("rope_scaling").Remove("rope_theta").Set("rope_parameters", yarn)).rope));
  EXPECT_TRUE(SameRope(old_one, Good(Doc().Set("rope_parameters", yarn)).rope));
  EXPECT_TRUE(SameRope(old_one, Good(Doc().Set("rope_scaling", "null").Set("rope_parameters", yarn)).rope));
  const RopeSpec plain = Good(Doc().Remove("rope_scaling")).rope;
  EXPECT_EQ(plain.scaling, RopeScaling::kNone);
  const std::string none = R"({"rope_type": "default", "rope_theta": 50000})";
  EXPECT_TRUE(
      SameRope(plain, Good(Doc().Remove("rope_scaling").Remove("rope_theta").Set("rope_parameters", none)).rope));
  EXPECT_TRUE(SameRope(plain, Good(Doc().Set("rope_scaling", R"({"type": "default"})")).rope));
}

TEST(Config, SpellingsOfRopeThatDisagree) {
  EXPECT_THAT(Fault(Doc().Set("rope_parameters", R"({"rope_type": "default", "rope_theta": 50000})")),
              HasSubstr("rope_parameters: expected the same as in rope_scaling, found another scaling"));
  EXPECT_THAT(Fault(Doc().Set("rope_parameters", Doc::Yarn(R"(, "rope_theta": 10000)"))),
              HasSubstr("rope_parameters.rope_theta: expected 50000 as elsewhere, found 10000"));
  std::string other = Doc::Yarn();
  other.replace(other.find("0.7"), 3, "1.0");
  EXPECT_THAT(Fault(Doc().Set("rope_parameters", other)), HasSubstr("expected the same as in rope_scaling"));
}

TEST(Config, RopeLayouts) {
  EXPECT_EQ(Good(Doc().Set("rope_interleave", "true")).rope.layout, RopeLayout::kInterleaved);
  EXPECT_EQ(Good(Doc().Set("rope_interleave", "false")).rope.layout, RopeLayout::kHalfSplit);
  const ModelConfig nope = Good(Doc().Set("qk_rope_head_dim", "0").Remove("rope_theta"));
  EXPECT_EQ(nope.rope.layout, RopeLayout::kNone);
  EXPECT_EQ(nope.rope.dim, 0);
}

TEST(Config, NanIsNoJson) {
  EXPECT_THAT(Fault(Doc().Set("rms_norm_eps", "NaN")), HasSubstr("expected JSON"));
  EXPECT_THAT(Fault(Doc().Set("routed_scaling_factor", "Infinity")), HasSubstr("expected JSON"));
  EXPECT_THAT(Fault(Doc().Set("hidden_size", "1e999")), HasSubstr("too large"));
}

TEST(Config, FieldsGivenTwiceAreRefused) {
  std::string text = Doc().text();
  text.insert(1, R"("hidden_size": 128, )");
  const Result<ModelConfig> config = ParseConfig(text, "config.json");
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.error().message, HasSubstr(R"(the key "hidden_size" appears twice)"));
}

// Each dim in its range, and yet more than any machine holds: refused before a table of it is made.
TEST(Config, TotalsAreBounded) {
  EXPECT_THAT(Fault(Doc().Set("num_hidden_layers", "16777216")), HasSubstr("at most 1048576 tensors"));
  EXPECT_THAT(Fault(Doc().Set("num_nextn_predict_layers", "16777216")), HasSubstr("at most 1048576 tensors"));
  EXPECT_THAT(Fault(Doc().Set("n_routed_experts", "16777216")), HasSubstr("at most 1048576 tensors"));
  EXPECT_THAT(Fault(Doc().Set("n_routed_experts", "100000").Set("num_hidden_layers", "100")),
              HasSubstr("at most 1048576 tensors"));
  Doc huge;
  for (const char* name : {"hidden_size", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim"}) {
    huge.Set(name, "16777216");
  }
  huge.Set("num_attention_heads", "65536").Set("num_key_value_heads", "65536");
  EXPECT_THAT(Fault(huge), HasSubstr("at most 2^50 parameters"));
  EXPECT_THAT(Fault(Doc()
                        .Set("n_shared_experts", "16777216")
                        .Set("moe_intermediate_size", "16777216")
                        .Set("hidden_size", "16777216")),
              HasSubstr("at most 2^50 parameters"));
}

TEST(Config, HarmlessFieldsOfRealConfigs) {
  Doc doc;
  for (const auto& [name, raw] : std::vector<std::pair<const char*, const char*>>{
           {"architectures", R"(["DeepseekV3ForCausalLM"])"},
           {"attention_bias", "false"},
           {"attention_dropout", "0.0"},
           {"auto_map", R"({"AutoConfig": "configuration_deepseek.DeepseekV3Config"})"},
           {"aux_loss_alpha", "0.001"},
           {"ep_size", "1"},
           {"initializer_range", "0.02"},
           {"pretraining_tp", "1"},
           {"seq_aux", "true"},
           {"torch_dtype", R"("bfloat16")"},
           {"dtype", R"("bfloat16")"},
           {"transformers_version", R"("4.33.1")"},
           {"use_cache", "true"},
           {"_name_or_path", R"("x")"},
           {"pad_token_id", "null"},
           {"qk_head_dim", "24"},
           {"head_dim", "8"},
           {"num_local_experts", "16"},
           {"rope_interleave", "true"},
           {"output_attentions", "false"}}) {
    doc.Set(name, raw);
  }
  Good(doc);
}

TEST(Config, NotAnObject) {
  EXPECT_THAT(ParseConfig("[]", "config.json").error().message, HasSubstr("expected an object, found an array of 0"));
  EXPECT_FALSE(ParseConfig("", "config.json").ok());
}

TEST(LoadConfig, FromAFolderOrAFile) {
  const testing::TempDir dir;
  const std::string path = dir.Write("config.json", Doc().text());
  EXPECT_TRUE(LoadConfig(dir.path()).ok());
  EXPECT_TRUE(LoadConfig(path).ok());
  const Result<ModelConfig> absent = LoadConfig(dir.File("nowhere"));
  ASSERT_FALSE(absent.ok());
  EXPECT_THAT(absent.error().message, AllOf(HasSubstr("nowhere"), HasSubstr("No such file")));
  dir.Write("config.json", Doc().Remove("hidden_size").text());
  EXPECT_THAT(LoadConfig(dir.path()).error().message, HasSubstr(path + ": hidden_size: expected"));
}

TEST(LoadConfig, TheDemo) {
  const Result<ModelConfig> config = LoadConfig(testing::DemoDir());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->kv_lora_rank, 64);
  EXPECT_EQ(config->rope.factor, 4);
}

// Any single byte lost or changed gives a config or one line, never a crash.
TEST(Config, DamagedTexts) {
  const std::string text = Doc().text();
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_FALSE(ParseConfig(text.substr(0, i), "config.json").ok()) << i;
    for (const char c : {'\0', '"', '9', '-', '{', '\xff'}) {
      std::string damaged = text;
      damaged[i] = c;
      const Result<ModelConfig> config = ParseConfig(damaged, "config.json");
      const std::string message = config.ok() ? "" : config.error().message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace mla::contract
