#include "bench/profile.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace mla::bench {
namespace {

// What a phase does, by the counts of a run and the dims.
struct PhaseWork {
  double multiply_adds = 0;
  double bytes = 0;
};

PhaseWork WorkOfPhase(AttentionPhase phase, const MlaDims& d, const AttentionProfile& run) {
  const auto h = static_cast<double>(d.num_attention_heads);
  const auto n = static_cast<double>(d.qk_nope_head_dim);
  const auto p = static_cast<double>(d.qk_rope_head_dim);
  const auto v = static_cast<double>(d.v_head_dim);
  const auto r = static_cast<double>(d.kv_lora_rank);
  constexpr double kWeightBytes = 2;  // bf16
  const auto rows = static_cast<double>(run.absorbed_rows);
  switch (phase) {
    case AttentionPhase::kAbsorb: return {rows * h * n * r, kWeightBytes * h * n * r};
    case AttentionPhase::kAttend:
      return {static_cast<double>(run.absorbed_pairs) * (2 * r + p), static_cast<double>(run.cache_bytes_needed)};
    case AttentionPhase::kProject: return {rows * h * r * v, kWeightBytes * h * r * v};
    case AttentionPhase::kLoad: return {0, static_cast<double>(run.cache_bytes_needed)};
    case AttentionPhase::kExpand:
      return {static_cast<double>(run.expanded) * r * (n + v), kWeightBytes * h * r * (n + v)};
    case AttentionPhase::kMhaAttend: return {static_cast<double>(run.mha_pairs) * (n + p + v), 0};
    default: return {};
  }
}

}  // namespace

double ProfileResult::other_seconds() const {
  double rest = seconds;
  for (const PhaseResult& phase : phases) rest -= phase.seconds;
  return rest;
}

double ProfileResult::merge_share() const {
  const auto merge = std::find_if(phases.begin(), phases.end(), [](const PhaseResult& phase) {
    return phase.name == AttentionPhaseName(AttentionPhase::kMerge);
  });
  return merge == phases.end() ? 0 : merge->seconds / seconds;
}

double ProfileResult::tile_waste() const {
  const std::int64_t needed = attention.absorbed_pairs + attention.mha_pairs;
  if (needed == 0) return 0;
  return static_cast<double>(attention.absorbed_computed + attention.mha_computed) / static_cast<double>(needed) - 1;
}

double ProfileResult::expansions(const MlaDims& dims) const {
  return static_cast<double>(attention.expanded) / static_cast<double>(dims.num_attention_heads);
}

ProfileResult SummariseAttention(const MlaDims& dims, std::span<const AttentionProfile> runs, int workers) {
  MLA_CHECK(!runs.empty());
  std::vector<const AttentionProfile*> sorted;
  for (const AttentionProfile& run : runs) sorted.push_back(&run);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->seconds < b->seconds; });
  const std::size_t outside = sorted.size() / 4;
  const std::span<const AttentionProfile* const> middle =
      std::span(sorted).subspan(outside, sorted.size() - 2 * outside);
  const auto count = static_cast<double>(middle.size());
  ProfileResult result;
  result.attention = *middle.front();
  for (const AttentionProfile* run : middle) result.seconds += run->seconds / count;
  for (std::size_t i = 0; i < kAttentionPhases; ++i) {
    const auto phase = static_cast<AttentionPhase>(i);
    PhaseTime sum;
    for (const AttentionProfile* run : middle) sum += (*run)[phase];
    if (sum.times == 0) continue;
    const PhaseWork work = WorkOfPhase(phase, dims, result.attention);
    result.phases.push_back({AttentionPhaseName(phase), sum.seconds / count, sum.busy_largest / count,
                             sum.busy_seconds / count / workers, 2 * work.multiply_adds, work.bytes});
  }
  return result;
}

}  // namespace mla::bench
