// FLOPs and bytes from shapes, and shapes from configs, against numbers worked out by hand.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bench/gemm_bench.h"
#include "bench/moe_bench.h"
#include "bench/random_weights.h"
#include "bench/shapes.h"
#include "bench/synthetic_config.h"
#include "testing/models.h"

namespace mla::bench {
namespace {

using testing::Need;

contract::ModelConfig ConfigOf(const std::string& name) {
  SyntheticOptions options;
  options.like = name;
  return Need(MakeSyntheticConfig(options)).config;
}

void ExpectShapes(const std::string& model, const std::vector<WeightShape>& expected) {
  const std::vector<WeightShape> shapes = ProjectionShapes(ConfigOf(model));
  ASSERT_EQ(shapes.size(), expected.size()) << model;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    EXPECT_EQ(shapes[i].name, expected[i].name) << model;
    EXPECT_EQ(shapes[i].n, expected[i].n) << model << " " << shapes[i].name;
    EXPECT_EQ(shapes[i].k, expected[i].k) << model << " " << shapes[i].name;
  }
}

// From the tables of the models' reports: hidden 7168, 128 heads, q rank 1536, kv rank 512 + rope 64, and so on.
TEST(ProjectionShapes, OfPublishedModels) {
  ExpectShapes("deepseek-v3", {{"q_a+kv_a", 2112, 7168},
                               {"q_b", 24576, 1536},
                               {"o", 7168, 16384},
                               {"gate_up", 36864, 7168},
                               {"down", 7168, 18432},
                               {"lm_head[:32768]", 32768, 7168}});
  ExpectShapes("deepseek-v2-lite", {{"q+kv_a", 3648, 2048},
                                    {"o", 2048, 2048},
                                    {"gate_up", 21888, 2048},
                                    {"down", 2048, 10944},
                                    {"lm_head[:32768]", 32768, 2048}});
  ExpectShapes("minicpm3", {{"q_a+kv_a", 1056, 2560},
                            {"q_b", 3840, 768},
                            {"o", 2560, 2560},
                            {"gate_up", 12800, 2560},
                            {"down", 2560, 6400},
                            {"lm_head[:32768]", 32768, 2560}});
}

TEST(ProjectionShapes, SmallHeadsAreWhole) {
  contract::ModelConfig config = ConfigOf("minicpm3");
  config.vocab_size = 1000;
  EXPECT_EQ(ProjectionShapes(config).back().name, "lm_head");
  EXPECT_EQ(ProjectionShapes(config).back().n, 1000);
}

const WeightFormat& F32() { return WeightFormats()[0]; }
const WeightFormat& Bf16() { return WeightFormats()[1]; }
const WeightFormat& Fp8() { return WeightFormats()[2]; }

TEST(GemmWork, OfShapes) {
  const Work work = GemmWork({"", 2112, 7168}, Bf16(), 8, Isa::kAmx);
  EXPECT_EQ(work.operations, 242221056);  // 2 x 8 x 2112 x 7168
  EXPECT_EQ(work.bytes, 30277632);        // 2 x 2112 x 7168
  EXPECT_EQ(work.peak, PeakKind::kBf16Amx);
  EXPECT_EQ(work.f32_operations, 0);
  // As stored: 17 outputs fill two panels of 16, and in bf16 three k two pairs.
  EXPECT_EQ(GemmWork({"", 17, 3}, F32(), 1, Isa::kAvx2).bytes, 384);   // 32 x 3 x 4
  EXPECT_EQ(GemmWork({"", 17, 3}, Bf16(), 1, Isa::kAvx2).bytes, 256);  // 32 x 4 x 2
  EXPECT_EQ(GemmWork({"", 17, 3}, Fp8(), 1, Isa::kAvx2).bytes, 256);   // 32 x 4, and a scale of 4 bytes to each output
  // 2112 x 7168 codes, and a scale to each output for each of 56 blocks of 128 columns.
  EXPECT_EQ(GemmWork({"", 2112, 7168}, Fp8(), 1, Isa::kAmx).bytes, 2112 * 7168 + 2112 * 56 * 4);
}

TEST(MoeWork, CountsWhatIsReadAndDone) {
  contract::MoeConfig moe;
  moe.n_routed_experts = 6;
  moe.num_experts_per_tok = 2;
  moe.n_shared_experts = 2;
  moe.moe_intermediate_size = 16;
  const Work work = MoeWork(moe, 32, Bf16(), 3, 4, Isa::kAvx512);
  EXPECT_EQ(work.operations, 36864);     // 2 x 3 rows x 3 matrices x 32 x (2 x 16 routed + 32 shared)
  EXPECT_EQ(work.f32_operations, 1152);  // 2 x 3 x 32 x 6
  // Four experts of 2 x (32 x 32 + 32 x 16), the shared 2 x (64 x 32 + 32 x 32), a router of one panel 16 x 32 x 4.
  EXPECT_EQ(work.bytes, 4 * 3072 + 6144 + 2048);
  EXPECT_EQ(work.peak, PeakKind::kF32Avx512);
  EXPECT_EQ(work.f32_peak, PeakKind::kF32Avx512);
  moe.n_shared_experts = 0;
  EXPECT_EQ(MoeWork(moe, 32, Bf16(), 3, 4, Isa::kAvx512).bytes, 4 * 3072 + 2048);
}

TEST(PeakFor, IsTheInstructionThatTheKernelsUse) {
  using ops::PackedFormat;
  EXPECT_EQ(PeakFor(Isa::kPortable, PackedFormat::kBF16), PeakKind::kF32Portable);
  EXPECT_EQ(PeakFor(Isa::kAvx2, PackedFormat::kBF16), PeakKind::kF32Avx2);
  EXPECT_EQ(PeakFor(Isa::kAvx512, PackedFormat::kBF16), PeakKind::kF32Avx512);
  EXPECT_EQ(PeakFor(Isa::kAvx512Bf16, PackedFormat::kBF16), PeakKind::kBf16Avx512);
  EXPECT_EQ(PeakFor(Isa::kAmx, PackedFormat::kBF16), PeakKind::kBf16Amx);
  EXPECT_EQ(PeakFor(Isa::kAmx, PackedFormat::kF8), PeakKind::kBf16Amx);  // made bf16 on the way
  EXPECT_EQ(PeakFor(Isa::kAmx, PackedFormat::kF32), PeakKind::kF32Avx512);
  EXPECT_EQ(PeakFor(Isa::kAvx512Bf16, PackedFormat::kF32), PeakKind::kF32Avx512);
}

TEST(GemmPlan, CopiesPassTheWorkingSet) {
  GemmPlan plan;
  plan.shape.n = 16;
  plan.shape.k = 32;
  plan.format = Bf16();  // 1 KiB
  plan.working_set = 0;
  EXPECT_EQ(plan.copies(), 1);
  plan.working_set = 1024;
  EXPECT_EQ(plan.copies(), 1);
  plan.working_set = 1025;
  EXPECT_EQ(plan.copies(), 2);
  plan.working_set = kStreamed;
  EXPECT_EQ(plan.copies(), 1 << 20);
}

}  // namespace
}  // namespace mla::bench
