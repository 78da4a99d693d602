// Figures that others have published, each with its source: the plan must give them.
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "contract/tensors.h"
#include "plan/plan_testing.h"
#include "plan/rows.h"
#include "plan/work.h"

namespace mla::testing {
namespace {

using plan::ElementsPerToken;
using plan::Part;
using plan::RowFormat;
using plan::Shape;
using plan::TokenBytes;
using plan::WithAttention;

constexpr double kMiB = 1024.0 * 1024;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;

std::int64_t Elements(const Shape& shape) { return Need(ElementsPerToken(shape)); }

const MlaDims kV3 = {128, 128, 64, 128, 512};

// DeepSeek-V3 report (arXiv 2412.19437, section 4.2): 671B in all; its Hugging Face page counts 685B with the layer for
// multi-token prediction and that one's own embedding and head. DeepSeek-V2 (arXiv 2405.04434): 236B; V2-Lite: 15.7B.
// Kimi K2 (arXiv 2507.20534): 1.04T; Moonlight (arXiv 2502.16982): 16B; MiniCPM3-4B: 4B.
TEST(Published, ParametersOfLatentModels) {
  const Shape v3 = ShapeAt(LatentConfig("deepseek-v3"));
  EXPECT_EQ(v3.parameters->total(), 671026419200);
  EXPECT_EQ(v3.parameters->total() + (*v3.parameters)[Part::kMtp] + 2 * v3.vocab * v3.hidden, 684489845504);
  EXPECT_EQ(ShapeAt(LatentConfig("deepseek-v2-lite")).parameters->total(), 15706484224);
  EXPECT_NEAR(static_cast<double>(ShapeAt(LatentConfig("kimi-k2")).parameters->total()), 1.03e12, 0.01e12);
  EXPECT_NEAR(static_cast<double>(ShapeAt(LatentConfig("moonlight")).parameters->total()), 16e9, 0.5e9);
  EXPECT_NEAR(static_cast<double>(ShapeAt(LatentConfig("minicpm3")).parameters->total()), 4.07e9, 0.01e9);
  for (const char* name : {"deepseek-v3", "deepseek-v2-lite", "kimi-k2", "moonlight", "minicpm3", "glm-4.7-flash"}) {
    const Shape shape = ShapeAt(LatentConfig(name));
    const contract::ParameterCount count = contract::CountParameters(*shape.config);
    EXPECT_EQ(shape.parameters->total(), count.total) << name;
    EXPECT_EQ((*shape.parameters)[Part::kMtp], count.mtp) << name;
  }
}

// Counts on each model's Hugging Face page ("Safetensors, model size") and, for gpt-oss, its model card (116.83B).
TEST(Published, ParametersOfOtherModels) {
  const std::pair<const char*, std::int64_t> kTotals[] = {
      {"llama-2-7b", 6738415616},        {"llama-3-8b", 8030261248},          {"llama-3.1-70b", 70553706496},
      {"mistral-7b", 7241732096},        {"qwen2.5-72b", 72706203648},        {"qwen3-32b", 32762123264},
      {"qwen3-235b-a22b", 235093634560}, {"qwen3-next-80b-a3b", 79674391296}, {"gpt-oss-120b", 116829156672},
      {"olmo-2-13b", 13716198400},       {"gemma-2-9b", 9241705984}};
  for (const auto& [name, total] : kTotals) EXPECT_EQ(ShapeAt(OtherConfig(name)).parameters->total(), total) << name;
}

// Elements that a token adds over all layers: 2 * kv heads * width * layers of each config.
TEST(Published, ElementsOverAllLayers) {
  const std::pair<const char*, std::int64_t> kElements[] = {
      {"llama-3.1-70b", 163840}, {"qwen2.5-72b", 163840},    {"llama-3-8b", 65536},         {"mistral-7b", 65536},
      {"qwen3-32b", 131072},     {"qwen3-235b-a22b", 96256}, {"qwen3-next-80b-a3b", 12288}, {"gpt-oss-120b", 36864},
      {"glm-4.6", 188416},       {"olmo-2-13b", 409600},     {"deepseek-67b", 194560}};
  for (const auto& [name, elements] : kElements) EXPECT_EQ(Elements(ShapeAt(OtherConfig(name))), elements) << name;
}

// DeepSeek-V3's dims as MHA: 128 heads of 192 + 128.
TEST(Published, V3AsMha) {
  const Shape v3 = ShapeAt(LatentConfig("deepseek-v3"));
  const Shape mha = Need(WithAttention(v3, "mha"));
  EXPECT_EQ(mha.groups.front().elements(), 40960);
  EXPECT_NEAR(static_cast<double>(Need(TokenBytes(mha, Row("bf16")))) / kMiB, 4.77, 0.005);
  EXPECT_EQ(Need(TokenBytes(v3, Row("bf16"))), 70272);
  // FlashMLA's row (github.com/deepseek-ai/FlashMLA, README): 512 E4M3, four fp32 scales, 64 bf16: 656 bytes.
  EXPECT_EQ(plan::RowBytes(v3.groups.front(), Row("fp8")).value(), 656);
  EXPECT_EQ(Need(TokenBytes(v3, Row("fp8"))), 40016);
}

// DeepSeek-V2 (arXiv 2405.04434): table 1, MHA keeps 2 n_h d_h a token and layer; section 2.1.4, MLA equals GQA with
// 2.25 groups; table 9, elements a token of MLA against MHA (16 heads in 27 layers, 56 in 60).
TEST(Published, V2AgainstMha) {
  const Shape wide = PlainHeads(128, 128, 128, 1);
  const Shape v3 = ShapeAt(LatentConfig("deepseek-v3"));
  EXPECT_EQ(wide.groups.front().elements(), 32768);
  EXPECT_EQ(v3.groups.front().elements(), 576);
  EXPECT_NEAR(32768.0 / static_cast<double>(v3.groups.front().elements()), 56.89, 0.005);
  const Shape group = Need(WithAttention(wide, "mqa"));
  EXPECT_EQ(static_cast<double>(v3.groups.front().elements()) / static_cast<double>(group.groups.front().elements()),
            2.25);

  EXPECT_EQ(Elements(ShapeAt(LatentConfig("deepseek-v2-lite"))), 15552);  // 15.6K
  EXPECT_EQ(Elements(PlainHeads(16, 16, 128, 27)), 110592);               // 110.6K
  const Shape v2 = ShapeAt(std::string(MLA_SOURCE_DIR) + "/tests/contract/data/published/deepseek-v2.json");
  EXPECT_EQ(Elements(v2), 34560);                            // 34.6K
  EXPECT_EQ(Elements(PlainHeads(56, 56, 128, 60)), 860160);  // 860.2K
}

// The same paper's abstract: 93.3 % less cache than DeepSeek-67B. Its rows are "quantized to 6 bits for each element on
// average" (section 3.2.3): 34,560 of those against 194,560 in bf16; by elements alone it is 82.2 %.
TEST(Published, V2SavesAgainst67B) {
  const Shape v2 = ShapeAt(std::string(MLA_SOURCE_DIR) + "/tests/contract/data/published/deepseek-v2.json");
  const Shape dense = ShapeAt(OtherConfig("deepseek-67b"));
  EXPECT_EQ(Elements(dense), 2 * 8 * 128 * 95);
  const RowFormat six = {.name = "6 bits", .bits = 6, .rope_bits = 6};
  const auto bytes = static_cast<double>(Need(TokenBytes(v2, six)));
  EXPECT_EQ(bytes, 34560 * 6 / 8);
  EXPECT_NEAR(1 - bytes / static_cast<double>(Need(TokenBytes(dense, Row("bf16")))), 0.933, 0.0005);
  EXPECT_NEAR(1 - static_cast<double>(Elements(v2)) / static_cast<double>(Elements(dense)), 0.822, 0.0005);
}

std::int64_t CacheOf(const Shape& shape, std::int64_t tokens) {
  plan::MemoryOptions options;
  options.row = Row("bf16");
  return Need(plan::SequenceBytes(shape, options, tokens));
}

// Arithmetic that is often quoted: 2 * layers * heads * width * 2 bytes a token.
TEST(Published, CachesOfLlama) {
  const Shape llama3 = ShapeAt(OtherConfig("llama-3.1-70b"));
  EXPECT_EQ(CacheOf(Need(WithAttention(llama3, "mha")), 131072), 320 * kGiB);
  EXPECT_EQ(CacheOf(llama3, 131072), 40 * kGiB);
  const Shape llama2 = ShapeAt(OtherConfig("llama-2-7b"));  // 32 heads of 128 over 32 layers
  EXPECT_EQ(Need(TokenBytes(llama2, Row("bf16"))), 512 * 1024);
  EXPECT_EQ(CacheOf(llama2, 32768), 16 * kGiB);
}

// docs/mla.md, section 3.3; from the shapes of DeepSeek-V2's equations 9 to 19.
TEST(Published, WorkOfBothFormsTermByTerm) {
  const Shape v3 = ShapeAt(LatentConfig("deepseek-v3"));
  plan::Kept kept;
  kept.row = Row("bf16");
  const auto part = [&](Form form, std::int64_t rows, std::int64_t keys, const std::string& name) {
    for (const plan::PartWork& p : Need(plan::WorkOfStep(v3, {rows, keys, 1}, form, kept))) {
      if (p.name == name) return p.multiply_adds / p.layers;
    }
    ADD_FAILURE() << "no part " << name;
    return std::int64_t{0};
  };
  // kv_b of one token, and what absorbing costs one: R H (N + V) = 16.8M.
  EXPECT_EQ(part(Form::kMha, 1, 1, "expand (kv_b)"), 16777216);
  EXPECT_EQ(part(Form::kAbsorbed, 1, 1, "absorb (kv_b)"), 16777216);
  EXPECT_EQ(part(Form::kMha, 1, 4096, "expand (kv_b)"), 4096 * std::int64_t{16777216});
  EXPECT_EQ(part(Form::kAbsorbed, 1, 4096, "absorb (kv_b)"), 16777216);
  // A pair of query and key: 128 * 320 expanded, 128 * 1,088 absorbed, 3.4 times as much.
  EXPECT_EQ(part(Form::kMha, 1, 1, "attention"), 40960);
  EXPECT_EQ(part(Form::kAbsorbed, 1, 1, "attention"), 139264);
  EXPECT_DOUBLE_EQ(139264.0 / 40960.0, 3.4);
  const std::int64_t pairs = 512 * std::int64_t{4096 - 512} + 512 * 513 / 2;
  EXPECT_EQ(part(Form::kMha, 512, 4096, "attention"), pairs * 40960);
  EXPECT_EQ(part(Form::kAbsorbed, 512, 4096, "attention"), pairs * 139264);
  EXPECT_EQ(part(Form::kAbsorbed, 1, 1, "queries"), 1536 * 7168 + 24576 * 1536);
  EXPECT_EQ(part(Form::kAbsorbed, 1, 1, "keys and values"), 576 * 7168);
  EXPECT_EQ(part(Form::kAbsorbed, 1, 1, "output"), 7168 * 16384);
  EXPECT_EQ(part(Form::kAbsorbed, 1, 1, "MLP"), 3 * 7168 * std::int64_t{18432});
  EXPECT_EQ(part(Form::kAbsorbed, 1, 1, "experts"), 8 * 3 * 7168 * std::int64_t{2048});
  EXPECT_EQ(part(Form::kAbsorbed, 1, 1, "shared experts"), 3 * 7168 * std::int64_t{2048});
  EXPECT_EQ(part(Form::kAbsorbed, 1, 1, "router"), 256 * 7168);
  EXPECT_EQ(part(Form::kAbsorbed, 1, 1, "logits"), 129280 * std::int64_t{7168});
}

// a = R (N + V) / (2R - N - V): docs/mla.md, section 3.4.
TEST(Published, CrossingConstants) {
  const auto a = [](const char* name) {
    return *plan::CrossingConstant(ShapeAt(LatentConfig(name)).groups.front().latent);
  };
  EXPECT_NEAR(a("deepseek-v3"), 170.67, 0.005);
  EXPECT_NEAR(a("minicpm3"), 85.3, 0.05);
  EXPECT_NEAR(a("glm-4.7-flash"), 398, 0.5);
  EXPECT_NEAR(plan::ClosedCrossing(a("deepseek-v3"), 512), 128, 1e-9);
  EXPECT_NEAR(plan::ClosedCrossing(a("deepseek-v3"), 4096), 164, 0.5);
  EXPECT_FALSE(plan::CrossingConstant({8, 64, 32, 64, 64}));  // 2R = N + V
  EXPECT_FALSE(plan::CrossingConstant({8, 96, 32, 96, 64}));
  EXPECT_FALSE(plan::CausalCrossing({8, 96, 32, 96, 64}, 4096));
}

// Shazeer 2019 (arXiv 1911.02150). Section 2.3.1: batched MHA has 1/k + 1/(b n), small; section 2.4.1: incremental MHA
// has n/d + 1/b, near 1 where n ~ d or b ~ 1; section 3.1: multi-query divides the n/d term by h.
TEST(Published, ShazeersRatios) {
  EXPECT_DOUBLE_EQ(plan::RatioOfTraining(128, 1024, 8, 256), 8.0 / 1024 + 1.0 / (256 * 128));
  EXPECT_NEAR(plan::RatioOfDecodingMha(1024, 1024, 1e12), 1, 1e-9);
  EXPECT_NEAR(plan::RatioOfDecodingMha(1e-9, 1024, 1), 1, 1e-9);
  EXPECT_NEAR(plan::RatioOfDecodingMqa(1024, 1024, 8, 1e12), 1.0 / 8 + 1.0 / 1024, 1e-9);
  // One head: multi-query is multi-head, but for the term of its own keys.
  EXPECT_DOUBLE_EQ(plan::RatioOfDecodingMqa(77, 1024, 1, 3), plan::RatioOfDecodingMha(77, 1024, 3) + 1.0 / 1024);
  for (const double n : {16.0, 128.0, 4096.0}) {
    EXPECT_LT(plan::RatioOfDecodingMqa(n, 1024, 8, 256), plan::RatioOfDecodingMha(n, 1024, 256)) << n;
    EXPECT_LT(plan::RatioOfTraining(n, 1024, 8, 256), plan::RatioOfDecodingMha(n, 1024, 256)) << n;
  }
}

}  // namespace
}  // namespace mla::testing
