// The machine's limits, measured by the threads that work: rates of multiply-adds and of reads.
#ifndef MLA_BENCH_PROBE_H_
#define MLA_BENCH_PROBE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/cpu_info.h"
#include "bench/peak_loops.h"
#include "mla/executor.h"
#include "ops/packed.h"

namespace mla::bench {

// Instructions whose rates are limits.
enum class PeakKind : std::uint8_t {
  kF32Portable,
  kF32Avx2,
  kF32Avx512,
  kBf16Avx512,
  kBf16Amx,
  kInt8Avx512,
  kInt8Amx,
};
inline constexpr std::size_t kPeakKinds = 7;

struct PeakInfo {
  const char* type;         // "fp32", "bf16", "int8"
  const char* instruction;  // "zmm FMA"
};
const PeakInfo& PeakInfoOf(PeakKind kind);

// What this processor and build can run, by type.
std::vector<PeakKind> MachinePeaks(const CpuInfo& cpu);

// The limit of products with weights of that format by those kernels: the fastest instruction that they may use.
PeakKind PeakFor(Isa isa, ops::PackedFormat format);

class Probe {
 public:
  // `executor` outlives the probe. A run of a peak loop takes `run_seconds` or somewhat more.
  Probe(Executor& executor, const CpuInfo& cpu, double run_seconds = 2e-3);

  // Operations a second of all threads together, a multiply-add being two: the median of three runs. Precondition: the
  // machine has the instruction.
  double Operations(PeakKind kind);

  // Reads `data` (a multiple of 64 bytes) once, shared out as a product's weights are (by one thread where they are
  // few), by the widest loads there are. Returns seconds.
  double ReadSeconds(std::span<const std::byte> data);
  // Bytes a second of such a read of what is a multiple of 64 bytes at the beginning of `data`.
  double ReadRate(std::span<const std::byte> data);

  Executor& executor() const { return executor_; }

 private:
  double RunLoop(const PeakLoop& loop, std::int64_t rounds);
  std::int64_t RoundsFor(const PeakLoop& loop);

  Executor& executor_;
  double run_seconds_;
  ReadLoop read_ = nullptr;
  std::unique_ptr<PeakData> data_;
  std::vector<PeakSink> sinks_;                    // one a worker
  std::array<std::int64_t, kPeakKinds> rounds_{};  // of a run, 0 until known
};

}  // namespace mla::bench

#endif  // MLA_BENCH_PROBE_H_
