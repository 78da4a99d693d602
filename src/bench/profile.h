// Profiles of a case's runs, made into one: phases with what they did, by the shape.
#ifndef MLA_BENCH_PROFILE_H_
#define MLA_BENCH_PROFILE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mla/attention.h"
#include "mla/profile.h"

namespace mla::bench {

// One phase of a run.
struct PhaseResult {
  std::string name;
  double seconds = 0;
  double busy_largest = 0;  // of the worker that was busy longest, and of all in the mean
  double busy_mean = 0;
  double operations = 0;  // a multiply-add is two; pairs are those that causality leaves; 0 where none are counted
  double bytes = 0;       // of cache rows or weights that it reads, each once; 0 where none are counted
};

struct ProfileResult {
  double seconds = 0;  // of a run, what is between phases included
  std::vector<PhaseResult> phases;
  AttentionProfile attention;  // counts of a run; its times are those above

  double other_seconds() const;
  double merge_share() const;  // of the run
  // Pairs computed beyond those that causality leaves, as a part of the latter; 0 without any.
  double tile_waste() const;
  double expansions(const MlaDims& dims) const;  // positions expanded, for all heads
};

// The middle half of the runs by their time, in the mean: phases then add up as a run's do, and what else the machine
// did in some of them stays out. Every run did the same. Precondition: there are some, each of one call.
ProfileResult SummariseAttention(const MlaDims& dims, std::span<const AttentionProfile> runs, int workers);

}  // namespace mla::bench

#endif  // MLA_BENCH_PROFILE_H_
