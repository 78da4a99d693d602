// Element types of stored numbers, and the conversions between bf16, f16 and float.
#ifndef MLA_DTYPES_H_
#define MLA_DTYPES_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace mla {

// Types that a checkpoint, a packed weight or a cache row may hold. Arithmetic is always in float or double.
enum class DType : std::uint8_t { kF32, kF16, kBF16 };

// "F32", "F16", "BF16": safetensors' own spelling.
constexpr const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "F32";
    case DType::kF16: return "F16";
    case DType::kBF16: return "BF16";
  }
  return "?";
}

// Bytes of one element.
constexpr std::size_t DTypeBytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

// A bf16 by its bits: the upper half of a float.
using Bf16Bits = std::uint16_t;

constexpr float FloatFromBf16(Bf16Bits bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

// Round to nearest, ties to even; a NaN stays a (quiet) NaN; finite values past the largest bf16 become infinity.
constexpr Bf16Bits Bf16FromFloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<Bf16Bits>((bits >> 16) | 0x40U);
  return static_cast<Bf16Bits>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

// IEEE binary16 to float, exact; subnormals kept.
constexpr float FloatFromF16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t fraction = bits & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;  // zero or subnormal: exact in float
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

}  // namespace mla

#endif  // MLA_DTYPES_H_
