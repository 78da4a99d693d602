// Floats on their way into products of bf16, for kernels of AVX-512 BF16 and AMX. Included with MLA_SIMD_AVX512, under
// those flags; everything is internal to its translation unit, as in simd.h.
#ifndef MLA_BASE_BF16_LANES_H_
#define MLA_BASE_BF16_LANES_H_

#include <immintrin.h>
#include <stdint.h>

#include "base/simd.h"

namespace mla::bf16 {

MLA_INLINE int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
MLA_INLINE int64_t Max(int64_t a, int64_t b) { return a > b ? a : b; }
// a / b rounded up.
MLA_INLINE int64_t Ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The lanes, of at most 32, of a vector's elements of which `left` are left: none of a negative number.
MLA_INLINE uint32_t FirstLanes(int64_t left, int64_t lanes) {
  if (left >= lanes) return lanes == 32 ? 0xffffffffU : (1U << lanes) - 1;
  return left <= 0 ? 0 : (1U << left) - 1;
}

// 32 of x, rounded to nearest even, denormals to 0; past the `left` first of them zero, and not read.
MLA_INLINE __m512i RoundPairs(const float* x, int64_t left) {
  if (left >= 32) return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x));
  const uint32_t lanes = FirstLanes(left, 32);
  const auto low = static_cast<__mmask16>(lanes);
  const auto high = static_cast<__mmask16>(lanes >> 16);
  return (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(high, x + 16), _mm512_maskz_loadu_ps(low, x));
}

}  // namespace mla::bf16

#endif  // MLA_BASE_BF16_LANES_H_
