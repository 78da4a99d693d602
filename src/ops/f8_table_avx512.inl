// Fp8 by tables, for AVX-512. Included by files with that instruction set's flags, after immintrin.h.
//
// A code is s eeee fff. Let i be fff where eeee is 0, else 8 + fff, and v(i) the bf16 of i 2^-9 scale. Then the weight
// is v(i) where eeee is 0 or 1, and each step of eeee adds one to v's exponent: rounding commutes with powers of two
// while everything is a normal number. So where a panel's lanes have one scale, sixteen values in two registers are the
// table of a whole block.
namespace mla::ops {
namespace {

inline __m512i Rounded(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
}

// v(i), its exponent for eeee = 0, as bytes.
struct F8Table {
  __m512i low;
  __m512i high;
};

// Whether a block's scales [16] are one, from 2^-117 on: then no product is denormal.
inline bool HasTable(const char* scales) {
  const __m512 all = _mm512_loadu_ps(scales);
  const __m512 first = _mm512_broadcastss_ps(_mm512_castps512_ps128(all));
  return _mm512_cmp_ps_mask(all, first, _CMP_EQ_OQ) == 0xffff && _mm512_cvtss_f32(all) >= 0x1p-117F;
}

inline F8Table MakeTable(const char* scales) {
  const __m512 steps = _mm512_setr_ps(0, 0x1p-9F, 0x2p-9F, 0x3p-9F, 0x4p-9F, 0x5p-9F, 0x6p-9F, 0x7p-9F, 0x8p-9F,
                                      0x9p-9F, 0xap-9F, 0xbp-9F, 0xcp-9F, 0xdp-9F, 0xep-9F, 0xfp-9F);
  __m512i v = Rounded(_mm512_mul_ps(steps, _mm512_set1_ps(*reinterpret_cast<const float*>(scales))));
  v = _mm512_mask_sub_epi32(v, 0xff00, v, _mm512_set1_epi32(0x80));
  return {_mm512_broadcast_i32x4(_mm512_cvtepi32_epi8(v)),
          _mm512_broadcast_i32x4(_mm512_cvtepi32_epi8(_mm512_srli_epi32(v, 8)))};
}

// The weights of 64 codes, two pairs of k for sixteen lanes: a pair in each result.
inline __attribute__((always_inline)) void Look(const F8Table& t, __m512i codes, __m512i* first, __m512i* second) {
  // In each quarter the next eight of the first half, and of the second: unpacking then leaves 32 neighbours in each
  // result.
  codes = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), codes);
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

}  // namespace
}  // namespace mla::ops
