// Configs as shapes: windows and hybrids, other attentions of the same model, and configs that lie or lack fields.
#include "plan/shape.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/plan_testing.h"

namespace mla::testing {
namespace {

using plan::AttentionKind;
using plan::ParseShape;
using plan::Shape;
using ::testing::HasSubstr;
using Json = std::map<std::string, std::string>;

Json Llama() {
  return {{"model_type", "\"llama\""},
          {"hidden_size", "64"},
          {"intermediate_size", "96"},
          {"num_hidden_layers", "4"},
          {"num_attention_heads", "8"},
          {"num_key_value_heads", "2"},
          {"head_dim", "8"},
          {"vocab_size", "100"},
          {"max_position_embeddings", "1024"},
          {"tie_word_embeddings", "false"}};
}

std::string Text(const Json& json) {
  std::string text = "{";
  for (const auto& [name, value] : json) text += (text.size() > 1 ? ",\"" : "\"") + name + "\":" + value;
  return text + "}";
}

Result<Shape> With(Json changes, Json base = Llama()) {
  for (const auto& [name, value] : changes) {
    if (value.empty()) {
      base.erase(name);
    } else {
      base[name] = value;
    }
  }
  return ParseShape(Text(base), "config.json");
}

void ExpectFault(const Json& changes, const std::string& word) {
  const Result<Shape> shape = With(changes);
  ASSERT_FALSE(shape.ok()) << word << " in " << Text(changes);
  EXPECT_THAT(shape.error().message, HasSubstr("config.json: "));
  EXPECT_THAT(shape.error().message, HasSubstr(word));
  EXPECT_EQ(shape.error().message.find('\n'), std::string::npos) << shape.error().message;
}

TEST(Shape, OfLlama) {
  const Shape shape = Need(With({}));
  ASSERT_EQ(shape.groups.size(), 1U);
  EXPECT_EQ(shape.groups[0].layers, 4);
  EXPECT_EQ(shape.groups[0].heads_per_row(), 4);
  EXPECT_EQ(shape.groups[0].elements(), 2 * 2 * 8);
  // By hand: embedding and head, q and o, k and v, three MLP products, two norms a layer and the last.
  EXPECT_EQ(shape.parameters->total(), 2 * 100 * 64 + 4 * (2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 96 + 2 * 64) + 64);
  EXPECT_THAT(shape.not_run, HasSubstr("keys and values by head"));
}

TEST(Shape, ConfigsThatLieOrLackFields) {
  for (const char* name : {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
                           "max_position_embeddings"}) {
    for (const char* value : {"", "0", "-1", "null", "\"8\"", "8.5", "true", "[8]", "{}", "99999999999999999999",
                              "9223372036854775807", "1e30"}) {
      ExpectFault({{name, value}}, name);
    }
  }
  for (const char* value : {"0", "-1", "\"8\"", "8.5", "true", "[8]", "99999999999999999999", "70000"}) {
    ExpectFault({{"num_key_value_heads", value}}, "num_key_value_heads");
  }
  for (const char* value : {"0", "-1", "\"8\"", "8.5", "true", "[8]", "99999999999999999999"}) {
    ExpectFault({{"head_dim", value}}, "head_dim");
  }
  ExpectFault({{"num_key_value_heads", "3"}}, "a divisor of num_attention_heads = 8");
  ExpectFault({{"num_key_value_heads", "16"}}, "a divisor of num_attention_heads = 8");
  ExpectFault({{"head_dim", ""}, {"num_attention_heads", "6"}}, "head_dim");
  ExpectFault({{"model_type", ""}}, "model_type");
  ExpectFault({{"model_type", "7"}}, "model_type");
  ExpectFault({{"tie_word_embeddings", "1"}}, "tie_word_embeddings");
  ExpectFault({{"model_type", "\"qwen3\""}, {"num_key_value_heads", ""}}, "num_key_value_heads");
  ExpectFault({{"model_type", "\"unheard-of\""}, {"head_dim", ""}}, "head_dim");
  // Dims that are each in range and describe what no number holds.
  ExpectFault({{"hidden_size", "16777216"}, {"intermediate_size", "16777216"}, {"num_hidden_layers", "1048576"}},
              "parameters");
}

// A family of latents is read by its own contract, whatever it leaves out.
TEST(Shape, LatentConfigsThatLackFields) {
  TinyOptions tiny;
  const std::string whole = TinyConfigJson(tiny);
  ASSERT_TRUE(ParseShape(whole, "config.json").ok());
  for (const char* name : {"kv_lora_rank", "qk_nope_head_dim", "n_routed_experts", "scoring_func"}) {
    std::string text = whole;
    const std::size_t at = text.find(std::string("\"") + name + "\"");
    ASSERT_NE(at, std::string::npos) << name;
    text.insert(at + 1, "_");
    const Result<Shape> shape = ParseShape(text, "config.json");
    ASSERT_FALSE(shape.ok()) << name;
    EXPECT_EQ(shape.error().message.find('\n'), std::string::npos) << name;
    EXPECT_THAT(shape.error().message, HasSubstr("config.json: ")) << name;
  }
}

TEST(Shape, WhatIsNoConfig) {
  for (const char* text : {"", "[]", "7", "null", "{", "{}", "\"x\""}) {
    const Result<Shape> shape = ParseShape(text, "config.json");
    ASSERT_FALSE(shape.ok()) << text;
    EXPECT_EQ(shape.error().message.find('\n'), std::string::npos) << text;
  }
}

TEST(Shape, OtherAttentionsAreRefusedByName) {
  for (const char* name : {"attn_layer_period", "hybrid_override_pattern", "layers_block_type", "linear_attn_config",
                           "num_kv_shared_layers", "mamba_d_state", "is_encoder_decoder", "block_configs"}) {
    ExpectFault({{name, "3"}}, name);
    EXPECT_TRUE(With({{name, "null"}}).ok()) << name;
    EXPECT_TRUE(With({{name, "false"}}).ok()) << name;
  }
  ExpectFault({{"kv_lora_rank", "512"}}, "model_type");
  ExpectFault({{"layer_types", R"(["full_attention","mamba","full_attention","full_attention"])"}}, "layer_types[1]");
  ExpectFault({{"layer_types", R"(["full_attention"])"}}, "layer_types");
  ExpectFault({{"layer_types", "3"}}, "layer_types");
  ExpectFault({{"layer_types", "[1,2,3,4]"}}, "layer_types[0]");
  const std::string sliding = R"(["sliding_attention","full_attention","sliding_attention","full_attention"])";
  ExpectFault({{"layer_types", sliding}}, "sliding_window");
  ExpectFault({{"layer_types", sliding}, {"sliding_window", "0"}}, "sliding_window");
  ExpectFault({{"layer_types", R"(["linear_attention","full_attention","full_attention","full_attention"])"}},
              "layer_types[0]");
  // A window of nobody knows which layers.
  ExpectFault({{"model_type", "\"unheard-of\""}, {"sliding_window", "16"}}, "layer_types");
}

std::map<std::int64_t, std::int64_t> Windows(const Shape& shape) {
  std::map<std::int64_t, std::int64_t> layers;
  for (const plan::LayerGroup& g : shape.groups) layers[g.kind == AttentionKind::kLinear ? -1 : g.window] += g.layers;
  return layers;
}

TEST(Shape, WindowsAsEachFamilyHasThem) {
  using Map = std::map<std::int64_t, std::int64_t>;
  EXPECT_EQ(Windows(Need(With({{"sliding_window", "16"}}))), (Map{{0, 4}}));  // Llama's code has none
  EXPECT_EQ(Windows(Need(With({{"model_type", "\"mistral\""}, {"sliding_window", "16"}}))), (Map{{16, 4}}));
  EXPECT_EQ(Windows(Need(With({{"model_type", "\"mistral\""}, {"sliding_window", "null"}}))), (Map{{0, 4}}));
  const Json qwen = {{"model_type", "\"qwen2\""}, {"sliding_window", "16"}, {"max_window_layers", "3"}};
  EXPECT_EQ(Windows(Need(With(qwen))), (Map{{0, 4}}));
  Json on = qwen;
  on["use_sliding_window"] = "true";
  EXPECT_EQ(Windows(Need(With(on))), (Map{{0, 3}, {16, 1}}));
  EXPECT_EQ(Windows(Need(With({{"model_type", "\"gemma2\""}, {"sliding_window", "16"}}))), (Map{{0, 2}, {16, 2}}));
  EXPECT_EQ(Windows(Need(
                With({{"model_type", "\"gemma3_text\""}, {"sliding_window", "16"}, {"sliding_window_pattern", "3"}}))),
            (Map{{0, 1}, {16, 3}}));
  EXPECT_EQ(
      Windows(Need(With({{"layer_types", R"(["chunked_attention","full_attention","full_attention","full_attention"])"},
                         {"attention_chunk_size", "32"}}))),
      (Map{{0, 3}, {32, 1}}));
  EXPECT_EQ(Windows(ShapeAt(OtherConfig("gemma-3-27b"))), (Map{{0, 10}, {1024, 52}}));
  EXPECT_EQ(Windows(ShapeAt(OtherConfig("gpt-oss-120b"))), (Map{{0, 18}, {128, 18}}));
  EXPECT_EQ(Windows(ShapeAt(OtherConfig("qwen3-next-80b-a3b"))), (Map{{-1, 36}, {0, 12}}));
}

TEST(Shape, Experts) {
  const Shape shape = Need(With({{"model_type", "\"qwen3_moe\""},
                                 {"num_experts", "16"},
                                 {"num_experts_per_tok", "2"},
                                 {"moe_intermediate_size", "32"},
                                 {"decoder_sparse_step", "2"},
                                 {"mlp_only_layers", "[1]"}}));
  EXPECT_EQ(shape.experts.layers, 1);  // layer 3 alone
  EXPECT_EQ((*shape.parameters)[plan::Part::kExperts], 16 * 3 * 64 * 32);
  EXPECT_EQ((*shape.parameters)[plan::Part::kDense], 3 * 3 * 64 * 96);
  ExpectFault({{"num_experts", "16"}}, "num_experts_per_tok");
  ExpectFault({{"num_experts", "16"}, {"num_experts_per_tok", "17"}}, "num_experts_per_tok");
  ExpectFault({{"num_local_experts", "-2"}, {"num_experts_per_tok", "1"}}, "num_local_experts");
  ExpectFault({{"num_experts", "16"}, {"num_experts_per_tok", "1"}, {"mlp_only_layers", "[9]"}}, "mlp_only_layers");
}

// Models that this version outlines: their attention alone.
TEST(Shape, Outlines) {
  const std::string dir = std::string(MLA_SOURCE_DIR) + "/tests/contract/data/published/";
  const std::pair<const char*, std::int64_t> kBytes[] = {{"deepseek-v3.2", 70272},      {"glm-5", 89856},
                                                         {"longcat-flash", 64512},      {"mistral-small-4", 23040},
                                                         {"kimi-linear-48b-a3b", 8064}, {"kimi-k2.5", 70272}};
  for (const auto& [name, bytes] : kBytes) {
    const Shape shape = ShapeAt(dir + name + ".json");
    EXPECT_EQ(Need(plan::TokenBytes(shape, Row("bf16"))), bytes) << name;
    EXPECT_FALSE(shape.parameters) << name;
    EXPECT_FALSE(shape.not_run.empty()) << name;
  }
}

TEST(WithAttention, ChangesCacheAndProjectionsAlone) {
  const Shape v3 = ShapeAt(LatentConfig("deepseek-v3"));
  const Shape gqa = Need(plan::WithAttention(v3, "gqa:8"));
  EXPECT_EQ(gqa.groups[0].elements(), 8 * 320);
  EXPECT_EQ(gqa.parameters->total() - v3.parameters->total(),
            61 * (7168 * std::int64_t{8 * 320} - 7168 * 576 - 512 * std::int64_t{128 * 256}));
  EXPECT_EQ(Need(plan::WithAttention(v3, "mqa")).groups[0].elements(), 320);
  EXPECT_EQ(Need(plan::WithAttention(v3, "mla")).name, v3.name);
  // Llama-3-8B by DeepSeek-V2's proportions: R = 4 * 128, P = 64.
  const Shape latent = Need(plan::WithAttention(ShapeAt(OtherConfig("llama-3-8b")), "mla"));
  EXPECT_EQ(latent.groups[0].kind, AttentionKind::kLatent);
  EXPECT_EQ(latent.groups[0].elements(), 576);
  EXPECT_EQ(latent.groups[0].latent.qk_nope_head_dim, 128);
  for (const char* text : {"", "gqa", "gqa:", "gqa:0", "gqa:3", "gqa:-8", "gqa:8x", "mha:2", "MHA"}) {
    const auto bad = plan::WithAttention(v3, text);
    ASSERT_FALSE(bad.ok()) << text;
    EXPECT_THAT(bad.error().message, HasSubstr("expected mha, mqa, mla, or gqa:G"));
  }
}

}  // namespace
}  // namespace mla::testing
