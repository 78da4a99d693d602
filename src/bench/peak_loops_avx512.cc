#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#include <immintrin.h>

#include "bench/peak_loops.h"

namespace mla::bench {
namespace {

constexpr int kSums = 16;

void Fma(int64_t rounds, const PeakData* data, PeakSink* sink) {
  const __m512 a = _mm512_load_ps(data->f32);
  const __m512 b = _mm512_load_ps(data->f32 + 16);
  __m512 sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_loadu_ps(data->f32 + 32 + i);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_fmadd_ps(sums[i], a, b);
  }
  for (int i = 0; i < kSums; ++i) _mm512_store_ps(reinterpret_cast<float*>(sink->bytes) + 16 * i, sums[i]);
}

// Beyond this file's own instruction set: the caller has asked for it.
__attribute__((target("avx512vnni"))) void DotInt8(int64_t rounds, const PeakData* data, PeakSink* sink) {
  const __m512i a = _mm512_load_si512(data->int8);
  const __m512i b = _mm512_load_si512(data->int8 + 64);
  __m512i sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_set1_epi32(i + 1);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
  }
  for (int i = 0; i < kSums; ++i) _mm512_store_si512(sink->bytes + 64 * i, sums[i]);
}

}  // namespace

const PeakLoop kPeakF32Avx512 = {2 * 16 * kSums, Fma};
const PeakLoop kPeakInt8Avx512 = {2 * 64 * kSums, DotInt8};

void ReadAvx512(const char* data, int64_t bytes, PeakSink* sink) {
  __m512i sums[4];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  int64_t i = 0;
  for (; i + 256 <= bytes; i += 256) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sums[j] = _mm512_xor_si512(sums[j], _mm512_loadu_si512(data + i + 64 * j));
  }
  for (; i < bytes; i += 64) sums[0] = _mm512_xor_si512(sums[0], _mm512_loadu_si512(data + i));
  for (int j = 0; j < 4; ++j) _mm512_store_si512(sink->bytes + 64 * j, sums[j]);
}

}  // namespace mla::bench
#endif
