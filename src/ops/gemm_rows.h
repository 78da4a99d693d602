// Where a product's rows are, for the kernels of every table. Included after base/simd.h, under an instruction set's
// flags.
#ifndef MLA_OPS_GEMM_ROWS_H_
#define MLA_OPS_GEMM_ROWS_H_

#include "ops/kernels.h"

namespace mla::ops {
namespace {

MLA_INLINE const float* XRow(const GemmBlock& b, int64_t r) { return b.x + (b.x_rows ? b.x_rows[r] : r) * b.ldx; }
MLA_INLINE float* YRow(const GemmBlock& b, int64_t r) { return b.y + (b.y_rows ? b.y_rows[r] : r) * b.ldy; }

// Of weights in fp8 (ops/packed.h).
MLA_INLINE int64_t PanelBytesF8(const GemmBlock& b) {
  return (b.k + b.scale_block - 1) / b.scale_block * 64 + (b.k + 1) / 2 * 32;
}

}  // namespace
}  // namespace mla::ops

#endif  // MLA_OPS_GEMM_ROWS_H_
