// Element types of stored numbers, and the conversions between them and float.
#ifndef MLA_DTYPES_H_
#define MLA_DTYPES_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace mla {

// Types that a checkpoint, a packed weight or a cache row may hold. Arithmetic is always in float or double. kF8E4M3
// comes with scales (BlockScales); kF8E8M0 holds such scales alone.
enum class DType : std::uint8_t { kF32, kF16, kBF16, kF8E4M3, kF8E8M0 };

// "F32", "F16", "BF16", "F8_E4M3", "F8_E8M0": safetensors' own spelling.
constexpr const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "F32";
    case DType::kF16: return "F16";
    case DType::kBF16: return "BF16";
    case DType::kF8E4M3: return "F8_E4M3";
    case DType::kF8E8M0: return "F8_E8M0";
  }
  return "?";
}

// Bytes of one element.
constexpr std::size_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kF32: return 4;
    case DType::kF16:
    case DType::kBF16: return 2;
    case DType::kF8E4M3:
    case DType::kF8E8M0: return 1;
  }
  return 0;
}

// Scales of a matrix [rows, columns] in kF8E4M3: element (i, j) is its code's value times the scale at
// (i / block_rows, j / block_columns). The blocks at the edges may be partial. DeepSeek-V3 report, section 3.3.2:
// blocks of 128 x 128.
struct BlockScales {
  DType dtype = DType::kF32;        // kF32, kBF16 or kF8E8M0
  const std::byte* data = nullptr;  // [ceil(rows / block_rows), ceil(columns / block_columns)] row-major, dense, maybe
                                    // unaligned; null: there are none
  std::int64_t block_rows = 0;      // both positive where there are scales
  std::int64_t block_columns = 0;
};

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

// E4M3FN (OCP 8-bit floating point, revision 1.0): four bits of exponent with bias 7, three of fraction, subnormals, no
// infinity; 0x7f and 0xff are NaN, so that the largest magnitude is 448. Exact.
constexpr bool IsNanE4M3(std::uint8_t bits) { return (bits & 0x7fU) == 0x7fU; }
constexpr float FloatFromE4M3(std::uint8_t bits) {
  const std::uint32_t sign = (bits & 0x80U) << 24;
  const std::uint32_t exponent = (bits >> 3) & 0xfU;
  const std::uint32_t fraction = bits & 0x7U;
  if (IsNanE4M3(bits)) return std::bit_cast<float>(sign | 0x7fc00000U);
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 120) << 23) | (fraction << 20));
  const float magnitude = static_cast<float>(fraction) * 0x1p-9F;  // zero or subnormal: exact in float
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

// E8M0 (OCP Microscaling Formats, revision 1.0): a power of two, 2^(bits - 127); 0xff is NaN. Exact.
constexpr float FloatFromE8M0(std::uint8_t bits) {
  if (bits == 0xff) return std::bit_cast<float>(0x7fc00000U);
  // 2^-127 is a subnormal float.
  return std::bit_cast<float>(bits == 0 ? std::uint32_t{1} << 22 : static_cast<std::uint32_t>(bits) << 23);
}

}  // namespace mla

#endif  // MLA_DTYPES_H_
