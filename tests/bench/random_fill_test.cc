// Random weights: the fp8 quantiser over all codes, the distribution, and that bytes depend on index alone.
#include "bench/random_fill.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace mla::bench {
namespace {

// The finite codes of one sign, ascending: 0x00 to 0x7e.
constexpr int kLargestCode = 0x7e;

TEST(E4M3, EveryCodeIsItsOwn) {
  for (int code = 0; code < 256; ++code) {
    const auto bits = static_cast<std::uint8_t>(code);
    EXPECT_EQ(E4M3FromFloat(FloatFromE4M3(bits)), bits) << code;  // NaN too: a NaN keeps its sign
  }
}

TEST(E4M3, RoundsToTheNearestAndTiesToEven) {
  for (const int sign : {0, 0x80}) {
    for (int code = 0; code < kLargestCode; ++code) {
      const float low = FloatFromE4M3(static_cast<std::uint8_t>(code | sign));
      const float high = FloatFromE4M3(static_cast<std::uint8_t>((code + 1) | sign));
      const float middle = (low + high) / 2;  // exact: four bits of fraction
      EXPECT_EQ(E4M3FromFloat(middle), (code % 2 == 0 ? code : code + 1) | sign) << code;
      EXPECT_EQ(E4M3FromFloat(std::nextafter(middle, low)), code | sign) << code;
      EXPECT_EQ(E4M3FromFloat(std::nextafter(middle, high)), (code + 1) | sign) << code;
    }
  }
}

TEST(E4M3, SaturatesAndKeepsNaN) {
  for (const float large : {448.F, 449.F, 464.F, 1e30F, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(E4M3FromFloat(large), 0x7e);
    EXPECT_EQ(E4M3FromFloat(-large), 0xfe);
  }
  EXPECT_EQ(E4M3FromFloat(0.F), 0x00);
  EXPECT_EQ(E4M3FromFloat(-0.F), 0x80);
  EXPECT_EQ(E4M3FromFloat(-1e-30F), 0x80);
  EXPECT_TRUE(IsNanE4M3(E4M3FromFloat(std::numeric_limits<float>::quiet_NaN())));
}

TEST(NormalQuantiles, AreANormalDistribution) {
  const auto& z = NormalQuantiles();
  double squares = 0;
  double fourths = 0;
  for (std::size_t i = 0; i < kLevels; ++i) {
    if (i > 0) {
      EXPECT_LT(z[i - 1], z[i]);
    }
    EXPECT_EQ(z[i], -z[kLevels - 1 - i]);
    squares += z[i] * z[i];
    fourths += std::pow(z[i], 4);
  }
  EXPECT_NEAR(squares / kLevels, 1, 1e-12);
  EXPECT_NEAR(fourths / kLevels, 3, 0.05);  // cut at 3.5 deviations; a uniform distribution has 1.8
  EXPECT_EQ(LargestNormal(), z[kLevels - 1]);
  EXPECT_NEAR(z[kLevels / 4 * 3], 0.6745, 1e-3);  // the normal distribution's quartile
}

std::vector<float> Drawn(std::uint64_t key, std::size_t count) {
  std::vector<float> out(count);
  ValueTable(DType::kF32, NormalQuantiles()).Fill(key, 0, std::as_writable_bytes(std::span(out)));
  return out;
}

TEST(ValueTable, DrawsIndependentNormals) {
  constexpr std::size_t kCount = std::size_t{1} << 20;
  const std::vector<float> a = Drawn(TensorKey(0, "a"), kCount);
  const std::vector<float> b = Drawn(TensorKey(0, "b"), kCount);
  // Each is a mean of kCount numbers of variance 1, so of standard deviation 2^-10 (2^-9.5 for squares): six of them.
  double mean = 0;
  double squares = 0;
  double across = 0;
  std::array<double, 8> lagged{};
  for (std::size_t i = 0; i < kCount; ++i) {
    mean += a[i];
    squares += static_cast<double>(a[i]) * a[i];
    across += static_cast<double>(a[i]) * b[i];
    for (std::size_t lag = 1; lag < lagged.size(); ++lag) {
      lagged[lag] += static_cast<double>(a[i]) * a[(i + lag) % kCount];
    }
  }
  constexpr double kBound = 6.0 / 1024;
  EXPECT_NEAR(mean / kCount, 0, kBound);
  EXPECT_NEAR(squares / kCount, 1, 1.5 * kBound);
  EXPECT_NEAR(across / kCount, 0, kBound);
  for (std::size_t lag = 1; lag < lagged.size(); ++lag) EXPECT_NEAR(lagged[lag] / kCount, 0, kBound) << lag;
  EXPECT_EQ(std::set<float>(a.begin(), a.end()).size(), kLevels);
}

TEST(ValueTable, PiecesAreTheWhole) {
  constexpr std::size_t kCount = 1003;  // no multiple of 4
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
    const std::size_t width = DTypeBytes(dtype);
    const ValueTable table(dtype, NormalQuantiles());
    std::vector<std::byte> whole(kCount * width);
    table.Fill(42, 0, whole);
    std::vector<std::byte> pieces(kCount * width);
    for (std::size_t first = 0; first < kCount; first += 36) {
      const std::size_t count = std::min<std::size_t>(36, kCount - first);
      table.Fill(42, static_cast<std::int64_t>(first), std::span(pieces).subspan(first * width, count * width));
    }
    EXPECT_EQ(whole, pieces) << DTypeName(dtype);
  }
}

TEST(ValueTable, StoresTheValueInItsType) {
  const std::vector<float> values = Drawn(7, 1024);
  std::vector<std::uint16_t> bf16(1024);
  std::vector<std::uint8_t> fp8(1024);
  ValueTable(DType::kBF16, NormalQuantiles()).Fill(7, 0, std::as_writable_bytes(std::span(bf16)));
  ValueTable(DType::kF8E4M3, NormalQuantiles()).Fill(7, 0, std::as_writable_bytes(std::span(fp8)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(bf16[i], Bf16FromFloat(values[i]));
    EXPECT_EQ(fp8[i], E4M3FromFloat(values[i]));
  }
}

TEST(TensorKey, DependsOnSeedAndName) {
  std::set<std::uint64_t> keys;
  for (const std::uint64_t seed : {0, 1, 2}) {
    for (const char* name : {"", "a", "b", "ab", "ba"}) keys.insert(TensorKey(seed, name));
  }
  EXPECT_EQ(keys.size(), 15U);
}

}  // namespace
}  // namespace mla::bench
