#include "bench/profile.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace mla::bench {
namespace {

// By the counts of a run and the dims.
PhaseWork WorkOfPhase(AttentionPhase phase, const MlaDims& d, const AttentionProfile& run) {
  const auto h = static_cast<double>(d.num_attention_heads);
  const auto n = static_cast<double>(d.qk_nope_head_dim);
  const auto p = static_cast<double>(d.qk_rope_head_dim);
  const auto v = static_cast<double>(d.v_head_dim);
  const auto r = static_cast<double>(d.kv_lora_rank);
  const auto rows = static_cast<double>(run.absorbed_rows);
  constexpr double kWeightBytes = 2;  // bf16
  switch (phase) {
    case AttentionPhase::kAbsorb: return {2 * rows * h * n * r, kWeightBytes * h * n * r};
    case AttentionPhase::kAttend:
      return {2 * static_cast<double>(run.absorbed_pairs) * (2 * r + p), static_cast<double>(run.cache_bytes_needed)};
    case AttentionPhase::kProject: return {2 * rows * h * r * v, kWeightBytes * h * r * v};
    case AttentionPhase::kLoad: return {0, static_cast<double>(run.cache_bytes_needed)};
    case AttentionPhase::kExpand:
      return {2 * static_cast<double>(run.expanded) * r * (n + v), kWeightBytes * h * r * (n + v)};
    case AttentionPhase::kMhaAttend: return {2 * static_cast<double>(run.mha_pairs) * (n + p + v), 0};
    default: return {};
  }
}

bool IsMha(AttentionPhase phase) { return phase >= AttentionPhase::kLoad; }

using Runs = std::span<const StepProfile* const>;

class PhaseSums {
 public:
  PhaseSums(ProfileResult* out, Runs runs, int workers) : out_(*out), runs_(runs), workers_(workers) {}

  // Mean seconds of a phase, which is listed where it ran. `time` gives it of a run.
  template <class Time>
  double Add(const char* name, const PhaseWork& work, Time&& time) {
    PhaseTime sum;
    for (const StepProfile* run : runs_) sum += time(*run);
    const auto count = static_cast<double>(runs_.size());
    if (sum.times > 0) {
      out_.phases.push_back(
          {name, sum.seconds / count, sum.busy_largest / count, sum.busy_seconds / count / workers_, work});
    }
    return sum.seconds / count;
  }

  void AddAttention() {
    for (std::size_t i = 0; i < kAttentionPhases; ++i) {
      const auto phase = static_cast<AttentionPhase>(i);
      const PhaseWork work = WorkOfPhase(phase, out_.dims, out_.counts.attention);
      const double seconds =
          Add(AttentionPhaseName(phase), work, [phase](const StepProfile& run) { return run.attention[phase]; });
      (IsMha(phase) ? out_.mha_seconds : out_.absorbed_seconds) += seconds;
      if (phase == AttentionPhase::kMerge) out_.merge_seconds = seconds;
    }
  }

 private:
  ProfileResult& out_;
  Runs runs_;
  int workers_;
};

}  // namespace

double ProfileResult::other_seconds() const {
  double rest = seconds;
  for (const PhaseResult& phase : phases) rest -= phase.seconds;
  return rest;
}

double ProfileResult::tile_waste() const {
  const AttentionProfile& a = counts.attention;
  const std::int64_t needed = a.absorbed_pairs + a.mha_pairs;
  if (needed == 0) return 0;
  return static_cast<double>(a.absorbed_computed + a.mha_computed) / static_cast<double>(needed) - 1;
}

double ProfileResult::expansions() const {
  return static_cast<double>(counts.attention.expanded) / static_cast<double>(dims.num_attention_heads);
}

ProfileResult SummariseSteps(const MlaDims& dims, const StepWork& work, std::span<const StepProfile> runs,
                             int workers) {
  MLA_CHECK(!runs.empty());
  std::vector<const StepProfile*> sorted;
  for (const StepProfile& run : runs) sorted.push_back(&run);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->seconds < b->seconds; });
  const std::size_t outside = sorted.size() / 4;
  const Runs middle = std::span(std::as_const(sorted)).subspan(outside, sorted.size() - 2 * outside);
  ProfileResult result;
  result.dims = dims;
  result.counts = *middle[middle.size() / 2];
  for (const StepProfile* run : middle) {
    result.seconds += run->seconds / static_cast<double>(middle.size());
    result.product_seconds += run->product_seconds / static_cast<double>(middle.size());
  }
  PhaseSums sums(&result, middle, workers);
  for (std::size_t i = 0; i < kStepPhases; ++i) {
    const auto phase = static_cast<StepPhase>(i);
    if (phase == StepPhase::kAttention) {
      sums.AddAttention();
    } else {
      sums.Add(StepPhaseName(phase), work[i], [phase](const StepProfile& run) { return run[phase]; });
    }
  }
  return result;
}

ProfileResult SummariseAttention(const MlaDims& dims, std::span<const AttentionProfile> runs, int workers) {
  std::vector<StepProfile> steps(runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    steps[i].seconds = runs[i].seconds;
    steps[i].attention = runs[i];
  }
  return SummariseSteps(dims, {}, steps, workers);
}

}  // namespace mla::bench
