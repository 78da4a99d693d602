// mla inspect: numbers that published models are known by, from a config alone and from a checkpoint.
#include <cmath>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "testing/temp_dir.h"

namespace mla::testing {
namespace {

using Json = nlohmann::json;

// DeepSeek-V3's dims, as its config.json gives them, without the quantisation.
Json DeepSeekV3() {
  return {{"model_type", "deepseek_v3"},
          {"vocab_size", 129280},
          {"hidden_size", 7168},
          {"intermediate_size", 18432},
          {"moe_intermediate_size", 2048},
          {"num_hidden_layers", 61},
          {"num_nextn_predict_layers", 1},
          {"num_attention_heads", 128},
          {"num_key_value_heads", 128},
          {"n_shared_experts", 1},
          {"n_routed_experts", 256},
          {"routed_scaling_factor", 2.5},
          {"kv_lora_rank", 512},
          {"q_lora_rank", 1536},
          {"qk_rope_head_dim", 64},
          {"v_head_dim", 128},
          {"qk_nope_head_dim", 128},
          {"topk_method", "noaux_tc"},
          {"n_group", 8},
          {"topk_group", 4},
          {"num_experts_per_tok", 8},
          {"moe_layer_freq", 1},
          {"first_k_dense_replace", 3},
          {"norm_topk_prob", true},
          {"scoring_func", "sigmoid"},
          {"hidden_act", "silu"},
          {"max_position_embeddings", 163840},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 10000},
          {"rope_scaling",
           {{"type", "yarn"},
            {"factor", 40},
            {"original_max_position_embeddings", 4096},
            {"beta_fast", 32},
            {"beta_slow", 1},
            {"mscale", 1.0},
            {"mscale_all_dim", 1.0}}},
          {"attention_bias", false},
          {"tie_word_embeddings", false},
          {"bos_token_id", 0},
          {"eos_token_id", 1}};
}

Json InspectJson(const std::string& path) {
  const ProcessResult result = Mla({"inspect", path, "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return Json::parse(result.out, nullptr, false);
}

TEST(Inspect, DeepSeekV3FromItsConfig) {
  const TempDir dir;
  const Json j = InspectJson(dir.Write("config.json", DeepSeekV3().dump()));
  EXPECT_NEAR(j["softmax_scale"]["value"].get<double>(), 0.13523, 5e-6);  // published to five digits
  EXPECT_EQ(j["cos_sin_scale"]["value"], 1.0);
  EXPECT_EQ(j["cache_bytes_per_token"]["bf16"], 70272);  // 61 layers of 576 bf16
  EXPECT_EQ(j["cache_bytes_per_token"]["mha_same_heads_bf16"], std::int64_t{61} * 128 * (192 + 128) * 2);
  EXPECT_NEAR(j["parameters"]["total"].get<double>(), 671e9, 1e9);  // as published
  EXPECT_NEAR(j["parameters"]["active"].get<double>(), 37e9, 1e9);
  EXPECT_TRUE(j["tensors"].is_null());
  const ProcessResult text = Mla({"inspect", dir.path()});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("0.13523 = (128 + 64)^-1/2 * (0.1 * 1 * ln 40 + 1)^2"), std::string::npos) << text.out;
}

TEST(Inspect, UnequalMscalesShowInTheRatio) {
  const TempDir dir;
  Json config = DeepSeekV3();
  config["rope_scaling"]["mscale"] = 0.707;
  const Json j = InspectJson(dir.Write("config.json", config.dump()));
  EXPECT_NEAR(j["cos_sin_scale"]["value"].get<double>(), (0.0707 * std::log(40.0) + 1) / (0.1 * std::log(40.0) + 1),
              1e-12);
}

TEST(Inspect, TheDemo) {
  const Json j = InspectJson(DemoDir());
  EXPECT_TRUE(j["tensors"]["ok"]);
  EXPECT_EQ(j["tensors"]["count"], 171);
  EXPECT_EQ(j["cache_bytes_per_token"]["bf16"], 4 * 80 * 2);
  EXPECT_EQ(j["routing"]["n_routed_experts"], 8);
  // Rows kept twice (w_kc) make the loaded weights larger than the file.
  EXPECT_GT(j["weight_bytes"]["bf16"].get<std::int64_t>(), 12'572'152 - 200'000);
}

// A model that can't be run: its attention is shown, and why not.
TEST(Inspect, AnOutlineOfWhatCannotBeRun) {
  const TempDir dir;
  Json config = DeepSeekV3();
  config["model_type"] = "deepseek_v32";
  config["index_topk"] = 2048;
  const std::string path = dir.Write("config.json", config.dump());
  const Json j = InspectJson(path);
  EXPECT_NEAR(j["softmax_scale"]["value"].get<double>(), 0.13523, 5e-6);
  EXPECT_EQ(j["can_be_run"], false);
  EXPECT_EQ(j["latent_bytes_per_token_bf16"], 70272);
  const ProcessResult text = Mla({"inspect", path});
  EXPECT_NE(text.out.find("0.13523 = (128 + 64)^-1/2"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("no: a sparse-attention indexer"), std::string::npos) << text.out;
  dir.Write("model.safetensors", "");  // with weights beside it, it is a model that was meant to be run
  ExpectOneLine(Mla({"run", dir.path(), "--ids", "1"}), {"model_type", "deepseek_v32"});
  EXPECT_EQ(Mla({"inspect", dir.path()}).exit_code, 1);
}

TEST(Inspect, WhatIsRefusedIsNamed) {
  const std::vector<std::pair<std::string, Json>> faults = {{"scoring_func", "tanh"},
                                                            {"topk_method", "best"},
                                                            {"model_type", "gpt2"},
                                                            {"quantization_config", {{"quant_method", "fp8"}}}};
  for (const auto& [key, value] : faults) {
    const TempDir dir;
    Json config = DeepSeekV3();
    config[key] = value;
    const std::string found = value.is_string() ? value.get<std::string>() : "fp8";
    ExpectOneLine(Mla({"inspect", dir.Write("config.json", config.dump())}), {key, found});
    if (value.is_object()) continue;
    config.erase(key);
    ExpectOneLine(Mla({"inspect", dir.Write("config.json", config.dump())}), {key});
  }
}

}  // namespace
}  // namespace mla::testing
