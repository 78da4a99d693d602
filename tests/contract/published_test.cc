// The configs of published models (models/configs, tests/contract/data/published): what they are read as.
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/config.h"
#include "contract/families.h"
#include "contract/outline.h"
#include "contract/tensors.h"

namespace mla::contract {
namespace {

using ::testing::HasSubstr;

std::string Runnable(const std::string& name) {
  return std::string(MLA_SOURCE_DIR) + "/models/configs/" + name + ".json";
}
std::string Other(const std::string& name) {
  return std::string(MLA_SOURCE_DIR) + "/tests/contract/data/published/" + name + ".json";
}

struct Published {
  const char* name;
  double softmax_scale;           // to five digits
  std::int64_t latent_bytes;      // bf16, a token, over all layers; 0: not told
  const char* blocker = nullptr;  // a word of it; null for what can be run
};

// The two figures of each model are the public ones; DeepSeek-V2's bytes follow from 60 layers of 576.
const Published kShipped[] = {{"deepseek-v2-lite", 0.11472, 31104}, {"deepseek-v3", 0.13523, 70272},
                              {"kimi-k2", 0.13086, 70272},          {"moonlight", 0.07217, 31104},
                              {"minicpm3", 0.10206, 35712},         {"glm-4.7-flash", 0.0625, 54144}};
const Published kOthers[] = {{"deepseek-v2", 0.11472, 69120},
                             {"deepseek-v2-mscale-1", 0.13523, 69120},
                             {"deepseek-v3.1", 0.13523, 70272},
                             {"deepseek-v3.2", 0.13523, 70272, "indexer"},
                             {"kimi-k2-thinking", 0.14468, 70272, "compressed-tensors"},
                             {"kimi-k2.5", 0.14468, 70272, "sees"},
                             {"glm-5", 0.0625, 89856, "indexer"},
                             {"longcat-flash", 0.07217, 64512, "two attentions"},
                             {"mistral-small-4", 0.19497, 23040, "scaled by position"},
                             {"kimi-linear-48b-a3b", 0.07217, 8064, "linear attention"}};

void ExpectRunnable(const std::string& path, const Published& p) {
  const Result<ModelConfig> config = LoadConfig(path);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_NEAR(SoftmaxScale(*config), p.softmax_scale, 5e-6) << path;
  EXPECT_EQ(2 * config->num_hidden_layers * (config->kv_lora_rank + config->qk_rope_head_dim), p.latent_bytes) << path;
  EXPECT_EQ(config->latent_norm_eps, 1e-6) << path;
  EXPECT_FALSE(LoadOutline(path).ok()) << path;
}

void ExpectOutline(const std::string& path, const Published& p) {
  EXPECT_FALSE(LoadConfig(path).ok()) << path;
  const Result<Outline> outline = LoadOutline(path);
  ASSERT_TRUE(outline.ok()) << outline.error().message;
  EXPECT_NEAR(outline->softmax_scale(), p.softmax_scale, 5e-6) << path;
  EXPECT_EQ(outline->latent_bytes_bf16(), p.latent_bytes) << path;
  EXPECT_THAT(outline->blocker, HasSubstr(p.blocker)) << path;
}

TEST(Published, SoftmaxScaleAndCacheBytes) {
  for (const Published& p : kShipped) ExpectRunnable(Runnable(p.name), p);
  for (const Published& p : kOthers) {
    if (p.blocker == nullptr) {
      ExpectRunnable(Other(p.name), p);
    } else {
      ExpectOutline(Other(p.name), p);
    }
  }
}

// Every file is in the tables above.
TEST(Published, NoneIsForgotten) {
  std::set<std::string> known;
  for (const Published& p : kShipped) known.insert(Runnable(p.name));
  for (const Published& p : kOthers) known.insert(Other(p.name));
  std::set<std::string> found;
  for (const std::string& some : {Runnable("x"), Other("x")}) {
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(some).parent_path())) {
      if (entry.path().extension() == ".json") found.insert(entry.path().string());
    }
  }
  EXPECT_EQ(found, known);
}

TEST(Published, ParametersAreAsPublished) {
  const std::map<std::string, double> billions = {
      {"deepseek-v2-lite", 15.7}, {"deepseek-v3", 671}, {"kimi-k2", 1026}, {"moonlight", 16}, {"minicpm3", 4.07}};
  for (const auto& [name, total] : billions) {
    const Result<ModelConfig> config = LoadConfig(Runnable(name));
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_NEAR(static_cast<double>(CountParameters(*config).total) / 1e9, total, 0.01 * total) << name;
  }
}

// A family that can be run has no row of the others' table: that row's blocker would win.
TEST(Outline, NoFamilyIsInBothTables) {
  for (const Family& family : Families()) {
    const auto outline = ParseOutline(R"({"model_type": ")" + std::string(family.model_type) + "\"}", "x");
    ASSERT_FALSE(outline.ok()) << family.model_type;
    EXPECT_THAT(outline.error().message, HasSubstr("of a family that can be run"));
  }
}

TEST(Outline, AFaultOfARunnableConfigStaysOne) {
  const std::string v3 = R"({"model_type": "deepseek_v3", "num_hidden_layers": 2})";
  EXPECT_FALSE(ParseOutline(v3, "config.json").ok());
  EXPECT_FALSE(ParseOutline(R"({"model_type": "llama"})", "config.json").ok());
  EXPECT_FALSE(ParseOutline(R"({"text_config": 3})", "config.json").ok());
  EXPECT_FALSE(ParseOutline("[]", "config.json").ok());
  // Kimi-Linear's list of layers is read of it alone, and must be one.
  const std::string linear =
      R"({"model_type": "kimi_linear", "num_hidden_layers": 4, "num_attention_heads": 2, "kv_lora_rank": 8,
          "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4, "mla_use_nope": true, "linear_attn_config": )";
  EXPECT_EQ(ParseOutline(linear + R"({"full_attn_layers": [2, 4]}})", "x").value().latent_layers, 2);
  for (const char* wrong : {"{}}", R"({"full_attn_layers": 2}})", R"({"full_attn_layers": [0]}})",
                            R"({"full_attn_layers": [5]}})", R"({"full_attn_layers": [1, 2, 3, 4, 1]}})"}) {
    const Result<Outline> outline = ParseOutline(linear + wrong, "x");
    ASSERT_FALSE(outline.ok()) << wrong;
    EXPECT_THAT(outline.error().message, HasSubstr("linear_attn_config.full_attn_layers: expected a list")) << wrong;
  }
  const Result<Outline> missing =
      ParseOutline(R"({"model_type": "deepseek_v32", "num_hidden_layers": 2})", "config.json");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("config.json: num_attention_heads: expected "));
}

}  // namespace
}  // namespace mla::contract
