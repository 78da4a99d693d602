// Products of activations with packed weights, shared out over workers.
#ifndef MLA_OPS_GEMM_H_
#define MLA_OPS_GEMM_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "base/cpu_info.h"
#include "mla/executor.h"
#include "ops/kernels.h"
#include "ops/packed.h"

namespace mla::ops {

// The kernels of an instruction set. Precondition: cpu.Has(isa).
const OpKernels& KernelsFor(Isa isa);

// y [m, n] (+)= scale * (x [m, k] W^T).
struct GemmProblem {
  const float* x = nullptr;  // [m, k]
  std::int64_t ldx = 0;
  float* y = nullptr;  // [m, n]
  std::int64_t ldy = 0;
  std::int64_t m = 0;
  PackedMatrix w;
  bool add = false;
  float scale = 1;                       // of each whole sum; 1 changes no bit
  const std::int32_t* x_rows = nullptr;  // [m]: row r of x is x_rows[r]
  const std::int32_t* y_rows = nullptr;  // [m]: row r of y is y_rows[r]; no row twice
  // Above 0: W's panels are a gate's and an up projection's in turn, of so many outputs each (SwigluRows), and y
  // [m, swiglu] = silu(x gate^T) * (x up^T). Neither add nor scale then.
  std::int64_t swiglu = 0;
};

// What products work in.
struct GemmMemory {
  std::byte* scratch = nullptr;  // kGemmScratch bytes for each worker, at 64-byte borders
  // Room for packed inputs of many rows (PackedInputBytes), or none: workers then pack their own, over again for each
  // task. Changes no result.
  std::byte* inputs = nullptr;
  std::int64_t input_bytes = 0;

  static GemmMemory Place(int workers, std::int64_t input_bytes, Carver* carver) {
    auto* scratch = carver->Take<std::byte>(workers * kGemmScratch);
    return {scratch, carver->Take<std::byte>(input_bytes), input_bytes};
  }
};

// What products did, for who asks.
struct GemmCounts {
  double seconds = 0;
  double operations = 0;          // a multiply-add is two
  std::int64_t weight_bytes = 0;  // read: those of a matrix again for each block of rows that tasks are cut into
  // Products with weights that don't lie in `loaded`, where packing at load has put them: made for the occasion.
  std::int64_t conversions = 0;
  std::span<const std::byte> loaded;
};

// Who computes, and where.
struct GemmContext {
  Executor& executor;
  const OpKernels& kernels;
  GemmMemory memory;
  GemmCounts* counts = nullptr;  // what is added to, or null: then no clock is read
};

// Runs all problems as one parallel region, two where inputs are packed first. Outputs (and whole rows) are split over
// workers, never k, so that the bits depend on x's row and W alone. Allocates nothing.
void Gemm(const GemmContext& context, std::span<const GemmProblem> problems);

inline void Gemm(const GemmContext& context, const GemmProblem& problem) {
  Gemm(context, std::span<const GemmProblem>(&problem, 1));
}

}  // namespace mla::ops

#endif  // MLA_OPS_GEMM_H_
