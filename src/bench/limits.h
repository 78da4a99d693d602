// The machine's limits by themselves, as a report shows them.
#ifndef MLA_BENCH_LIMITS_H_
#define MLA_BENCH_LIMITS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/cpu_info.h"
#include "bench/measure.h"
#include "bench/probe.h"
#include "mla/result.h"

namespace mla::bench {

struct PeakRate {
  PeakKind kind = PeakKind::kF32Portable;
  Summary operations;  // a second, all threads; a multiply-add is two
};

struct ReadRate {
  std::int64_t size = 0;  // of the buffer that is read over and over
  Summary bytes;          // a second, all threads
};

struct MachineLimits {
  std::vector<PeakRate> peaks;
  std::vector<ReadRate> reads;
};

// Sizes that tell caches and memory apart; the last is `streamed`.
std::vector<std::int64_t> ReadSizes(std::int64_t streamed);

// Measures every instruction that the machine has, and reads of buffers of these sizes (multiples of 64, ascending), in
// memory as weights have it. Allocates the largest; fails where it can't be had.
Result<MachineLimits> MeasureLimits(Probe& probe, const CpuInfo& cpu, std::span<const std::int64_t> sizes);

}  // namespace mla::bench

#endif  // MLA_BENCH_LIMITS_H_
