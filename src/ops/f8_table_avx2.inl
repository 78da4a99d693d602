// Fp8 by tables, for AVX2; ops/f8_table_avx512.inl explains them. Included by files with that instruction set's flags,
// after immintrin.h.

namespace mla::ops {
namespace {

inline __m256i Rounded(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
}

struct F8Table {
  __m256i low;
  __m256i high;
};

// Whether a block's scales [16] are one, from 2^-117 on: then no product is denormal.
inline bool HasTable(const char* scales) {
  const auto* all = reinterpret_cast<const float*>(scales);
  const __m256 first = _mm256_broadcast_ss(all);
  const __m256 same = _mm256_and_ps(_mm256_cmp_ps(_mm256_loadu_ps(all), first, _CMP_EQ_OQ),
                                    _mm256_cmp_ps(_mm256_loadu_ps(all + 8), first, _CMP_EQ_OQ));
  return _mm256_movemask_ps(same) == 0xff && _mm256_cvtss_f32(first) >= 0x1p-117F;
}

inline F8Table MakeTable(const char* scales) {
  const __m256 steps = _mm256_setr_ps(0, 0x1p-9F, 0x2p-9F, 0x3p-9F, 0x4p-9F, 0x5p-9F, 0x6p-9F, 0x7p-9F);
  const __m256 of = _mm256_broadcast_ss(reinterpret_cast<const float*>(scales));
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

// The weights of 32 codes, a pair of k for sixteen lanes: those of the first eight lanes, and of the others.
inline __attribute__((always_inline)) void Look(const F8Table& t, __m256i codes, __m256i* first, __m256i* second) {
  // In each half the next eight of the first sixteen, and of the others: unpacking then leaves neighbours.
  const __m256i c = _mm256_permute4x64_epi64(codes, 0xd8);
  const __m256i magnitude = _mm256_and_si256(c, _mm256_set1_epi8(0x7f));
  const __m256i i =
      _mm256_min_epu8(magnitude, _mm256_or_si256(_mm256_and_si256(c, _mm256_set1_epi8(7)), _mm256_set1_epi8(8)));
  const __m256i low = _mm256_shuffle_epi8(t.low, i);
  const __m256i high = _mm256_or_si256(_mm256_shuffle_epi8(t.high, i), _mm256_xor_si256(c, magnitude));
  const __m256i exponent = _mm256_and_si256(c, _mm256_set1_epi8(0x78));
  const __m256i zero = _mm256_setzero_si256();
  *first =
      _mm256_add_epi16(_mm256_unpacklo_epi8(low, high), _mm256_slli_epi16(_mm256_unpacklo_epi8(exponent, zero), 4));
  *second =
      _mm256_add_epi16(_mm256_unpackhi_epi8(low, high), _mm256_slli_epi16(_mm256_unpackhi_epi8(exponent, zero), 4));
}

}  // namespace
}  // namespace mla::ops
