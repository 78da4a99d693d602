// Which scales and codes of fp8 are taken.
#include "base/fp8.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mla {
namespace {

using ::testing::HasSubstr;

// Scales behind an odd address, as a file may hold them.
std::vector<std::byte> Unaligned(const void* data, std::size_t bytes) {
  std::vector<std::byte> moved(bytes + 1);
  std::memcpy(moved.data() + 1, data, bytes);
  return moved;
}

std::optional<std::string> F32Fault(const std::vector<float>& scales, bool power_of_two = false) {
  const auto bytes = Unaligned(scales.data(), scales.size() * 4);
  return ScaleFault(DType::kF32, bytes.data() + 1, static_cast<std::int64_t>(scales.size()), 2, power_of_two);
}

TEST(Fp8, ScalesOfEveryTypeAreWidened) {
  const float wide[] = {0.5F, 1.25e-4F, 3.0F};
  const Bf16Bits half[] = {0x3f00, 0x3f80, 0x4040};
  const std::uint8_t powers[] = {126, 0, 129};
  const auto f32 = Unaligned(wide, sizeof wide);
  const auto bf16 = Unaligned(half, sizeof half);
  const auto e8m0 = Unaligned(powers, sizeof powers);
  EXPECT_EQ(ScaleAt(DType::kF32, f32.data() + 1, 1), 1.25e-4F);
  EXPECT_EQ(ScaleAt(DType::kBF16, bf16.data() + 1, 2), 3.0F);
  EXPECT_EQ(ScaleAt(DType::kF8E8M0, e8m0.data() + 1, 0), 0.5F);
  EXPECT_EQ(ScaleAt(DType::kF8E8M0, e8m0.data() + 1, 1), std::ldexp(1.0F, -127));
  EXPECT_EQ(ScaleAt(DType::kF8E8M0, e8m0.data() + 1, 2), 4.0F);
}

TEST(Fp8, ScalesThatAreNoneAreNamed) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(F32Fault({1, 2, 0x1p-140F, 1e30F, 0.0F}), std::nullopt);
  for (const float bad : {-0x1p-140F, -1.0F, nan, infinity, -infinity, 1e36F}) {
    const auto fault = F32Fault({1, 2, 3, bad, 5});
    ASSERT_TRUE(fault.has_value()) << bad;
    EXPECT_THAT(*fault, HasSubstr("expected scales from 0 to 7.5")) << bad;
    EXPECT_THAT(*fault, HasSubstr("at [1, 1]")) << bad;
  }
  EXPECT_THAT(*F32Fault({-2.5F}), HasSubstr("found -2.5 at [0, 0]"));
  const std::uint8_t e8m0[] = {1, 255};
  EXPECT_THAT(*ScaleFault(DType::kF8E8M0, reinterpret_cast<const std::byte*>(e8m0), 2, 2, true),
              HasSubstr("found nan at [0, 1]"));
  const Bf16Bits bf16[] = {0x8001};
  EXPECT_THAT(*ScaleFault(DType::kBF16, reinterpret_cast<const std::byte*>(bf16), 1, 1, false),
              HasSubstr("found -9.1"));
}

// The bound is where the largest code would leave bf16's numbers.
TEST(Fp8, TheLargestScaleKeepsProductsFinite) {
  const auto largest = static_cast<float>(kMaxBlockScale);
  EXPECT_TRUE(std::isfinite(FloatFromBf16(Bf16FromFloat(448.0F * std::nextafterf(largest, 0)))));
  EXPECT_EQ(F32Fault({std::nextafterf(largest, 0)}), std::nullopt);
  EXPECT_TRUE(F32Fault({std::nextafterf(largest, 1e38F)}).has_value());
}

TEST(Fp8, PowersOfTwoAreAskedForWhereTheConfigSaysSo) {
  EXPECT_EQ(F32Fault({1, 0x1p-100F, 0x1p-130F, 0x1p90F}, true), std::nullopt);
  EXPECT_EQ(F32Fault({1, 3}), std::nullopt);
  EXPECT_THAT(*F32Fault({1, 3}, true), HasSubstr("expected powers of two as scales from 0"));
  EXPECT_THAT(*F32Fault({1, 3}, true), HasSubstr("found 3 at [0, 1]"));
  EXPECT_TRUE(F32Fault({1, 0}, true).has_value());
  EXPECT_TRUE(F32Fault({std::nextafterf(1.0F, 2.0F)}, true).has_value());
}

TEST(Fp8, NansAreFoundWhereverTheyLie) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{4096}, std::size_t{10000}}) {
    std::vector<std::byte> codes(size);
    for (std::size_t i = 0; i < size; ++i) codes[i] = static_cast<std::byte>(i % 127 + (i % 2) * 128);
    const auto count = static_cast<std::int64_t>(size);
    EXPECT_FALSE(HasNanE4M3(codes.data(), count));
    for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) {
      for (const int nan : {0x7f, 0xff}) {
        const std::byte before = codes[at];
        codes[at] = static_cast<std::byte>(nan);
        EXPECT_TRUE(HasNanE4M3(codes.data(), count)) << size << " " << at;
        codes[at] = before;
      }
    }
  }
  EXPECT_FALSE(HasNanE4M3(nullptr, 0));
}

}  // namespace
}  // namespace mla
