#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#include <immintrin.h>

#include "base/amx.h"
#include "bench/peak_loops.h"

namespace mla::bench {
namespace {

// Four tiles of sums, two of each operand: the block that product kernels use, without their loads.
void Begin(const void* operands) {
  const amx::TileConfig config;
  _tile_loadconfig(&config);
  const auto* data = static_cast<const char*>(operands);
  _tile_loadd(4, data, 64);
  _tile_loadd(5, data + 1024, 64);
  _tile_loadd(6, data + 2048, 64);
  _tile_loadd(7, data + 3072, 64);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

void End(PeakSink* sink) {
  _tile_stored(0, sink->bytes, 64);
  _tile_stored(1, sink->bytes + 1024, 64);
  _tile_stored(2, sink->bytes + 2048, 64);
  _tile_stored(3, sink->bytes + 3072, 64);
  _tile_release();
}

void DotBf16(int64_t rounds, const PeakData* data, PeakSink* sink) {
  Begin(data->bf16);
  for (int64_t r = 0; r < rounds; ++r) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  End(sink);
}

// Beyond this file's own instruction set: the caller has asked for it.
__attribute__((target("amx-int8"))) void DotInt8(int64_t rounds, const PeakData* data, PeakSink* sink) {
  Begin(data->int8);
  for (int64_t r = 0; r < rounds; ++r) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  End(sink);
}

}  // namespace

// A tile's product: 16 rows, 16 columns, 64 bytes of k.
const PeakLoop kPeakBf16Amx = {4 * 2 * 16 * 16 * 32, DotBf16};
const PeakLoop kPeakInt8Amx = {4 * 2 * 16 * 16 * 64, DotInt8};

}  // namespace mla::bench
#endif
