// Empty where the build leaves the instruction set out.
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#include <immintrin.h>

#include "ops/f8_decode.h"

// As f8_decode_avx512.cc, where it is explained.
namespace mla::ops {
namespace {

__m256i Rounded(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
}

struct Table {
  __m256i low;
  __m256i high;
};

Table MakeTable(float scale) {
  const __m256 steps = _mm256_setr_ps(0, 0x1p-9F, 0x2p-9F, 0x3p-9F, 0x4p-9F, 0x5p-9F, 0x6p-9F, 0x7p-9F);
  const __m256 of = _mm256_set1_ps(scale);
  const __m256i first = Rounded(_mm256_mul_ps(steps, of));
  const __m256i second = _mm256_sub_epi32(Rounded(_mm256_mul_ps(_mm256_add_ps(steps, _mm256_set1_ps(0x8p-9F)), of)),
                                          _mm256_set1_epi32(0x80));
  // Sixteen words in order, twice; then their low and their high bytes.
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(first, second), 0xd8);
  const __m256i low_byte = _mm256_set1_epi16(0xff);
  const __m256i low = _mm256_packus_epi16(_mm256_and_si256(words, low_byte), _mm256_and_si256(words, low_byte));
  const __m256i high = _mm256_packus_epi16(_mm256_srli_epi16(words, 8), _mm256_srli_epi16(words, 8));
  return {_mm256_permute4x64_epi64(low, 0x88), _mm256_permute4x64_epi64(high, 0x88)};
}

void DecodeOneScale(float scale, const char* codes, int64_t pairs, uint16_t* out) {
  const Table table = MakeTable(scale);
  const __m256i zero = _mm256_setzero_si256();
  for (int64_t p = 0; p < pairs; ++p) {
    const __m256i c =
        _mm256_permute4x64_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + p * 32)), 0xd8);
    const __m256i magnitude = _mm256_and_si256(c, _mm256_set1_epi8(0x7f));
    const __m256i i =
        _mm256_min_epu8(magnitude, _mm256_or_si256(_mm256_and_si256(c, _mm256_set1_epi8(7)), _mm256_set1_epi8(8)));
    const __m256i low = _mm256_shuffle_epi8(table.low, i);
    const __m256i high = _mm256_or_si256(_mm256_shuffle_epi8(table.high, i), _mm256_xor_si256(c, magnitude));
    const __m256i exponent = _mm256_and_si256(c, _mm256_set1_epi8(0x78));
    const __m256i first = _mm256_slli_epi16(_mm256_unpacklo_epi8(exponent, zero), 4);
    const __m256i second = _mm256_slli_epi16(_mm256_unpackhi_epi8(exponent, zero), 4);
    auto* to = reinterpret_cast<__m256i*>(out + p * 32);
    _mm256_store_si256(to, _mm256_add_epi16(_mm256_unpacklo_epi8(low, high), first));
    _mm256_store_si256(to + 1, _mm256_add_epi16(_mm256_unpackhi_epi8(low, high), second));
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

void DecodeBlock(const char* scales, const char* codes, int64_t pairs, uint16_t* out) {
  const auto* all = reinterpret_cast<const float*>(scales);
  const __m256 one = _mm256_broadcast_ss(all);
  const __m256 same = _mm256_and_ps(_mm256_cmp_ps(_mm256_loadu_ps(all), one, _CMP_EQ_OQ),
                                    _mm256_cmp_ps(_mm256_loadu_ps(all + 8), one, _CMP_EQ_OQ));
  const float scale = _mm256_cvtss_f32(one);
  if (scale >= 0x1p-117F && _mm256_movemask_ps(same) == 0xff) {
    DecodeOneScale(scale, codes, pairs, out);
  } else {
    DecodeEachScale(scales, codes, pairs, out);
  }
}

}  // namespace
}  // namespace mla::ops

#include "ops/f8_decode.inl"

namespace mla::ops {

void DecodeF8Avx2(const void* panel, int64_t scale_block, int64_t pair, int64_t pairs, uint16_t* out) {
  DecodePairs(panel, scale_block, pair, pairs, out);
}

}  // namespace mla::ops

#endif
