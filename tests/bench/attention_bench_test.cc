// The attention bench: FLOPs and bytes against numbers worked out by hand, and that it runs on every table.
#include "bench/attention_bench.h"

#include <cmath>

#include <gtest/gtest.h>

#include "mla/executor.h"
#include "testing/models.h"

namespace mla::bench {
namespace {

using testing::Need;

AttentionPlan DeepSeekV3(Form form, std::int64_t keys) {
  AttentionPlan plan;
  plan.dims = {128, 128, 64, 128, 512};
  plan.form = form;
  plan.keys = keys;
  return plan;
}

// T = 1: pairs = S; 2 R + P = 1,088 multiply-adds a pair and head, R (N + V) = 131,072 a row and head. A row of the
// cache is 1,152 bytes, kv_b_proj 128 x 256 x 512 in bf16.
TEST(AttentionWork, OfOneRowAbsorbed) {
  const Work work = AttentionWork(DeepSeekV3(Form::kAbsorbed, 4096), 1, Isa::kPortable);
  EXPECT_EQ(work.operations, 2.0 * 128 * (4096.0 * 1088 + 131072));
  EXPECT_EQ(work.bytes, 4096.0 * 1152 + 2.0 * 128 * 256 * 512);
  EXPECT_EQ(work.f32_operations, 0);
}

// pairs = T (S - T) + T (T + 1) / 2 = 512 * 512 + 512 * 513 / 2 at S = 1,024; expansion of all keys.
TEST(AttentionWork, OfAChunkExpandedForThreeRequests) {
  AttentionPlan plan = DeepSeekV3(Form::kMha, 1024);
  plan.requests = 3;
  plan.kv_dtype = DType::kF32;
  const Work work = AttentionWork(plan, 512, Isa::kPortable);
  const double pairs = 512.0 * 512 + 512.0 * 513 / 2;
  EXPECT_EQ(work.operations, 3 * 2.0 * 128 * (pairs * (128 + 64 + 128) + 1024.0 * 131072));
  EXPECT_EQ(work.bytes, 3 * 1024.0 * 2304 + 2.0 * 128 * 256 * 512);
}

// Each request by its own keys: 3 pairs of the first row, and of the second request 9.
TEST(AttentionWork, OfRequestsThatDiffer) {
  AttentionPlan plan = DeepSeekV3(Form::kAbsorbed, 5);
  plan.requests = 2;
  plan.mixed_keys = {2, 5};
  const Work work = AttentionWork(plan, 2, Isa::kPortable);
  EXPECT_EQ(work.operations, 2.0 * 128 * ((3 + 9) * 1088.0 + 2 * 2 * 131072.0));
  EXPECT_EQ(work.bytes, (2 + 5) * 1152.0 + 2.0 * 128 * 256 * 512);
}

TEST(AttentionBench, RunsRequestsThatDiffer) {
  const CpuInfo cpu = DetectCpu();
  const auto pool = MakeThreadPool(2);
  Probe probe(*pool, cpu, 1e-5);
  AttentionPlan plan;
  plan.name = "tiny";
  plan.dims = {3, 9, 4, 7, 18};
  plan.keys = 200;
  plan.requests = 3;
  plan.mixed_keys = {70, 200, 3};
  plan.max_rows = 2;
  plan.working_set = 4096;
  plan.profile = true;
  AttentionBench bench = Need(AttentionBench::Create(plan, *pool));
  const CaseResult result = bench.Run(probe, cpu.best(), 2, {0, 1});
  EXPECT_EQ(result.keys, 0);
  EXPECT_EQ(result.positions, 273);
  EXPECT_EQ(result.requests, 3);
  // Two rows of each see all keys but one, and all, in each of three heads.
  EXPECT_EQ(result.profile->counts.attention.absorbed_pairs, 3 * (69 + 70 + 199 + 200 + 2 + 3));
  // Two, four and one pages of 64 rows; the longest for each would be 12.
  AttentionPlan alike = plan;
  alike.mixed_keys = {};
  EXPECT_LT(AttentionBench::PlannedBytes(plan, 1), AttentionBench::PlannedBytes(alike, 1));
}

TEST(AttentionBench, RunsOnEveryTable) {
  const CpuInfo cpu = DetectCpu();
  const auto pool = MakeThreadPool(2);
  Probe probe(*pool, cpu, 1e-5);
  for (const Form form : {Form::kAbsorbed, Form::kMha}) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      AttentionPlan plan;
      plan.name = "tiny";
      plan.dims = {3, 9, 4, 7, 18};
      plan.form = form;
      plan.kv_dtype = dtype;
      plan.keys = 70;
      plan.requests = 2;
      plan.max_rows = 5;
      plan.working_set = 4096;
      AttentionBench bench = Need(AttentionBench::Create(plan, *pool));
      for (const Isa isa : kIsas) {
        if (!cpu.Has(isa)) continue;
        SCOPED_TRACE(IsaName(isa));
        const CaseResult result = bench.Run(probe, isa, 5, {0, 1});
        EXPECT_EQ(result.rows, 5);
        EXPECT_EQ(result.keys, 70);
        EXPECT_EQ(result.requests, 2);
        EXPECT_EQ(result.measured.seconds.count, kFewestRepeats);
        EXPECT_GT(result.measured.seconds.median, 0);
        EXPECT_TRUE(std::isfinite(result.judgement().share));
        EXPECT_GT(result.judgement().share, 0);
      }
    }
  }
}

TEST(AttentionBench, PlansItsMemory) {
  AttentionPlan plan = DeepSeekV3(Form::kAbsorbed, 1000);
  const std::int64_t one = AttentionBench::PlannedBytes(plan, 1);
  plan.requests = 5;
  // Sixteen pages of 64 rows of 1,152 bytes each.
  EXPECT_GE(AttentionBench::PlannedBytes(plan, 1) - one, std::int64_t{4} * 16 * 64 * 1152);
  plan.working_set = 1 << 20;
  EXPECT_GE(AttentionBench::PlannedBytes(plan, 1) - one, (std::int64_t{4} * 16 * 64 * 1152) + (1 << 20));
}

}  // namespace
}  // namespace mla::bench
