// The layer bench: FLOPs and bytes against numbers worked out by hand, and that it runs on every table.
#include "bench/layer_bench.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/synthetic_config.h"
#include "mla/executor.h"
#include "testing/models.h"
#include "testing/temp_dir.h"
#include "testing/tiny_checkpoint.h"

namespace mla::bench {
namespace {

using ::testing::ElementsAre;
using testing::Need;

contract::ModelConfig ConfigOf(const std::string& like) {
  SyntheticOptions options;
  options.like = like;
  return Need(MakeSyntheticConfig(options)).config;
}

contract::ModelConfig Tiny(testing::TinyOptions options) {
  options.vocab_size = 512;
  const testing::TempDir dir;
  return ConfigOf(dir.Write("config.json", testing::TinyConfigJson(options)));
}

// hidden 7168, Q 1536, 128 heads of 192, R + P 576, V 128: [2112, 7168], [24576, 1536] and [7168, 16384] beside the
// attention's work (attention_bench_test.cc), 2 operations a multiply-add and 2 bytes a weight.
TEST(LayerWork, OfDeepSeekV3) {
  LayerPlan plan;
  plan.config = ConfigOf("deepseek-v3");
  plan.keys = 8192;
  const Work work = LayerWork(plan, Form::kAbsorbed, 4, Isa::kPortable);
  const double weights = 2112.0 * 7168 + 24576.0 * 1536 + 7168.0 * 16384;
  const double pairs = 4.0 * 8188 + 4.0 * 5 / 2;
  EXPECT_EQ(work.operations, 2 * 4 * weights + 2.0 * 128 * (pairs * 1088 + 4 * 131072));
  EXPECT_EQ(work.bytes, 2 * weights + 8192.0 * 1152 + 2.0 * 128 * 256 * 512);
}

std::vector<std::string> NamesOf(const CaseResult& result) {
  std::vector<std::string> names;
  for (const KernelAlone& kernel : result.kernels) names.push_back(kernel.name);
  return names;
}

TEST(LayerBench, RunsOnEveryTable) {
  const CpuInfo cpu = DetectCpu();
  const auto pool = MakeThreadPool(2);
  Probe probe(*pool, cpu, 1e-5);
  for (const bool profile : {false, true}) {
    LayerPlan plan;
    plan.name = "tiny";
    plan.config = Tiny({});
    plan.keys = 70;
    plan.max_rows = 5;
    plan.working_set = 4096;
    plan.profile = profile;
    LayerBench bench = Need(LayerBench::Create(plan, *pool));
    for (const Isa isa : kIsas) {
      if (!cpu.Has(isa)) continue;
      SCOPED_TRACE(IsaName(isa));
      const CaseResult result = bench.Run(probe, isa, 5, {0, 1});
      EXPECT_EQ(result.rows, 5);
      EXPECT_EQ(result.measured.seconds.count, kFewestRepeats);
      EXPECT_GT(result.judgement().share, 0);
      EXPECT_THAT(NamesOf(result), ElementsAre("q_a+kv_a", "q_b", "attention", "o"));
      // Each as often as the layer, and never more together than the sums say.
      for (const KernelAlone& kernel : result.kernels) EXPECT_EQ(kernel.seconds.count, kFewestRepeats);
      EXPECT_EQ(result.kernel_seconds.count, kFewestRepeats);
      EXPECT_GT(result.kernel_seconds.median, 0);
      ASSERT_EQ(result.profile.has_value(), profile);
      if (!profile) continue;
      double operations = 0;
      double seconds = 0;
      for (const PhaseResult& phase : result.profile->phases) {
        operations += phase.work.operations;
        seconds += phase.seconds;
      }
      EXPECT_NEAR(operations, result.work.operations, 1e-9 * operations);
      EXPECT_LE(seconds, result.profile->seconds * (1 + 1e-9));
      EXPECT_EQ(result.profile->weight_conversions(), 0);
    }
  }
}

// One row is cheaper absorbed and a whole prompt expanded, as the shipped table has it, unless a form is asked for.
TEST(LayerBench, ChoosesTheFormAsAnEngineDoes) {
  const auto pool = MakeThreadPool(1);
  Probe probe(*pool, DetectCpu(), 1e-5);
  LayerPlan plan;
  plan.name = "tiny";
  plan.config = Tiny({});
  plan.keys = 600;
  plan.max_rows = 600;
  plan.profile = true;
  LayerBench bench = Need(LayerBench::Create(plan, *pool));
  const CaseResult row = bench.Run(probe, Isa::kPortable, 1, {0, 1});
  EXPECT_EQ(row.name, "tiny absorbed S=600");
  EXPECT_EQ(row.profile->expansions(), 0);
  const Form prompt = ChooseForm(FormTable(), weights::DimsOf(plan.config), 0, 600);
  const CaseResult rows = bench.Run(probe, Isa::kPortable, 600, {0, 1});
  EXPECT_EQ(rows.name, std::string("tiny ") + FormName(prompt) + " S=600");
  plan.form = Form::kMha;
  LayerBench mha = Need(LayerBench::Create(plan, *pool));
  EXPECT_EQ(mha.Run(probe, Isa::kPortable, 1, {0, 1}).profile->expansions(), 600);
}

TEST(LayerBench, OfAModelWithoutQLoraRank) {
  const auto pool = MakeThreadPool(1);
  Probe probe(*pool, DetectCpu(), 1e-5);
  LayerPlan plan;
  plan.config = Tiny(testing::OddOptions());
  plan.keys = 3;
  LayerBench bench = Need(LayerBench::Create(plan, *pool));
  const CaseResult result = bench.Run(probe, Isa::kPortable, 1, {0, 1});
  EXPECT_THAT(NamesOf(result), ElementsAre("q+kv_a", "attention", "o"));
  EXPECT_TRUE(std::isfinite(result.judgement().share));
}

TEST(LayerBench, PlansItsMemory) {
  LayerPlan plan;
  plan.config = ConfigOf("deepseek-v3");
  plan.keys = 100;
  const std::int64_t least = LayerBench::PlannedBytes(plan, 1);
  // Three products and kv_b_proj, its keys' part twice, in bf16.
  EXPECT_GE(least, std::int64_t{2} * (2112 * 7168 + 24576 * 1536 + 7168 * 16384 + 128 * 384 * 512));
  plan.working_set = 1 << 20;
  EXPECT_EQ(LayerBench::PlannedBytes(plan, 1) - least, 1 << 20);
}

}  // namespace
}  // namespace mla::bench
