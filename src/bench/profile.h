// Profiles of a case's runs, made into one: phases with what they did, by the shape.
#ifndef MLA_BENCH_PROFILE_H_
#define MLA_BENCH_PROFILE_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mla/attention.h"
#include "mla/profile.h"

namespace mla::bench {

// What a phase does; a multiply-add is two operations. Bytes are of cache rows or weights that it reads, each once. 0
// where nothing is counted.
struct PhaseWork {
  double operations = 0;
  double bytes = 0;
};
// Of a step's phases but for attention.
using StepWork = std::array<PhaseWork, kStepPhases>;

// One phase of a run.
struct PhaseResult {
  std::string name;
  double seconds = 0;
  double busy_largest = 0;  // of the worker that was busy longest, and of all in the mean
  double busy_mean = 0;
  PhaseWork work;  // pairs are those that causality leaves
};

// A run: a call of the attention, or steps of a model.
struct ProfileResult {
  MlaDims dims;
  double seconds = 0;  // what is between phases included
  std::vector<PhaseResult> phases;
  StepProfile counts;      // of one run; its times are those above
  double mha_seconds = 0;  // of the attention, by form
  double absorbed_seconds = 0;
  double merge_seconds = 0;
  double product_seconds = 0;  // outside of attention

  double other_seconds() const;
  // Pairs computed beyond those that causality leaves, as a part of the latter; 0 without any.
  double tile_waste() const;
  double expansions() const;  // positions expanded, for all heads and in every layer
  std::int64_t weight_conversions() const { return counts.weight_conversions + counts.attention.weight_conversions; }
};

// The middle half of the runs by their time, in the mean: phases then add up as a run's do, and what else the machine
// did in some of them stays out. Every run did the same, nearly so where a sequence grows: counts are those of one of
// them. Precondition: there are some.
ProfileResult SummariseSteps(const MlaDims& dims, const StepWork& work, std::span<const StepProfile> runs, int workers);
// The same of calls of the attention alone.
ProfileResult SummariseAttention(const MlaDims& dims, std::span<const AttentionProfile> runs, int workers);

}  // namespace mla::bench

#endif  // MLA_BENCH_PROFILE_H_
