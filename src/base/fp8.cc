#include "base/fp8.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"

namespace mla {
namespace {

bool IsPowerOfTwo(float value) {
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5F;
}

}  // namespace

float ScaleAt(DType dtype, const std::byte* scales, std::int64_t i) {
  const std::byte* at = scales + i * static_cast<std::int64_t>(DTypeBytes(dtype));
  if (dtype == DType::kF8E8M0) return FloatFromE8M0(std::to_integer<std::uint8_t>(*at));
  if (dtype == DType::kBF16) {
    Bf16Bits bits = 0;
    std::memcpy(&bits, at, sizeof bits);
    return FloatFromBf16(bits);
  }
  MLA_CHECK(dtype == DType::kF32);
  float value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::optional<std::string> ScaleFault(DType dtype, const std::byte* scales, std::int64_t count,
                                      std::int64_t grid_columns, bool power_of_two) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float scale = ScaleAt(dtype, scales, i);
    const bool in_range = scale >= 0 && static_cast<double>(scale) <= kMaxBlockScale;  // false for NaN
    if (in_range && !(power_of_two && !IsPowerOfTwo(scale))) continue;
    return fmt::format("expected {}scales from 0 to {:.4g}, found {} at [{}, {}]",
                       power_of_two ? "powers of two as " : "", kMaxBlockScale, scale, i / grid_columns,
                       i % grid_columns);
  }
  return std::nullopt;
}

bool HasNanE4M3(const std::byte* codes, std::int64_t count) {
  // Blocks without a branch inside, which compilers turn into vector code.
  constexpr std::int64_t kBlock = 4096;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t end = std::min(count, begin + kBlock);
    std::uint8_t found = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      found |= static_cast<std::uint8_t>((std::to_integer<std::uint8_t>(codes[i]) & 0x7fU) == 0x7fU ? 1 : 0);
    }
    if (found != 0) return true;
  }
  return false;
}

}  // namespace mla
