#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#include <immintrin.h>

#include "bench/peak_loops.h"

namespace mla::bench {
namespace {

constexpr int kSums = 16;

void DotBf16(int64_t rounds, const PeakData* data, PeakSink* sink) {
  const auto a = (__m512bh)_mm512_load_si512(data->bf16);
  const auto b = (__m512bh)_mm512_load_si512(data->bf16 + 32);
  __m512 sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = _mm512_loadu_ps(data->f32 + i);
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], a, b);
  }
  for (int i = 0; i < kSums; ++i) _mm512_store_ps(reinterpret_cast<float*>(sink->bytes) + 16 * i, sums[i]);
}

}  // namespace

const PeakLoop kPeakBf16Avx512 = {2 * 32 * kSums, DotBf16};

}  // namespace mla::bench
#endif
