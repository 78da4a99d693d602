#include "mla/dtypes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace mla {
namespace {

constexpr std::uint32_t kCodes = 65536;

// The value of a binary number of sign, `exponent` and `fraction` bits, from its definition in IEEE 754.
double ByDefinition(std::uint32_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>((bits >> fraction_bits) & ((1U << exponent_bits) - 1));
  const double fraction = bits & ((1U << fraction_bits) - 1);
  const double sign = (bits >> (exponent_bits + fraction_bits)) & 1U ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  const double scaled = std::ldexp(fraction, -fraction_bits);
  return exponent == 0 ? sign * std::ldexp(scaled, 1 - bias) : sign * std::ldexp(1 + scaled, exponent - bias);
}

// Equal as numbers, the sign of zero included; any NaN equals any NaN.
void ExpectSameNumber(float found, double expected, std::uint32_t code) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(found)) << "code " << code;
    return;
  }
  ASSERT_EQ(static_cast<double>(found), expected) << "code " << code;
  ASSERT_EQ(std::signbit(found), std::signbit(expected)) << "code " << code;
}

TEST(Dtypes, EveryBf16AndF16WidensToItsValue) {
  for (std::uint32_t code = 0; code < kCodes; ++code) {
    ExpectSameNumber(FloatFromBf16(static_cast<Bf16Bits>(code)), ByDefinition(code, 8, 7), code);
    ExpectSameNumber(FloatFromF16(static_cast<std::uint16_t>(code)), ByDefinition(code, 5, 10), code);
  }
}

// E4M3 without infinities: where IEEE 754 has infinity and NaN there are numbers, up to the last code.
TEST(Dtypes, EveryFp8WidensToItsValue) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    const auto bits = static_cast<std::uint8_t>(code);
    const std::uint32_t exponent = code / 8 % 16;
    const double eighths = code % 8;
    double expected =
        exponent == 0 ? std::ldexp(eighths / 8, -6) : std::ldexp(1 + eighths / 8, static_cast<int>(exponent) - 7);
    if (code % 128 == 127) expected = std::numeric_limits<double>::quiet_NaN();
    ExpectSameNumber(FloatFromE4M3(bits), code >= 128 ? -expected : expected, code);
    EXPECT_EQ(IsNanE4M3(bits), code == 0x7f || code == 0xff);
    const double power =
        code == 255 ? std::numeric_limits<double>::quiet_NaN() : std::exp2(static_cast<int>(code) - 127);
    ExpectSameNumber(FloatFromE8M0(bits), power, code);
  }
  EXPECT_EQ(FloatFromE4M3(0x7e), 448.0F);
  EXPECT_EQ(FloatFromE4M3(0x01), 0x1p-9F);
  EXPECT_EQ(FloatFromE4M3(0x38), 1.0F);
}

TEST(Dtypes, EveryBf16ComesBackAndEveryNanStaysNan) {
  for (std::uint32_t code = 0; code < kCodes; ++code) {
    const auto bits = static_cast<Bf16Bits>(code);
    const float value = FloatFromBf16(bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(FloatFromBf16(Bf16FromFloat(value)))) << code;
    } else {
      ASSERT_EQ(Bf16FromFloat(value), bits);
    }
  }
  // NaNs whose payload lies in the lower half alone would become infinity if it were cut off.
  for (const std::uint32_t bits : {0x7f800001U, 0x7f80ffffU, 0xff800001U, 0xff80ffffU, 0x7fffffffU, 0xffffffffU}) {
    EXPECT_TRUE(std::isnan(FloatFromBf16(Bf16FromFloat(std::bit_cast<float>(bits))))) << std::hex << bits;
  }
}

// Rounding to nearest, ties to the even code, found among all bf16 values: no bit tricks.
class NearestBf16 {
 public:
  NearestBf16() {
    for (std::uint32_t code = 0; code < 0x7f80; ++code) values_.push_back(ByDefinition(code, 8, 7));
    values_.push_back(std::ldexp(1.0, 128));  // where the next value would be: from halfway on, infinity (code 0x7f80)
  }
  Bf16Bits operator()(float value) const {
    const std::uint32_t sign = std::signbit(value) ? 0x8000U : 0U;
    const double magnitude = std::fabs(static_cast<double>(value));
    if (std::isinf(magnitude)) return static_cast<Bf16Bits>(sign | 0x7f80U);
    const auto above = std::lower_bound(values_.begin(), values_.end(), magnitude);
    auto code = static_cast<std::uint32_t>(above - values_.begin());
    if (*above != magnitude) {
      const double up = *above - magnitude;
      const double down = magnitude - *(above - 1);
      if (down < up || (down == up && (code - 1) % 2 == 0)) --code;
    }
    return static_cast<Bf16Bits>(sign | code);
  }

 private:
  std::vector<double> values_;
};

TEST(Dtypes, FloatsRoundToTheNearestBf16TiesToEven) {
  const NearestBf16 nearest;
  const auto check = [&](std::uint32_t bits) {
    const float value = std::bit_cast<float>(bits);
    if (std::isnan(value)) return;
    ASSERT_EQ(Bf16FromFloat(value), nearest(value)) << std::hex << bits;
  };
  for (std::uint32_t code = 0; code < kCodes; ++code) {
    // Each value, just beside it, its upper midpoint and just beside that: subnormals, the largest and infinity too.
    for (const std::uint32_t low : {0x0000U, 0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) check((code << 16) | low);
  }
  std::mt19937 random(1);
  for (int i = 0; i < 1000000; ++i) check(random());
}

TEST(Dtypes, NamesAndSizes) {
  EXPECT_STREQ(DTypeName(DType::kF32), "F32");
  EXPECT_STREQ(DTypeName(DType::kF16), "F16");
  EXPECT_STREQ(DTypeName(DType::kBF16), "BF16");
  EXPECT_STREQ(DTypeName(DType::kF8E4M3), "F8_E4M3");
  EXPECT_STREQ(DTypeName(DType::kF8E8M0), "F8_E8M0");
  EXPECT_EQ(DTypeBytes(DType::kF8E4M3), 1U);
  EXPECT_EQ(DTypeBytes(DType::kF8E8M0), 1U);
  EXPECT_EQ(DTypeBytes(DType::kF32), 4U);
  EXPECT_EQ(DTypeBytes(DType::kF16), 2U);
  EXPECT_EQ(DTypeBytes(DType::kBF16), 2U);
}

}  // namespace
}  // namespace mla
