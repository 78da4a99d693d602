#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#include <immintrin.h>

#include "bench/peak_loops.h"

namespace mla::bench {
namespace {

constexpr int kSums = 12;  // two a cycle of latency 4 or 5, in sixteen registers

void Fma(int64_t rounds, const PeakData* data, PeakSink* sink) {
  const __m256 a = _mm256_load_ps(data->f32);
  const __m256 b = _mm256_load_ps(data->f32 + 8);
  __m256 sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = _mm256_loadu_ps(data->f32 + 16 + i);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm256_fmadd_ps(sums[i], a, b);
  }
  for (int i = 0; i < kSums; ++i) _mm256_store_ps(reinterpret_cast<float*>(sink->bytes) + 8 * i, sums[i]);
}

}  // namespace

const PeakLoop kPeakF32Avx2 = {2 * 8 * kSums, Fma};

void ReadAvx2(const char* data, int64_t bytes, PeakSink* sink) {
  __m256i even = _mm256_setzero_si256();
  __m256i odd = _mm256_setzero_si256();
  for (int64_t i = 0; i < bytes; i += 64) {
    const auto* p = reinterpret_cast<const __m256i*>(data + i);
    even = _mm256_xor_si256(even, _mm256_loadu_si256(p));
    odd = _mm256_xor_si256(odd, _mm256_loadu_si256(p + 1));
  }
  _mm256_store_si256(reinterpret_cast<__m256i*>(sink->bytes), _mm256_xor_si256(even, odd));
}

}  // namespace mla::bench
#endif
