// Products of one packed matrix, alone.
#ifndef MLA_BENCH_GEMM_BENCH_H_
#define MLA_BENCH_GEMM_BENCH_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "base/cpu_info.h"
#include "bench/case_result.h"
#include "bench/probe.h"
#include "bench/random_weights.h"
#include "bench/shapes.h"
#include "mla/result.h"
#include "ops/gemm.h"
#include "ops/packed.h"

namespace mla::bench {

// Bytes of weights that a case passes over before it reads one again, unless asked otherwise: past most last-level
// caches.
inline constexpr std::int64_t kStreamed = std::int64_t{1} << 30;

struct GemmPlan {
  WeightShape shape;
  WeightFormat format{};
  std::int64_t max_rows = 1;
  std::int64_t working_set = kStreamed;  // copies of the matrix are made until they pass it; 0: one copy

  std::int64_t copies() const;
};

// FLOPs and bytes of rows x shape.
Work GemmWork(const WeightShape& shape, const WeightFormat& format, std::int64_t rows, Isa isa);

// A matrix and its copies, random, in memory; products go from one copy to the next.
class GemmBench {
 public:
  // Bytes that Create allocates.
  static std::int64_t PlannedBytes(const GemmPlan& plan, int workers);
  // Fails where memory can't be had.
  static Result<GemmBench> Create(const GemmPlan& plan, Executor& executor);

  // Products with `rows` rows, at most the plan's. Precondition: the machine has `isa`, the probe the same executor.
  CaseResult Run(Probe& probe, Isa isa, std::int64_t rows, const Repeats& repeats);

  // The copy that the next product or read is of; moves on to the one after it.
  ops::PackedMatrix NextCopy();

 private:
  explicit GemmBench(const GemmPlan& plan) : plan_(plan) {}
  // Lays memory out; with a counting carver, tells its size.
  void Place(int workers, Carver* carver);
  double ReadRate(Probe& probe);

  GemmPlan plan_;
  Buffer buffer_;
  ops::PackedMatrix first_;  // the others follow it
  std::byte* source_ = nullptr;
  float* x_ = nullptr;
  float* y_ = nullptr;
  ops::GemmMemory gemm_;
  std::int64_t copy_ = 0;
};

}  // namespace mla::bench

#endif  // MLA_BENCH_GEMM_BENCH_H_
