// Sixteen floats as one value, for each instruction set: kernels are written once over V16, and each *_ISA.cc compiles
// them for its own. Define MLA_SIMD_PORTABLE, MLA_SIMD_AVX2 or MLA_SIMD_AVX512 before including.
//
// Everything here is internal to its translation unit (the namespace carries the instruction set's name and functions
// are always inlined), and no standard-library header with inline code is included: otherwise the linker might keep an
// AVX-512 copy of a shared inline function for machines that lack it.
#ifndef MLA_BASE_SIMD_H_
#define MLA_BASE_SIMD_H_

#include <stdint.h>

#if defined(MLA_SIMD_AVX512) || defined(MLA_SIMD_AVX2)
#include <immintrin.h>
#endif

#if defined(MLA_SIMD_AVX512)
#define MLA_SIMD_NS avx512
#elif defined(MLA_SIMD_AVX2)
#define MLA_SIMD_NS avx2
#elif defined(MLA_SIMD_PORTABLE)
#define MLA_SIMD_NS portable
#else
#error "define MLA_SIMD_PORTABLE, MLA_SIMD_AVX2 or MLA_SIMD_AVX512"
#endif

#define MLA_INLINE static inline __attribute__((always_inline))

namespace mla::simd::MLA_SIMD_NS {

constexpr int kLanes = 16;

#if defined(MLA_SIMD_AVX512)

struct V16 {
  __m512 v;
};
MLA_INLINE V16 Zero() { return {_mm512_setzero_ps()}; }
MLA_INLINE V16 Set1(float x) { return {_mm512_set1_ps(x)}; }
MLA_INLINE V16 Load(const float* p) { return {_mm512_loadu_ps(p)}; }
MLA_INLINE void Store(float* p, V16 a) { _mm512_storeu_ps(p, a.v); }
MLA_INLINE V16 Add(V16 a, V16 b) { return {_mm512_add_ps(a.v, b.v)}; }
MLA_INLINE V16 Sub(V16 a, V16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
MLA_INLINE V16 Mul(V16 a, V16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
MLA_INLINE V16 Div(V16 a, V16 b) { return {_mm512_div_ps(a.v, b.v)}; }
// A NaN in b is kept.
MLA_INLINE V16 Max(V16 a, V16 b) { return {_mm512_max_ps(a.v, b.v)}; }
MLA_INLINE V16 Min(V16 a, V16 b) { return {_mm512_min_ps(a.v, b.v)}; }
MLA_INLINE V16 Fma(V16 a, V16 b, V16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
MLA_INLINE V16 Round(V16 a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
// 2^n for whole n in [-126, 127].
MLA_INLINE V16 Pow2(V16 n) {
  const __m512i bits = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23);
  return {_mm512_castsi512_ps(bits)};
}
// a < b ? 0 : x, lane by lane; unordered keeps x.
MLA_INLINE V16 ZeroWhereLess(V16 a, V16 b, V16 x) {
  return {_mm512_mask_mov_ps(x.v, _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), _mm512_setzero_ps())};
}
MLA_INLINE V16 LoadBf16(const uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
// 16 pairs (low half first): the first, and the second, of each.
MLA_INLINE void LoadBf16Pairs(const uint16_t* p, V16* first, V16* second) {
  const __m512i w = _mm512_loadu_si512(p);
  first->v = _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
  second->v = _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
}

#elif defined(MLA_SIMD_AVX2)

struct V16 {
  __m256 a, b;
};
MLA_INLINE V16 Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
MLA_INLINE V16 Set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
MLA_INLINE V16 Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
MLA_INLINE void Store(float* p, V16 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
MLA_INLINE V16 Add(V16 x, V16 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
MLA_INLINE V16 Sub(V16 x, V16 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
MLA_INLINE V16 Mul(V16 x, V16 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
MLA_INLINE V16 Div(V16 x, V16 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
MLA_INLINE V16 Max(V16 x, V16 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
MLA_INLINE V16 Min(V16 x, V16 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
MLA_INLINE V16 Fma(V16 x, V16 y, V16 z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
MLA_INLINE V16 Round(V16 x) {
  return {_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
MLA_INLINE __m256 Pow2Half(__m256 n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
MLA_INLINE V16 Pow2(V16 n) { return {Pow2Half(n.a), Pow2Half(n.b)}; }
MLA_INLINE V16 ZeroWhereLess(V16 x, V16 y, V16 z) {
  return {_mm256_andnot_ps(_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), z.a),
          _mm256_andnot_ps(_mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ), z.b)};
}
MLA_INLINE __m256 WidenBf16(__m128i half) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
MLA_INLINE V16 LoadBf16(const uint16_t* p) {
  return {WidenBf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          WidenBf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
MLA_INLINE void LoadBf16Pairs(const uint16_t* p, V16* first, V16* second) {
  const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16));
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
  first->a = _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
  first->b = _mm256_castsi256_ps(_mm256_slli_epi32(y, 16));
  second->a = _mm256_castsi256_ps(_mm256_and_si256(x, mask));
  second->b = _mm256_castsi256_ps(_mm256_and_si256(y, mask));
}

#else  // portable: GCC and clang vector extensions, which compile for any target

typedef float F4 __attribute__((vector_size(16), aligned(4)));
typedef int32_t I4 __attribute__((vector_size(16)));
struct V16 {
  F4 v[4];
};
#define MLA_EACH(expression)    \
  V16 r;                        \
  for (int i = 0; i < 4; ++i) { \
    r.v[i] = (expression);      \
  }                             \
  return r
MLA_INLINE V16 Set1(float x) { MLA_EACH((F4{x, x, x, x})); }
MLA_INLINE V16 Zero() { return Set1(0.0F); }
MLA_INLINE V16 Load(const float* p) { MLA_EACH(*reinterpret_cast<const F4*>(p + 4 * i)); }
MLA_INLINE void Store(float* p, V16 a) {
  for (int i = 0; i < 4; ++i) *reinterpret_cast<F4*>(p + 4 * i) = a.v[i];
}
MLA_INLINE V16 Add(V16 a, V16 b) { MLA_EACH(a.v[i] + b.v[i]); }
MLA_INLINE V16 Sub(V16 a, V16 b) { MLA_EACH(a.v[i] - b.v[i]); }
MLA_INLINE V16 Mul(V16 a, V16 b) { MLA_EACH(a.v[i] * b.v[i]); }
MLA_INLINE V16 Div(V16 a, V16 b) { MLA_EACH(a.v[i] / b.v[i]); }
MLA_INLINE F4 Select(I4 mask, F4 yes, F4 no) { return (F4)((mask & (I4)yes) | (~mask & (I4)no)); }
MLA_INLINE V16 Max(V16 a, V16 b) { MLA_EACH(Select((I4)(a.v[i] > b.v[i]), a.v[i], b.v[i])); }
MLA_INLINE V16 Min(V16 a, V16 b) { MLA_EACH(Select((I4)(a.v[i] < b.v[i]), a.v[i], b.v[i])); }
// Rounds the product and the sum apart: what a machine without fused multiply-add does, on every machine.
MLA_INLINE V16 Fma(V16 a, V16 b, V16 c) { MLA_EACH(a.v[i] * b.v[i] + c.v[i]); }
// To nearest, ties to even, for |a| < 2^22: adding 1.5 * 2^23 leaves no bits for a fraction.
MLA_INLINE V16 Round(V16 a) {
  const F4 magic = {12582912.0F, 12582912.0F, 12582912.0F, 12582912.0F};
  MLA_EACH((a.v[i] + magic) - magic);
}
MLA_INLINE V16 Pow2(V16 n) {
  V16 r;
  for (int i = 0; i < 4; ++i) {
    I4 bits;
    for (int j = 0; j < 4; ++j) bits[j] = n.v[i][j] == n.v[i][j] ? (static_cast<int32_t>(n.v[i][j]) + 127) << 23 : 0;
    r.v[i] = (F4)bits;
  }
  return r;
}
MLA_INLINE V16 ZeroWhereLess(V16 a, V16 b, V16 x) { MLA_EACH(Select((I4)(a.v[i] < b.v[i]), (F4{0, 0, 0, 0}), x.v[i])); }
MLA_INLINE V16 LoadBf16(const uint16_t* p) {
  V16 r;
  for (int i = 0; i < 4; ++i) {
    I4 bits;
    for (int j = 0; j < 4; ++j) bits[j] = static_cast<int32_t>(static_cast<uint32_t>(p[4 * i + j]) << 16);
    r.v[i] = (F4)bits;
  }
  return r;
}
typedef uint32_t U4 __attribute__((vector_size(16), aligned(2)));
MLA_INLINE void LoadBf16Pairs(const uint16_t* p, V16* first, V16* second) {
  for (int i = 0; i < 4; ++i) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const U4 w = *reinterpret_cast<const U4*>(p + 8 * i);
    first->v[i] = (F4)(w << 16);
    second->v[i] = (F4)(w & 0xffff0000U);
#else
#error "weights and cache rows are little-endian: a big-endian port must swap here"
#endif
  }
}
#undef MLA_EACH

#endif

// out[j * ldo + i] = in[i * ldi + j] for i and j in [0, 16).
#if defined(MLA_SIMD_AVX512)
MLA_INLINE void Transpose16(const float* in, int64_t ldi, float* out, int64_t ldo) {
  __m512 a[16];
  __m512 b[16];
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_ps(in + i * ldi);
  // Within 128-bit lanes: b[4k + c] holds, in lane q, column 4q + c of rows 4k .. 4k+3.
  for (int k = 0; k < 16; k += 4) {
    const __m512 t0 = _mm512_unpacklo_ps(a[k], a[k + 1]);
    const __m512 t1 = _mm512_unpackhi_ps(a[k], a[k + 1]);
    const __m512 t2 = _mm512_unpacklo_ps(a[k + 2], a[k + 3]);
    const __m512 t3 = _mm512_unpackhi_ps(a[k + 2], a[k + 3]);
    b[k] = _mm512_shuffle_ps(t0, t2, 0x44);
    b[k + 1] = _mm512_shuffle_ps(t0, t2, 0xee);
    b[k + 2] = _mm512_shuffle_ps(t1, t3, 0x44);
    b[k + 3] = _mm512_shuffle_ps(t1, t3, 0xee);
  }
  // Then a 4x4 transpose of lanes.
  for (int c = 0; c < 4; ++c) {
    const __m512 t0 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x44);
    const __m512 t1 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xee);
    const __m512 t2 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0x44);
    const __m512 t3 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0xee);
    _mm512_storeu_ps(out + c * ldo, _mm512_shuffle_f32x4(t0, t2, 0x88));
    _mm512_storeu_ps(out + (4 + c) * ldo, _mm512_shuffle_f32x4(t0, t2, 0xdd));
    _mm512_storeu_ps(out + (8 + c) * ldo, _mm512_shuffle_f32x4(t1, t3, 0x88));
    _mm512_storeu_ps(out + (12 + c) * ldo, _mm512_shuffle_f32x4(t1, t3, 0xdd));
  }
}
#else
MLA_INLINE void Transpose16(const float* in, int64_t ldi, float* out, int64_t ldo) {
  for (int j = 0; j < 16; ++j) {
    for (int i = 0; i < 16; ++i) out[j * ldo + i] = in[i * ldi + j];
  }
}
#endif

// Sum over the lanes in a fixed tree (8, 4, 2, 1 apart), the same on every instruction set.
MLA_INLINE float ReduceAdd(V16 a) {
  float t[kLanes];
  Store(t, a);
  for (int step = 8; step >= 1; step /= 2) {
    for (int i = 0; i < step; ++i) t[i] += t[i + step];
  }
  return t[0];
}

// The largest lane; NaN where there is one.
MLA_INLINE float ReduceMax(V16 a) {
  float t[kLanes];
  Store(t, a);
  float m = t[0];
  for (int i = 1; i < kLanes; ++i) m = (m > t[i] || m != m) ? m : t[i];
  return m;
}

// e^x to about 1 ulp in [-87.3, 88.3]: 0 below, NaN kept, and not to be called above (Pow2 ends at n = 127).
// x = n ln 2 + r, |r| <= ln 2 / 2, with ln 2 in two parts and a polynomial for e^r (constants: Cephes' expf, S.
// Moshier).
MLA_INLINE V16 Exp(V16 x) {
  const V16 low = Set1(-87.33654F);
  const V16 clamped = Max(low, x);
  const V16 n = Round(Mul(clamped, Set1(1.44269504F)));
  V16 r = Fma(n, Set1(-0.693359375F), clamped);
  r = Fma(n, Set1(2.12194440e-4F), r);
  V16 p = Set1(1.9875691500e-4F);
  p = Fma(p, r, Set1(1.3981999507e-3F));
  p = Fma(p, r, Set1(8.3334519073e-3F));
  p = Fma(p, r, Set1(4.1665795894e-2F));
  p = Fma(p, r, Set1(1.6666665459e-1F));
  p = Fma(p, r, Set1(5.0000001201e-1F));
  p = Fma(Mul(p, r), r, Add(r, Set1(1.0F)));
  return ZeroWhereLess(x, low, Mul(p, Pow2(n)));
}

}  // namespace mla::simd::MLA_SIMD_NS

#endif  // MLA_BASE_SIMD_H_
