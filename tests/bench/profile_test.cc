// Profiles of runs made into one, by hand; and those of the benches.
#include "bench/profile.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/attention_bench.h"
#include "testing/models.h"

namespace mla::bench {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using testing::Need;

constexpr MlaDims kDims{4, 8, 2, 6, 16};

// A call of `seconds`, in which the absorbed form's rows attended for half of them and merged for an eighth.
AttentionProfile Call(double seconds) {
  AttentionProfile call;
  call.calls = 1;
  call.seconds = seconds;
  call[AttentionPhase::kAttend] = {seconds / 2, seconds * 3 / 4, seconds / 2, 1};
  call[AttentionPhase::kMerge] = {seconds / 8, seconds / 4, seconds / 8, 2};
  call.absorbed_rows = 3;
  call.absorbed_pairs = 1000;
  call.absorbed_computed = 1500;
  call.cache_bytes_needed = 640;
  return call;
}

// Of four runs the middle two, in any order; work by the counts and dims; a second's phases are listed as they ran.
TEST(SummariseAttention, TakesTheMiddleHalf) {
  const std::vector<AttentionProfile> runs = {Call(100), Call(3), Call(1), Call(5)};
  const ProfileResult result = SummariseAttention(kDims, runs, 2);
  EXPECT_DOUBLE_EQ(result.seconds, 4);
  ASSERT_EQ(result.phases.size(), 2U);
  const PhaseResult& attend = result.phases[0];
  EXPECT_EQ(attend.name, "attend");
  EXPECT_DOUBLE_EQ(attend.seconds, 2);
  EXPECT_DOUBLE_EQ(attend.busy_largest, 2);
  EXPECT_DOUBLE_EQ(attend.busy_mean, 1.5);
  EXPECT_EQ(attend.work.operations, 2.0 * 1000 * (2 * 16 + 2));
  EXPECT_EQ(attend.work.bytes, 640);
  EXPECT_EQ(result.phases[1].name, "merge");
  EXPECT_EQ(result.phases[1].work.operations, 0);
  EXPECT_DOUBLE_EQ(result.merge_seconds, 0.5);
  EXPECT_DOUBLE_EQ(result.absorbed_seconds, 2.5);
  EXPECT_EQ(result.mha_seconds, 0);
  EXPECT_DOUBLE_EQ(result.other_seconds(), 1.5);
  EXPECT_DOUBLE_EQ(result.tile_waste(), 0.5);
  EXPECT_EQ(result.expansions(), 0);
}

TEST(SummariseAttention, OfNoPairsWastesNothing) {
  const std::vector<AttentionProfile> runs(1);
  const ProfileResult result = SummariseAttention(kDims, runs, 1);
  EXPECT_EQ(result.tile_waste(), 0);
  EXPECT_TRUE(result.phases.empty());
}

TEST(SummariseSteps, PutsTheAttentionsPhasesInItsPlace) {
  StepProfile step;
  step.seconds = 10;
  step.product_seconds = 4;
  for (PhaseTime& time : step.times) time = {1, 1, 1, 2};
  step.times[static_cast<std::size_t>(StepPhase::kQb)] = {};  // a model without
  step.attention[AttentionPhase::kLoad] = {0.25, 0.25, 0.25, 1};
  step.attention[AttentionPhase::kMhaAttend] = {0.5, 0.5, 0.5, 1};
  step.attention.expanded = 4 * 20;
  step.attention.weight_conversions = 1;
  step.weight_conversions = 2;
  StepWork work{};
  work[static_cast<std::size_t>(StepPhase::kOutput)] = {100, 50};
  const ProfileResult result = SummariseSteps(kDims, work, std::vector<StepProfile>(1, step), 1);
  std::vector<std::string> names;
  for (const PhaseResult& phase : result.phases) names.push_back(phase.name);
  EXPECT_THAT(names, ElementsAre("embed", "input norm", "q_a+kv_a", "store", "rotate", "load", "mha attend", "o", "mlp",
                                 "final norm", "logits"));
  EXPECT_EQ(result.phases[7].work.operations, 100);
  EXPECT_EQ(result.phases[7].work.bytes, 50);
  EXPECT_DOUBLE_EQ(result.mha_seconds, 0.75);
  EXPECT_DOUBLE_EQ(result.product_seconds, 4);
  EXPECT_DOUBLE_EQ(result.other_seconds(), 10 - 9 - 0.75);
  EXPECT_EQ(result.expansions(), 20);
  EXPECT_EQ(result.weight_conversions(), 3);
}

// Operations of the phases are those of the case, however they are counted.
TEST(AttentionBench, ProfilesWhatItCounts) {
  const auto pool = MakeThreadPool(2);
  const CpuInfo cpu = DetectCpu();
  Probe probe(*pool, cpu, 1e-5);
  for (const Form form : {Form::kAbsorbed, Form::kMha}) {
    AttentionPlan plan;
    plan.dims = {3, 9, 4, 7, 18};
    plan.form = form;
    plan.keys = 70;
    plan.requests = 2;
    plan.max_rows = 5;
    plan.profile = true;
    AttentionBench bench = Need(AttentionBench::Create(plan, *pool));
    const CaseResult result = bench.Run(probe, cpu.best(), 5, {0, 1});
    ASSERT_TRUE(result.profile);
    double operations = 0;
    double seconds = 0;
    for (const PhaseResult& phase : result.profile->phases) {
      operations += phase.work.operations;
      seconds += phase.seconds;
    }
    EXPECT_THAT(operations, DoubleNear(result.work.operations, 1e-9 * operations)) << FormName(form);
    EXPECT_LE(seconds, result.profile->seconds * (1 + 1e-9));
    EXPECT_EQ(result.profile->counts.attention.calls, 1);
    EXPECT_EQ(result.profile->expansions(), form == Form::kMha ? 2 * 70 : 0);
    EXPECT_EQ(result.profile->weight_conversions(), 0);
  }
}

}  // namespace
}  // namespace mla::bench
