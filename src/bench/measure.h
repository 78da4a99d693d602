// Times and their spread, and how they stand to the machine's limits.
#ifndef MLA_BENCH_MEASURE_H_
#define MLA_BENCH_MEASURE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bench/probe.h"

namespace mla::bench {

// The q-quantile, q in [0, 1], of at least one number: sorted, at (n - 1) q, with a straight line between neighbours
// (type 7 of Hyndman and Fan, The American Statistician 50, 1996).
double Quantile(std::span<const double> samples, double q);

struct Summary {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
  std::int64_t count = 0;
};
// Of at least one number.
Summary Summarise(std::span<const double> samples);

// What a case asks of the machine, by its shape alone.
struct Work {
  double operations = 0;  // at the rate of `peak`; a multiply-add is two
  PeakKind peak = PeakKind::kF32Portable;
  double f32_operations = 0;  // the part that runs in fp32 beside them (a router), at the rate of `f32_peak`
  PeakKind f32_peak = PeakKind::kF32Portable;
  double bytes = 0;  // of weights, as they are stored: x and y, small beside them, are not counted
};

// The machine's rates around a case, a second.
struct Rates {
  double peak = 0;
  double f32_peak = 0;
  double read = 0;  // bytes
};

enum class Bound : std::uint8_t { kCompute, kMemory };
const char* BoundName(Bound bound);  // "compute", "memory"

// The least time that the limits allow is the larger of operations / peak and bytes / read: the nearer limit.
struct Judgement {
  double compute_seconds = 0;
  double memory_seconds = 0;
  Bound bound = Bound::kCompute;
  double share = 0;  // the least time over the time taken: 1 is the limit itself
};
Judgement Judge(const Work& work, const Rates& rates, double seconds);

struct Repeats {
  double seconds = 0.3;      // go on for so long,
  std::int64_t most = 1000;  // or so often; three times at least
};
inline constexpr std::int64_t kFewestRepeats = 3;

struct Measured {
  Summary seconds;  // of one run
  Rates rates;
};

// A thing to be timed.
struct Timed {
  std::function<void()> prepare;  // before each run, outside its time; may be empty
  std::function<void()> run;
  std::function<double()> read;  // bytes a second over what `run` reads, as cold as `run` finds it
};

// Runs once to warm up, then repeats. Limits are measured before, after, and twice between, since the host's own load
// comes and goes: a rate is the mean of the four.
Measured MeasureCase(Probe& probe, const Work& work, const Timed& timed, const Repeats& repeats);

}  // namespace mla::bench

#endif  // MLA_BENCH_MEASURE_H_
