// The least time of a model's steps, against counts worked out by hand from the model's own dims.
#include "bench/least.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "bench/synthetic_config.h"
#include "mla/executor.h"
#include "testing/models.h"

namespace mla::bench {
namespace {

using testing::Need;

constexpr double kNoLimit = 1e30;

contract::ModelConfig PublishedConfig(const std::string& name) {
  SyntheticOptions options;
  options.like = name;
  return Need(MakeSyntheticConfig(options)).config;
}

LeastModel Bf16Model(const std::string& name) {
  return MakeLeastModel(PublishedConfig(name), WeightDType::kBF16, DType::kBF16, Isa::kAmx, 0);
}

// DeepSeek-V3 (arXiv 2412.19437, section 4.2): 61 layers, 3 of them dense; hidden 7168, 128 heads of 128 + 64 and 128,
// query rank 1536, latent 512 + 64; MLP 18432, 256 experts of 2048 and a shared one, 8 a token; 129,280 ids.
constexpr double kQuery = 7168.0 * 1536 + 1536.0 * 128 * 192;
constexpr double kKvA = 7168.0 * 576;
constexpr double kKvB = 512.0 * 128 * 256;
constexpr double kOut = 128.0 * 128 * 7168;
constexpr double kExpert = 3.0 * 7168 * 2048;
constexpr double kDenseMlp = 3.0 * 7168 * 18432;
constexpr double kLogits = 129280.0 * 7168;

// A step of three sequences, a row each, of 1,000 keys: each limit alone, so that a part priced at another's shows.
TEST(LeastOfStep, IsAHandCountOfDeepSeekV3) {
  const LeastModel model = Bf16Model("deepseek-v3");
  const plan::Step step{1, 1000, 3};
  const LeastTime products = Need(LeastOfStep(model, step, {2, kNoLimit, kNoLimit, kNoLimit}));
  const double row = 61 * (kQuery + kKvA + kKvB + kOut) + 3 * kDenseMlp + 58 * 9 * kExpert + kLogits;
  EXPECT_DOUBLE_EQ(products.seconds, 3 * row);
  EXPECT_EQ(products.absorbed_steps, 1);
  EXPECT_EQ(products.mha_steps, 0);
  // Of the attention alone the MHA form has fewer, 128 + 64 + 128 in place of 512 + 64 + 512.
  const LeastTime attention = Need(LeastOfStep(model, step, {kNoLimit, 2, kNoLimit, kNoLimit}));
  EXPECT_NEAR(attention.seconds, 3 * 61 * 128 * 1000.0 * 320, 1);
  EXPECT_EQ(attention.mha_steps, 1);
  const LeastTime router = Need(LeastOfStep(model, step, {kNoLimit, kNoLimit, 2, kNoLimit}));
  EXPECT_DOUBLE_EQ(router.seconds, 3.0 * 58 * 256 * 7168);
  // Rows of the cache are 1,152 bytes; a router's weights and biases are fp32; experts as uniform routing touches them.
  const LeastTime bytes = Need(LeastOfStep(model, step, {kNoLimit, kNoLimit, kNoLimit, 1}));
  const double touched = 256 * (1 - std::pow(1 - 8.0 / 256, 3));
  const double weights = 61 * (kQuery + kKvA + kKvB + kOut) + 3 * kDenseMlp + 58 * (touched + 1) * kExpert + kLogits;
  EXPECT_NEAR(bytes.seconds, 2 * weights + 58 * 4.0 * 256 * 7169 + 3 * 61 * 1001.0 * 1152, 8);
  EXPECT_EQ(bytes.absorbed_steps, 1) << "a tie";
}

// MiniCPM3-4B: 62 layers, hidden 2560, 40 heads of 64 + 32 and 64, query rank 768, latent 256 + 32, MLP 6400, 73,448
// ids. `expanded`: positions that an MHA step need not expand.
double SecondsByHand(double rows, double keys, bool mha, double expanded, bool last, const LeastRates& rates) {
  const double pairs = rows * (keys - rows) + rows * (rows + 1) / 2;
  const double kv_b = 256.0 * 40 * 128;
  const double attended = 62 * 40 * pairs * (mha ? 96 + 64 : 256 + 32 + 256);
  const double cache = 62 * (keys + rows) * 288 * 2;
  struct Product {
    double weights;
    double rows;
  };
  std::vector<Product> products = {{62 * (2560.0 * 768 + 768.0 * 40 * 96), rows},
                                   {62 * 2560.0 * 288, rows},
                                   {62 * kv_b, mha ? keys - expanded : rows},
                                   {62 * 2560.0 * 2560, rows},
                                   {62 * 3 * 2560.0 * 6400, rows}};
  if (last) products.push_back({73448.0 * 2560, 1});
  double seconds = std::max(2 * attended / rates.attention, cache / rates.read);
  for (const Product& p : products) {
    seconds += std::max(2 * p.weights * p.rows / rates.weights, 2 * p.weights / rates.read);
  }
  return seconds;
}

// Rates at which decoding is bound by reads and a chunk by multiply-adds.
constexpr LeastRates kMachine = {7e12, 5e12, 4e11, 30e9};

TEST(LeastOfStep, TakesTheCheaperForm) {
  const LeastModel model = Bf16Model("minicpm3");
  int mha_steps = 0;
  for (const std::int64_t rows : {1, 16, 64, 512}) {
    for (const std::int64_t keys : {512, 4096, 32768}) {
      const double absorbed = SecondsByHand(rows, keys, false, 0, true, kMachine);
      const double mha = SecondsByHand(rows, keys, true, 0, true, kMachine);
      const LeastTime least = Need(LeastOfStep(model, {rows, keys, 1}, kMachine));
      EXPECT_NEAR(least.seconds / std::min(absorbed, mha), 1, 1e-12) << rows << " " << keys;
      EXPECT_EQ(least.mha_steps, mha < absorbed ? 1 : 0) << rows << " " << keys;
      EXPECT_EQ(least.absorbed_steps + least.mha_steps, 1);
      mha_steps += mha < absorbed ? 1 : 0;
    }
  }
  EXPECT_GT(mha_steps, 0);
  EXPECT_LT(mha_steps, 12);
}

TEST(LeastOfPrompt, SumsItsChunksAndTheLastOnesLogits) {
  const LeastModel model = Bf16Model("minicpm3");
  // 256, 256 and 188 rows after 100, each expanding all before it again.
  double by_hand = 0;
  for (const auto& [rows, keys] : std::vector<std::pair<double, double>>{{256, 356}, {256, 612}, {188, 800}}) {
    by_hand += std::min(SecondsByHand(rows, keys, true, 0, keys == 800, kMachine),
                        SecondsByHand(rows, keys, false, 0, keys == 800, kMachine));
  }
  const LeastTime least = Need(LeastOfPrompt(model, 100, 700, 256, kMachine));
  EXPECT_NEAR(least.seconds / by_hand, 1, 1e-12);
  EXPECT_EQ(least.absorbed_steps + least.mha_steps, 3);
}

TEST(LeastOfPrompt, ExpandsOnceWhatIsKept) {
  LeastModel model = Bf16Model("minicpm3");
  for (const std::int64_t keep : {std::int64_t{0}, std::int64_t{1024}, std::int64_t{1} << 20}) {
    model.keep_positions = keep;
    double by_hand = 0;
    for (std::int64_t end = 512; end <= 4096; end += 512) {
      const auto kept = static_cast<double>(std::min(keep, end - 512));
      by_hand += SecondsByHand(512, static_cast<double>(end), true, kept, end == 4096, kMachine);
    }
    const LeastTime least = Need(LeastOfPrompt(model, 0, 4096, 512, kMachine));
    EXPECT_EQ(least.mha_steps, 8);
    EXPECT_NEAR(least.seconds / by_hand, 1, 1e-12) << keep;
  }
}

TEST(MakeLeastModel, FollowsKernelsAndTypes) {
  const contract::ModelConfig v3 = PublishedConfig("deepseek-v3");
  const LeastModel bf16 = MakeLeastModel(v3, WeightDType::kBF16, DType::kBF16, Isa::kAmx, 0);
  EXPECT_EQ(bf16.weights, PeakKind::kBf16Amx);
  EXPECT_EQ(bf16.attention, PeakKind::kBf16Amx);
  EXPECT_EQ(bf16.router, PeakKind::kF32Avx512);
  EXPECT_EQ(bf16.kept.product_bytes, 2);
  const LeastModel f32 = MakeLeastModel(v3, WeightDType::kF32, DType::kBF16, Isa::kAvx512Bf16, 0);
  EXPECT_EQ(f32.weights, PeakKind::kF32Avx512);
  EXPECT_EQ(f32.attention, PeakKind::kBf16Avx512);
  EXPECT_EQ(f32.kept.product_bytes, 4);
  EXPECT_EQ(f32.kept.wide_bytes, 4);
  const LeastModel f32_rows = MakeLeastModel(v3, WeightDType::kBF16, DType::kF32, Isa::kAmx, 0);
  EXPECT_EQ(f32_rows.weights, PeakKind::kBf16Amx);
  EXPECT_EQ(f32_rows.attention, PeakKind::kF32Avx512);
  // fp8's codes a byte each; kv_b_proj and the logits' matrix are bf16.
  contract::ModelConfig fp8 = v3;
  fp8.fp8.emplace();
  fp8.fp8->block_rows = 128;
  fp8.fp8->block_columns = 128;
  const LeastModel codes = MakeLeastModel(fp8, WeightDType::kFp8, DType::kBF16, Isa::kAmx, 0);
  EXPECT_EQ(codes.kept.product_bytes, 1);
  EXPECT_EQ(codes.kept.wide_bytes, 2);
  EXPECT_EQ(codes.weights, PeakKind::kBf16Amx);
}

// A segment of 1,024 positions of a layer: 128 heads of 128 + 128, and k_pe's 64, which is 64.1 MiB in bf16.
TEST(MakeLeastModel, KeepsWholeSegmentsOfAllLayers) {
  const contract::ModelConfig v3 = PublishedConfig("deepseek-v3");
  constexpr std::int64_t kMiB = 1 << 20;
  const auto kept = [&](DType rows, Isa isa, std::int64_t bytes) {
    return MakeLeastModel(v3, WeightDType::kBF16, rows, isa, bytes).keep_positions;
  };
  EXPECT_EQ(kept(DType::kBF16, Isa::kAmx, 0), 0);
  EXPECT_EQ(kept(DType::kBF16, Isa::kAmx, 61 * 64 * kMiB), 0);
  EXPECT_EQ(kept(DType::kBF16, Isa::kAmx, 61 * 65 * kMiB), 1024);
  EXPECT_EQ(kept(DType::kBF16, Isa::kAmx, 3 * 61 * 65 * kMiB), 3072);
  EXPECT_EQ(kept(DType::kF32, Isa::kAmx, 2 * 61 * 65 * kMiB), 1024);
  EXPECT_EQ(kept(DType::kBF16, Isa::kAvx512, 2 * 61 * 65 * kMiB), 1024);
}

TEST(LimitMeter, MeasuresEachLimit) {
  const CpuInfo cpu = DetectCpu();
  const auto pool = MakeThreadPool(2);
  Probe probe(*pool, cpu, 1e-5);
  const LeastModel model = MakeLeastModel(PublishedConfig("minicpm3"), WeightDType::kBF16, DType::kF32, cpu.best(), 0);
  std::array<float, 1024> memory{};
  LimitMeter meter(&probe, model, std::as_bytes(std::span(memory)));
  for (int i = 0; i < 2; ++i) {
    meter.Measure();
    meter.Measure();
    const LeastRates rates = meter.Mean();
    for (const double rate : {rates.weights, rates.attention, rates.router, rates.read}) {
      EXPECT_GT(rate, 0);
      EXPECT_TRUE(std::isfinite(rate));
    }
    EXPECT_EQ(rates.attention, rates.router) << "one instruction, measured once";
    meter.Reset();
  }
}

}  // namespace
}  // namespace mla::bench
