// Inputs rounded to bf16: what the bounds take for known is what production multiplies, and what they don't is within
// what they allow.
#include "verify/bounds.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "mla/dtypes.h"

namespace mla::verify {
namespace {

float AsProductionRounds(float x) { return FloatFromBf16(Bf16FromFloat(x)); }

TEST(RoundInput, OfAnExactNumberIsTheNearest) {
  const std::vector<double> x = {1, 1 + 0x1p-9, 1 + 0x1p-8, 1 + 3 * 0x1p-8, -1 - 3 * 0x1p-9, 0};
  const std::vector<double> none(x.size());
  const RoundedInput rounded = RoundInput(x.data(), none.data(), std::ssize(x));
  EXPECT_EQ(rounded.value, (std::vector<double>{1, 1, 1, 1 + 0x1p-6, -1 - 0x1p-7, 0}));
  EXPECT_TRUE(rounded.unsure.empty());
}

// Of any number that is within the error, over errors from far below a unit of bf16 to many.
TEST(RoundInput, HoldsWhatProductionMayHave) {
  std::mt19937_64 rng(3);
  std::uniform_real_distribution<double> uniform(-1, 1);
  int known = 0;
  int unsure = 0;
  for (int i = 0; i < 20000; ++i) {
    const double x = std::ldexp(uniform(rng), i % 17 - 8);
    const double error = std::ldexp(std::abs(x), -(i % 23));
    const RoundedInput rounded = RoundInput(&x, &error, 1);
    for (int j = 0; j < 4; ++j) {
      const auto near = static_cast<float>(x + 0.999 * error * uniform(rng));
      if (std::abs(static_cast<double>(near) - x) > error) continue;
      const double found = AsProductionRounds(near);
      if (rounded.unsure.empty()) {
        ASSERT_EQ(found, rounded.value[0]) << x << " within " << error;
        ++known;
      } else {
        ASSERT_EQ(rounded.value[0], x);
        const auto& [index, by_error, by_rounding] = rounded.unsure[0];
        ASSERT_LE(std::abs(found - x), by_error + by_rounding) << x << " within " << error;
        ++unsure;
      }
    }
  }
  EXPECT_GT(known, 10000);
  EXPECT_GT(unsure, 10000);
}

// A product in fp32 of inputs that are off: within the bound, which without unsure inputs is that of exact ones.
TEST(BoundedProduct, WithRoundedInputs) {
  constexpr std::int64_t kInputs = 300;
  std::mt19937_64 rng(5);
  std::normal_distribution<double> normal;
  const auto pool = MakeThreadPool(1);
  for (const double error : {0.0, 0x1p-20, 0x1p-12, 0x1p-6}) {
    Bounded x = Exact(reference::Zeros(1, kInputs));
    Matrix w = reference::Zeros(1, kInputs);
    float sum = 0;
    for (std::size_t i = 0; i < kInputs; ++i) {
      const auto at = static_cast<float>(normal(rng));
      x.value.values[i] = static_cast<double>(at) * (1 + 0.9 * error * std::sin(static_cast<double>(i)));
      x.error.values[i] = error * std::abs(static_cast<double>(at));
      w.values[i] = AsProductionRounds(static_cast<float>(normal(rng)));
      sum += AsProductionRounds(at) * static_cast<float>(w.values[i]);
    }
    const Bounded product = BoundedProduct(x, w, {0, true}, *pool);
    EXPECT_LE(std::abs(static_cast<double>(sum) - product.value.values[0]), product.error.values[0]) << error;
    if (error > 0) continue;
    const Bounded exact = BoundedProduct(Exact(RoundedExactly(x.value)), w, {}, *pool);
    EXPECT_EQ(product.value.values, exact.value.values);
    EXPECT_EQ(product.error.values, exact.error.values);
    const Bounded unrounded = BoundedProduct(x, w, {}, *pool);
    EXPECT_GT(std::abs(static_cast<double>(sum) - unrounded.value.values[0]), unrounded.error.values[0]);
  }
}

}  // namespace
}  // namespace mla::verify
