#include <bit>
#include <cstring>

#include "mla/dtypes.h"
#include "ops/f8_decode.h"

namespace mla::ops {
namespace {

Bf16Bits Weight(unsigned code, float scale) {
  return Bf16FromFloat(FloatFromE4M3(static_cast<std::uint8_t>(code)) * scale);
}

constexpr float kNone = -1;  // no scale is negative

void DecodeBlock(const char* scales, const char* codes, int64_t pairs, uint16_t* out, int64_t /*ahead*/) {
  Bf16Bits weights[256];
  float of = kNone;  // whose products `weights` are
  for (int lane = 0; lane < 16; ++lane) {
    float scale = 0;
    std::memcpy(&scale, scales + lane * 4, 4);
    if (std::bit_cast<uint32_t>(scale) != std::bit_cast<uint32_t>(of)) {
      for (unsigned code = 0; code < 256; ++code) weights[code] = Weight(code, scale);
      of = scale;
    }
    for (int64_t i = lane * 2; i < pairs * 32; i += 32) {
      out[i] = weights[static_cast<uint8_t>(codes[i])];
      out[i + 1] = weights[static_cast<uint8_t>(codes[i + 1])];
    }
  }
}

}  // namespace
}  // namespace mla::ops

#include "ops/f8_decode.inl"

namespace mla::ops {

void DecodeF8Portable(const void* panel, int64_t scale_block, int64_t pair, int64_t pairs, uint16_t* out,
                      int64_t ahead) {
  DecodePairs(panel, scale_block, pair, pairs, out, ahead);
}

}  // namespace mla::ops
