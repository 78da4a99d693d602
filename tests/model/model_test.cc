// Loading a model: what it says of itself, and how it refuses.
#include "model/model.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/models.h"

namespace mla::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string FailureOf(const std::string& dir, const LoadOptions& options = {}) {
  const auto pool = MakeThreadPool(1);
  const auto model = Model::Load(dir, options, *pool);
  if (model.ok()) return "";
  EXPECT_THAT(model.error().message, Not(HasSubstr("\n")));
  return model.error().message;
}

TEST(Model, SaysWhatItsConfigSays) {
  const TempDir dir;
  WriteTinyCheckpoint(dir.path(), TinyConfigJson(HalfSplitOptions()), 1);
  const Model model = LoadModel(dir.path(), WeightDType::kBF16);
  const ModelInfo& info = model.info();
  EXPECT_EQ(info.model_type, "deepseek_v3");
  EXPECT_EQ(info.dims.num_attention_heads, 5);
  EXPECT_EQ(info.dims.kv_lora_rank, 24);
  EXPECT_EQ(info.dims.qk_nope_head_dim, 18);
  EXPECT_EQ(info.dims.qk_rope_head_dim, 12);
  EXPECT_EQ(info.dims.v_head_dim, 10);
  EXPECT_EQ(info.vocab_size, 96);
  EXPECT_EQ(info.hidden_size, 64);
  EXPECT_EQ(info.layers, 3);
  EXPECT_EQ(info.max_position_embeddings, 4096);
  EXPECT_EQ(info.bos_id, 0);
  EXPECT_EQ(info.eos_ids, std::vector<std::int32_t>{1});
  EXPECT_EQ(info.sampling.temperature, 0);
  EXPECT_EQ(info.sampling.repetition_penalty, 1);
}

TEST(Model, GenerationConfigGoesFirst) {
  const TempDir dir;
  WriteTinyCheckpoint(dir.path(), TinyConfigJson(), 1);
  dir.Write(
      "generation_config.json",
      R"({"eos_token_id": [7, 9], "bos_token_id": 3, "do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 40})");
  const Model model = LoadModel(dir.path(), WeightDType::kBF16);
  EXPECT_EQ(model.info().eos_ids, (std::vector<std::int32_t>{7, 9}));
  EXPECT_EQ(model.info().bos_id, 3);
  EXPECT_EQ(model.info().sampling.temperature, 0.6);
  EXPECT_EQ(model.info().sampling.top_p, 0.95);
  EXPECT_EQ(model.info().sampling.top_k, 40);
  // Without do_sample the other values are idle.
  dir.Write("generation_config.json", R"({"do_sample": false, "temperature": 0.6})");
  EXPECT_EQ(LoadModel(dir.path(), WeightDType::kBF16).info().sampling.temperature, 0);
}

TEST(Model, RefusalsNameTheFile) {
  const TempDir dir;
  EXPECT_THAT(FailureOf(dir.File("none")), HasSubstr("none: expected a folder with config.json"));
  EXPECT_THAT(FailureOf(dir.path()), HasSubstr("config.json"));
  WriteTinyCheckpoint(dir.path(), TinyConfigJson(), 1);
  EXPECT_EQ(FailureOf(dir.path()), "");
  // Another model's weights.
  TinyOptions wider;
  wider.hidden_size = 80;
  dir.Write("config.json", TinyConfigJson(wider));
  EXPECT_THAT(FailureOf(dir.path()), HasSubstr("model.embed_tokens.weight: expected [96, 80]"));
  dir.Write("config.json", TinyConfigJson());
  std::filesystem::remove(dir.File("model.safetensors"));
  EXPECT_NE(FailureOf(dir.path()), "");
}

TEST(Model, AMemoryBoundIsHeldBeforeAnythingIsAllocated) {
  const TempDir dir;
  WriteTinyCheckpoint(dir.path(), TinyConfigJson(), 1);
  const auto opened = Need(model::Open(dir.path()));
  LoadOptions options;
  options.memory = model::PlannedWeightBytes(opened, options.weights) - 1;
  EXPECT_EQ(FailureOf(dir.path(), options), "weights: " + std::to_string(options.memory + 1) +
                                                " bytes are needed, and " + std::to_string(options.memory) +
                                                " are allowed");
  ++options.memory;
  EXPECT_EQ(FailureOf(dir.path(), options), "");
}

// The source may go once a model is loaded: everything was packed.
TEST(Model, StandsAloneOnceLoaded) {
  const TempDir dir;
  WriteTinyCheckpoint(dir.path(), TinyConfigJson(), 1);
  const auto pool = MakeThreadPool(1);
  std::optional<model::Opened> opened = Need(model::Open(dir.path()));
  const Model model = Need(model::LoadOpened(*opened, {}, *pool));
  opened.reset();
  std::filesystem::remove_all(dir.path());
  EXPECT_EQ(model.info().vocab_size, 96);
  std::vector<float> row(64);
  model.impl().weights.embed.Lookup(95, row.data());
  EXPECT_NE(row, std::vector<float>(64));
}

}  // namespace
}  // namespace mla::testing
