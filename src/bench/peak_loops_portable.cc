#include <string.h>

#include "bench/peak_loops.h"

namespace mla::bench {
namespace {

using F32x4 = float __attribute__((vector_size(16)));
using U64x2 = uint64_t __attribute__((vector_size(16)));

constexpr int kSums = 12;

void Fma(int64_t rounds, const PeakData* data, PeakSink* sink) {
  F32x4 a;
  F32x4 b;
  memcpy(&a, data->f32, sizeof(a));
  memcpy(&b, data->f32 + 4, sizeof(b));
  F32x4 sums[kSums];
  memcpy(sums, data->f32 + 8, sizeof(sums));
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (F32x4& sum : sums) sum = sum * a + b;
  }
  memcpy(sink->bytes, sums, sizeof(sums));
}

}  // namespace

const PeakLoop kPeakF32Portable = {2 * 4 * kSums, Fma};

void ReadPortable(const char* data, int64_t bytes, PeakSink* sink) {
  U64x2 sums[4] = {};
  for (int64_t i = 0; i < bytes; i += 64) {
    U64x2 four[4];
    memcpy(four, data + i, sizeof(four));
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sums[j] ^= four[j];
  }
  memcpy(sink->bytes, sums, sizeof(sums));
}

}  // namespace mla::bench
