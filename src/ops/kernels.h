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
  int64_t m;
  void* packed_x;      // x as pack_x has left it, or null: the kernel packs what it needs itself
  const void* panels;  // the matrix's first panel
  int64_t n;
  int64_t k;
  int64_t scale_block;  // of kF8, else 0
  int64_t row_begin;    // rows [row_begin, row_end)
  int64_t row_end;
  int64_t panel_begin;  // panels [panel_begin, panel_end)
  int64_t panel_end;
  bool add;     // y += instead of y =, after the whole sum over k
  float scale;  // of the whole sum, rounded on its own
  // Panels 2p and 2p + 1 hold outputs 16p .. 16p+15 of a gate and of an up projection, and y = silu(gate) * up: the
  // bits of silu_mul over both sums. panel_begin and panel_end are even; no add, scale 1.
  bool swiglu;
  void* scratch;  // kGemmScratch bytes of the calling worker, 64-byte aligned
};

// What a worker's product may write beside y.
constexpr int64_t kGemmScratch = 1792 << 10;

// Rows and k of a packed x are rounded up to these.
constexpr int64_t kPackRows = 16;
constexpr int64_t kPackStep = 32;
constexpr int64_t PackedInputBytes(int64_t m, int64_t k) {
  return (m + kPackRows - 1) / kPackRows * kPackRows * ((k + kPackStep - 1) / kPackStep) * kPackStep * 2;
}

// Every output is one fp32 accumulator over k in ascending steps (of 1, 2 or 32, the table's own), by the same
// instruction for every m: bits of a row don't depend on the rows beside it.
using GemmFn = void (*)(const GemmBlock&);

struct OpKernels {
  const char* name;  // "portable", "avx2", "avx512", "avx512bf16", "amx"
  // Whether products with bf16 weights, fp8's too, round x to bf16 first (to nearest even, denormals to 0).
  bool bf16_inputs;
  // Rows of a task: x's share stays in the second cache while panels pass.
  int64_t task_rows;
  // Up to so many rows each task packs x for itself: less than another region costs.
  int64_t rows_packed_alone;
  GemmFn gemm_f32;   // PackedFormat::kF32
  GemmFn gemm_bf16;  // PackedFormat::kBF16: products are exact, sums in fp32
  GemmFn gemm_f8;    // PackedFormat::kF8: the bits of gemm_bf16 over the same weights
  // Writes rows [row_begin, row_end) of x to packed_x, as gemm_bf16 and gemm_f8 read them: once for all the panels of
  // many rows. row_begin is a multiple of kPackRows. Null where there is no such form.
  GemmFn pack_x;
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
extern const OpKernels kOpsAvx512Bf16;
extern const OpKernels kOpsAmx;

}  // namespace mla::ops

#endif  // MLA_OPS_KERNELS_H_
