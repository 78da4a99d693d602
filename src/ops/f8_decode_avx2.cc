// Empty where the build leaves the instruction set out.
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#include <immintrin.h>

#include "ops/f8_decode.h"
#include "ops/f8_table_avx2.inl"

namespace mla::ops {
namespace {

void DecodeOneScale(const F8Table& table, const char* codes, int64_t pairs, uint16_t* out, int64_t ahead) {
  for (int64_t p = 0; p < pairs; ++p) {
    _mm_prefetch(codes + p * 32 + ahead, _MM_HINT_T0);
    auto* to = reinterpret_cast<__m256i*>(out + p * 32);
    __m256i first;
    __m256i second;
    Look(table, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + p * 32)), &first, &second);
    _mm256_store_si256(to, first);
    _mm256_store_si256(to + 1, second);
  }
}

__m256i Products(const char* codes, __m256 scales) {
  const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
  const __m128i halves = _mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16(static_cast<int16_t>(0xbf80)));
  return Rounded(_mm256_mul_ps(_mm256_cvtph_ps(halves), scales));
}

void DecodeEachScale(const char* scales, const char* codes, int64_t pairs, uint16_t* out) {
  for (int64_t quarter = 0; quarter < 4; ++quarter) {
    const __m128 four =
        _mm_mul_ps(_mm_loadu_ps(reinterpret_cast<const float*>(scales) + quarter * 4), _mm_set1_ps(256));
    const __m256 twice =
        _mm256_permutevar8x32_ps(_mm256_castps128_ps256(four), _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
    for (int64_t p = 0; p < pairs; ++p) {
      const __m256i eight = Products(codes + p * 32 + quarter * 8, twice);
      const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
      _mm_store_si128(reinterpret_cast<__m128i*>(out + p * 32 + quarter * 8), words);
    }
  }
}

}  // namespace
}  // namespace mla::ops

#define MLA_F8_TABLE
#include "ops/f8_decode.inl"

namespace mla::ops {

void DecodeF8Avx2(const void* panel, int64_t scale_block, int64_t pair, int64_t pairs, uint16_t* out, int64_t ahead) {
  DecodePairs(panel, scale_block, pair, pairs, out, ahead);
}

}  // namespace mla::ops

#endif
