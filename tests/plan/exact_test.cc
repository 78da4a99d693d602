#include "plan/exact.h"

#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace mla::plan {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(Exact, HoldsTheLargestNumberAndRefusesTheNext) {
  EXPECT_EQ(Exact(kMost).value(), kMost);
  EXPECT_EQ((Exact(kMost - 1) + 1).value(), kMost);
  EXPECT_FALSE((Exact(kMost) + 1).fits());
  EXPECT_EQ((Exact(std::int64_t{1} << 31) * (std::int64_t{1} << 31)).value(), std::int64_t{1} << 62);
  EXPECT_FALSE((Exact(std::int64_t{1} << 32) * (std::int64_t{1} << 31)).fits());
  EXPECT_FALSE((Exact(-kMost) - 2).fits());
  EXPECT_EQ((Exact(kMost) * 1).value(), kMost);
}

TEST(Exact, ALossStaysOne) {
  const Exact lost = Exact(kMost) + 1;
  EXPECT_FALSE((lost - lost).fits());
  EXPECT_FALSE((lost * 0).fits());
  EXPECT_FALSE(CeilDiv(lost, 2).fits());
  Exact sum = 1;
  sum += lost;
  EXPECT_FALSE(sum.fits());
  const auto got = sum.Get("bytes");
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().message, "bytes: expected a number below 2^63, found a larger one");
}

// By division, and by unsigned sums, which hold what two of 63 bits can give.
TEST(Exact, AgreesWithOtherArithmetic) {
  std::mt19937_64 rng(1);
  for (int i = 0; i < 20000; ++i) {
    const auto a = static_cast<std::int64_t>(rng() >> (1 + rng() % 62));
    const auto b = static_cast<std::int64_t>(rng() >> (1 + rng() % 62));
    const Exact product = Exact(a) * b;
    ASSERT_EQ(product.fits(), b == 0 || a <= kMost / b) << a << " " << b;
    if (product.fits() && b > 0) {
      ASSERT_EQ(product.value() / b, a);
      ASSERT_EQ(product.value() % b, 0);
    }
    ASSERT_EQ((Exact(a) + b).fits(), static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b) <= kMost);
    if (b > 0) {
      const std::int64_t up = CeilDiv(Exact(a), b).value();
      ASSERT_TRUE(a == 0 ? up == 0 : (up - 1) * b < a && up >= (a - 1) / b + 1);
    }
  }
}

}  // namespace
}  // namespace mla::plan
