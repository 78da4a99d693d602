// What the two tables of bf16 products do alike: x rounded on its way in, sums on their way out. Included
// with MLA_SIMD_AVX512, under the flags of AVX-512 BF16.
#ifndef MLA_OPS_BF16_ROWS_H_
#define MLA_OPS_BF16_ROWS_H_

#include "base/bf16_lanes.h"
#include "ops/gemm_rows.h"
#include "ops/silu.h"

namespace mla::ops {
namespace {

using bf16::Ceil;
using bf16::FirstLanes;
using bf16::Max;
using bf16::Min;
using bf16::RoundPairs;

// The lanes of the panel that begins at output n that exist.
MLA_INLINE __mmask16 LanesFrom(const GemmBlock& b, int64_t n) {
  return static_cast<__mmask16>(FirstLanes(b.n - n, 16));
}

// A row's sums of a panel to y.
MLA_INLINE void StoreSum(const GemmBlock& b, int64_t row, int64_t panel, __m512 sum) {
  const int64_t n = panel * 16;
  const __mmask16 mask = LanesFrom(b, n);
  float* y = YRow(b, row) + n;
  sum = _mm512_mul_ps(sum, _mm512_set1_ps(b.scale));
  if (b.add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), sum);
  _mm512_mask_storeu_ps(y, mask, sum);
}

// Of panels `panel` and `panel` + 1. Not inlined: tiles of every size would each hold a copy of SiLU.
[[gnu::noinline]] void StoreSwiglu(const GemmBlock& b, int64_t row, int64_t panel, __m512 gate, __m512 up) {
  const int64_t n = panel / 2 * 16;
  _mm512_mask_storeu_ps(YRow(b, row) + n, LanesFrom(b, n), _mm512_mul_ps(Silu({gate}).v, up));
}

}  // namespace
}  // namespace mla::ops

#endif  // MLA_OPS_BF16_ROWS_H_
