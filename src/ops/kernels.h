// The kernels of one instruction set, as a table of plain functions. Plain types alone: this header is compiled under
// every instruction set's flags.
#ifndef MLA_OPS_KERNELS_H_
#define MLA_OPS_KERNELS_H_

#include <stdint.h>

namespace mla::ops {

// A block of y [m, n] (+)= scale * (x [m, k] W^T), W packed (ops/packed.h). Row r of x is at x + (x_rows ? x_rows[r] :
// r) * ldx, of y at y + (y_rows ? y_rows[r] : r) * ldy. Strides in elements.
struct GemmBlock {
  const float* x;  // [m, k]
  int64_t ldx;
  const int32_t* x_rows;  // [m] or null
  float* y;               // [m, n]
  int64_t ldy;
  const int32_t* y_rows;  // [m] or null
  const void* panels;     // the matrix's first panel
  int64_t n;
  int64_t k;
  int64_t row_begin;  // rows [row_begin, row_end)
  int64_t row_end;
  int64_t panel_begin;  // panels [panel_begin, panel_end)
  int64_t panel_end;
  bool add;     // y += instead of y =, after the whole sum over k
  float scale;  // of the whole sum, rounded on its own
};

// Every output is one fp32 accumulator over k in ascending order, by the same instruction for every m: bits of a row
// don't depend on the rows beside it.
using GemmFn = void (*)(const GemmBlock&);

struct OpKernels {
  const char* name;  // "portable", "avx2", "avx512"
  GemmFn gemm_f32;   // PackedFormat::kF32
  GemmFn gemm_bf16;  // PackedFormat::kBF16, widened exactly to fp32 in registers
  // y[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i], i in [0, n). y may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, float* y, int64_t n);
  // y[i] = silu(gate[i]) * up[i]. y may be gate.
  void (*silu_mul)(const float* gate, const float* up, float* y, int64_t n);
  // y[i] += scale * x[i]: the weighted sum of expert results, in the caller's order.
  void (*add_scaled)(const float* x, float scale, float* y, int64_t n);
};

extern const OpKernels kOpsPortable;
extern const OpKernels kOpsAvx2;
extern const OpKernels kOpsAvx512;

}  // namespace mla::ops

#endif  // MLA_OPS_KERNELS_H_
