// Empty where the build leaves the instruction set out.
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#include <immintrin.h>

#include "ops/f8_decode.h"

// A code is s eeee fff. Let i be fff where eeee is 0, else 8 + fff, and v(i) the bf16 of i 2^-9 scale. Then the weight
// is v(i) where eeee is 0 or 1, and each step of eeee adds one to v's exponent: rounding commutes with powers of two
// while everything is a normal number. So where a panel's lanes have one scale, sixteen values in two registers are the
// table of a whole block.
namespace mla::ops {
namespace {

__m512i Rounded(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
}

// v(i), its exponent for eeee = 0, as bytes.
struct Table {
  __m512i low;
  __m512i high;
};

Table MakeTable(float scale) {
  const __m512 steps = _mm512_setr_ps(0, 0x1p-9F, 0x2p-9F, 0x3p-9F, 0x4p-9F, 0x5p-9F, 0x6p-9F, 0x7p-9F, 0x8p-9F,
                                      0x9p-9F, 0xap-9F, 0xbp-9F, 0xcp-9F, 0xdp-9F, 0xep-9F, 0xfp-9F);
  __m512i v = Rounded(_mm512_mul_ps(steps, _mm512_set1_ps(scale)));
  v = _mm512_mask_sub_epi32(v, 0xff00, v, _mm512_set1_epi32(0x80));
  return {_mm512_broadcast_i32x4(_mm512_cvtepi32_epi8(v)),
          _mm512_broadcast_i32x4(_mm512_cvtepi32_epi8(_mm512_srli_epi32(v, 8)))};
}

// 64 codes: in each quarter of the register the next eight of the first half, and of the second, so that unpacking
// leaves 32 neighbours in each result.
inline __attribute__((always_inline)) void Look(const Table& t, __m512i codes, __m512i* first, __m512i* second) {
  const __m512i low_three = _mm512_set1_epi8(7);
  const __m512i magnitude = _mm512_and_si512(codes, _mm512_set1_epi8(0x7f));
  // fff + 8 is above the whole magnitude where eeee is 0 alone.
  const __m512i i = _mm512_min_epu8(magnitude, _mm512_ternarylogic_epi32(codes, low_three, _mm512_set1_epi8(8), 0xea));
  const __m512i low = _mm512_shuffle_epi8(t.low, i);
  const __m512i high =
      _mm512_ternarylogic_epi32(_mm512_shuffle_epi8(t.high, i), codes, _mm512_set1_epi8(static_cast<char>(0x80)), 0xf8);
  const __m512i exponent = _mm512_and_si512(codes, _mm512_set1_epi8(0x78));
  const __m512i zero = _mm512_setzero_si512();
  *first =
      _mm512_add_epi16(_mm512_unpacklo_epi8(low, high), _mm512_slli_epi16(_mm512_unpacklo_epi8(exponent, zero), 4));
  *second =
      _mm512_add_epi16(_mm512_unpackhi_epi8(low, high), _mm512_slli_epi16(_mm512_unpackhi_epi8(exponent, zero), 4));
}

void DecodeOneScale(float scale, const char* codes, int64_t pairs, uint16_t* out) {
  const Table table = MakeTable(scale);
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  __m512i first;
  __m512i second;
  int64_t i = 0;
  for (; i + 2 <= pairs; i += 2) {
    Look(table, _mm512_permutexvar_epi64(order, _mm512_loadu_si512(codes + i * 32)), &first, &second);
    _mm512_store_si512(out + i * 32, first);
    _mm512_store_si512(out + i * 32 + 32, second);
  }
  if (i == pairs) return;
  const __m512i last = _mm512_maskz_loadu_epi64(0x0f, codes + i * 32);
  Look(table, _mm512_permutexvar_epi64(order, last), &first, &second);
  _mm512_store_si512(out + i * 32, first);
}

// Eight lanes' codes times their scales: as halves, whose exponents are 8 less, an exact step to fp32.
__m512i Products(const char* codes, __m512 scales) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const __m256i halves = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
  return Rounded(_mm512_mul_ps(_mm512_cvtph_ps(halves), scales));
}

void DecodeEachScale(__m512 scales, const char* codes, int64_t pairs, uint16_t* out) {
  scales = _mm512_mul_ps(scales, _mm512_set1_ps(256));
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

void DecodeBlock(const char* scales, const char* codes, int64_t pairs, uint16_t* out) {
  const __m512 all = _mm512_loadu_ps(scales);
  const float scale = _mm512_cvtss_f32(all);
  // From 2^-117 on no product is denormal.
  if (scale >= 0x1p-117F && _mm512_cmp_ps_mask(all, _mm512_set1_ps(scale), _CMP_EQ_OQ) == 0xffff) {
    DecodeOneScale(scale, codes, pairs, out);
  } else {
    DecodeEachScale(all, codes, pairs, out);
  }
}

}  // namespace
}  // namespace mla::ops

#include "ops/f8_decode.inl"

namespace mla::ops {

void DecodeF8Avx512(const void* panel, int64_t scale_block, int64_t pair, int64_t pairs, uint16_t* out) {
  DecodePairs(panel, scale_block, pair, pairs, out);
}

}  // namespace mla::ops

#endif
