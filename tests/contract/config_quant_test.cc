// quantization_config: fp8 in blocks is read, everything else is refused by name.
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/config.h"
#include "testing/tiny_checkpoint.h"

namespace mla::contract {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Result<ModelConfig> Parse(const std::string& quantisation) {
  std::string json = testing::TinyConfigJson();
  json.insert(json.find('{') + 1, "\"quantization_config\": " + quantisation + ",");
  return ParseConfig(json, "config.json");
}

Fp8Config Good(const std::string& quantisation) {
  const Result<ModelConfig> config = Parse(quantisation);
  EXPECT_TRUE(config.ok()) << quantisation << ": " << config.error().message;
  return config.ok() && config->fp8 ? *config->fp8 : Fp8Config();
}

TEST(ConfigQuant, BlocksOfFp8) {
  // DeepSeek-V3's, V3.1's, and what other exports add.
  const Fp8Config v3 = Good(R"({"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                                "weight_block_size": [128, 128]})");
  EXPECT_EQ(v3.block_rows, 128);
  EXPECT_EQ(v3.block_columns, 128);
  EXPECT_FALSE(v3.power_of_two_scales);
  EXPECT_TRUE(Good(R"({"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "scale_fmt": "ue8m0",
                       "weight_block_size": [128, 128]})")
                  .power_of_two_scales);
  const Fp8Config odd =
      Good(R"({"quant_method": "fp8", "weight_block_size": [1, 77], "scale_fmt": null, "fmt": "float8_e4m3fn",
               "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"], "ignored_layers": null})");
  // As transformers 5 saves it.
  EXPECT_FALSE(Good(R"({"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic",
                        "dequantize": false, "modules_to_not_convert": null, "modules_to_convert": null,
                        "scale_fmt": "float", "expert_dtype": "fp8"})")
                   .power_of_two_scales);
  EXPECT_EQ(odd.block_rows, 1);
  EXPECT_EQ(odd.block_columns, 77);
  EXPECT_FALSE(Parse("null")->fp8.has_value());
}

TEST(ConfigQuant, EverythingElseIsRefusedByName) {
  const auto fp8 = [](const std::string& more) {
    return R"({"quant_method": "fp8", "weight_block_size": [128, 128], )" + more + "}";
  };
  const auto blocks = [](const std::string& size) {
    return R"({"quant_method": "fp8", "weight_block_size": )" + size + "}";
  };
  const std::vector<std::pair<std::string, std::string>> table = {
      {"1", "quantization_config: expected an object or null, found 1"},
      {R"({"bits": 4})", R"(quantization_config.quant_method: expected "fp8", found nothing)"},
      {R"({"quant_method": "compressed-tensors"})", R"(quant_method: expected "fp8", found "compressed-tensors")"},
      {R"({"quant_method": "gptq", "bits": 4})", R"(found "gptq")"},
      {R"({"quant_method": "awq"})", R"(found "awq")"},
      {R"({"quant_method": "bitsandbytes"})", R"(found "bitsandbytes")"},
      {R"({"quant_method": "fbgemm_fp8"})", R"(found "fbgemm_fp8")"},
      // One scale for a whole tensor.
      {R"({"quant_method": "fp8"})", "quantization_config.weight_block_size: expected [rows, columns] from 1"},
      {blocks("null"), "weight_block_size: expected [rows, columns] from 1"},
      {blocks("[128]"), "found an array of 1"},
      {blocks("[128, 0]"), "found [128, 0]"},
      {blocks("[-1, 128]"), "found [-1, 128]"},
      {blocks("[128, 1.5]"), "found [128, 1.5]"},
      {blocks("[16777217, 1]"), "found [16777217, 1]"},
      {blocks("128"), "found 128"},
      {fp8(R"("fmt": "e5m2")"), R"(quantization_config.fmt: expected "e4m3" or "float8_e4m3fn", found "e5m2")"},
      {fp8(R"("activation_scheme": "static")"), R"(activation_scheme: expected "dynamic", found "static")"},
      {fp8(R"("scale_fmt": "int")"), R"(scale_fmt: expected "ue8m0" or "float", found "int")"},
      {fp8(R"("expert_dtype": "fp4")"), R"(expert_dtype: expected "fp8", found "fp4")"},
      {fp8(R"("dequantize": 1)"), "dequantize: expected true or false"},
      {fp8(R"("ignored_layers": "lm_head")"), "ignored_layers: expected a list of names, or null, found"},
      {fp8(R"("modules_to_not_convert": ["a", 1])"), "modules_to_not_convert: expected a list of names"},
      {fp8(R"("kv_cache_scheme": {})"),
       R"(quantization_config: expected no field "kv_cache_scheme" with fp8, found one)"},
  };
  for (const auto& [quantisation, fault] : table) {
    const Result<ModelConfig> config = Parse(quantisation);
    ASSERT_FALSE(config.ok()) << quantisation;
    EXPECT_THAT(config.error().message, AllOf(HasSubstr("config.json: quantization_config"), HasSubstr(fault)));
  }
}

}  // namespace
}  // namespace mla::contract
