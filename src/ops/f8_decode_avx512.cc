// Empty where the build leaves the instruction set out.
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#include <immintrin.h>

#include "ops/f8_decode.h"
#include "ops/f8_table_avx512.inl"

namespace mla::ops {
namespace {

void DecodeOneScale(const F8Table& table, const char* codes, int64_t pairs, uint16_t* out, int64_t ahead) {
  __m512i first;
  __m512i second;
  int64_t i = 0;
  for (; i + 2 <= pairs; i += 2) {
    _mm_prefetch(codes + i * 32 + ahead, _MM_HINT_T0);
    Look(table, _mm512_loadu_si512(codes + i * 32), &first, &second);
    _mm512_store_si512(out + i * 32, first);
    _mm512_store_si512(out + i * 32 + 32, second);
  }
  if (i == pairs) return;
  const __m512i last = _mm512_maskz_loadu_epi64(0x0f, codes + i * 32);
  Look(table, last, &first, &second);
  _mm512_store_si512(out + i * 32, first);
}

// Eight lanes' codes times their scales: as halves, whose exponents are 8 less, an exact step to fp32.
__m512i Products(const char* codes, __m512 scales) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
  return Rounded(_mm512_mul_ps(_mm512_cvtph_ps(halves), scales));
}

void DecodeEachScale(const char* lane_scales, const char* codes, int64_t pairs, uint16_t* out) {
  const __m512 scales = _mm512_mul_ps(_mm512_loadu_ps(lane_scales), _mm512_set1_ps(256));
  const __m512 first = _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), scales);
  const __m512 second =
      _mm512_permutexvar_ps(_mm512_setr_epi32(8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15), scales);
  for (int64_t i = 0; i < pairs; ++i) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + i * 32),
                       _mm512_cvtepi32_epi16(Products(codes + i * 32, first)));
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + i * 32 + 16),
                       _mm512_cvtepi32_epi16(Products(codes + i * 32 + 16, second)));
  }
}

}  // namespace
}  // namespace mla::ops

#define MLA_F8_TABLE
#include "ops/f8_decode.inl"

namespace mla::ops {

void DecodeF8Avx512(const void* panel, int64_t scale_block, int64_t pair, int64_t pairs, uint16_t* out, int64_t ahead) {
  DecodePairs(panel, scale_block, pair, pairs, out, ahead);
}

}  // namespace mla::ops

#endif
