// Loops that run at a machine's limits: multiply-adds on registers alone, and reads of memory. Plain types alone: this
// header is compiled under every instruction set's flags.
#ifndef MLA_BENCH_PEAK_LOOPS_H_
#define MLA_BENCH_PEAK_LOOPS_H_

#include <stdint.h>

namespace mla::bench {

// What the loops multiply: random, nothing zero, since idle bits draw less power and so raise clocks. |f32| < 1, so
// that x * a + b stays in range over any number of rounds.
struct alignas(64) PeakData {
  float f32[64];
  uint16_t bf16[4 * 512];  // four tiles
  uint8_t int8[4 * 1024];  // four tiles
};

// What was summed, lane by lane, the rest untouched.
struct alignas(64) PeakSink {
  char bytes[4096];
};

// One instruction over and over, on as many independent sums as hide its latency.
struct PeakLoop {
  int64_t operations;  // of a round; a multiply-add is two
  // Leaves its sums in the sink, so that nothing can be left out.
  void (*run)(int64_t rounds, const PeakData* data, PeakSink* sink);
};

extern const PeakLoop kPeakF32Portable;  // 128-bit multiply, then add: what the portable kernels may use
extern const PeakLoop kPeakF32Avx2;      // ymm FMA
extern const PeakLoop kPeakF32Avx512;    // zmm FMA
extern const PeakLoop kPeakInt8Avx512;   // vpdpbusd; asks for AVX-512 VNNI
extern const PeakLoop kPeakBf16Avx512;   // vdpbf16ps
extern const PeakLoop kPeakBf16Amx;      // tdpbf16ps
extern const PeakLoop kPeakInt8Amx;      // tdpbusd; asks for AMX-INT8

// Reads [data, data + bytes), a multiple of 64, in order; the sink's xor of 8-byte words is the data's.
using ReadLoop = void (*)(const char* data, int64_t bytes, PeakSink* sink);
void ReadPortable(const char* data, int64_t bytes, PeakSink* sink);
void ReadAvx2(const char* data, int64_t bytes, PeakSink* sink);
void ReadAvx512(const char* data, int64_t bytes, PeakSink* sink);

}  // namespace mla::bench

#endif  // MLA_BENCH_PEAK_LOOPS_H_
