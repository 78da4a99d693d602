// The kernels that work on single rows: RmsNorm, SiluMul, AddScaled, on every instruction set of this machine.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "ops/ops_testing.h"

namespace mla {
namespace {

constexpr double kU = 0x1p-24;  // half a unit in the last place of 1
constexpr std::int64_t kSizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 100, 128, 1000, 7168};
constexpr float kInf = std::numeric_limits<float>::infinity();

class RowsTest : public ::testing::TestWithParam<Isa> {
 protected:
  const ops::OpKernels& kernels_ = ops::KernelsFor(GetParam());
};

std::vector<float> Scaled(std::vector<float> values, float scale) {
  for (float& v : values) v *= scale;
  return values;
}

// Runs f(y) on n floats with a margin behind, which must stay as it was.
template <class F>
std::vector<float> Guarded(std::vector<float> y, F&& f) {
  const std::size_t n = y.size();
  y.resize(n + 32, 77.0F);
  f(y.data());
  EXPECT_EQ(std::count(y.begin() + static_cast<std::ptrdiff_t>(n), y.end(), 77.0F), 32);
  y.resize(n);
  return y;
}

// Roundings behind a result, in units of u. The sum of squares (all positive, so relative errors stay): per lane one
// for each of n / 16 steps and one for the square where it is apart, 4 in the tree, up to 16 for the tail; then the
// division by n and + eps. The root halves them and rounds, 1 / root rounds, and so do two products. 1.01 covers higher
// orders.
double NormBound(std::int64_t n) {
  const double in_sum = static_cast<double>(n / 16) + 1 + 4 + 16 + 2;
  return 1.01 * (in_sum / 2 + 4) * kU;
}

TEST_P(RowsTest, RmsNormAgainstFloat64) {
  for (const std::int64_t n : kSizes) {
    for (const float scale : {1.0F, 1e-4F, 1e-22F, 3e4F, 1e15F}) {  // squares that vanish beside eps, and near overflow
      const auto x = Scaled(testing::RandomFloats(n, 51), scale);
      const auto weight = testing::RandomFloats(n, 52);
      const float eps = 1e-6F;
      double squares = 0;
      for (const float v : x) squares += static_cast<double>(v) * v;
      const double root = std::sqrt(squares / static_cast<double>(n) + static_cast<double>(eps));
      const auto apart = Guarded(std::vector<float>(x.size(), testing::kQuietNan),
                                 [&](float* y) { kernels_.rms_norm(x.data(), weight.data(), eps, y, n); });
      const auto in_place = Guarded(x, [&](float* y) { kernels_.rms_norm(y, weight.data(), eps, y, n); });
      ASSERT_TRUE(testing::SameBits(apart.data(), in_place.data(), n)) << n;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double exact = static_cast<double>(x[i]) / root * static_cast<double>(weight[i]);
        ASSERT_LE(std::fabs(apart[i] - exact), NormBound(n) * std::fabs(exact))
            << "n " << n << " scale " << scale << " at " << i;
      }
    }
  }
}

TEST_P(RowsTest, RmsNormOfZerosIsZero) {
  const std::vector<float> x(40, 0.0F);
  const std::vector<float> weight(40, 3.0F);
  std::vector<float> y(40, testing::kQuietNan);
  kernels_.rms_norm(x.data(), weight.data(), 1e-6F, y.data(), 40);
  EXPECT_EQ(std::count(y.begin(), y.end(), 0.0F), 40);
}

// A NaN must show, wherever it stands.
TEST_P(RowsTest, RmsNormSpreadsNan) {
  for (const std::size_t at : {0U, 15U, 16U, 36U, 39U}) {
    std::vector<float> x(40, 1.0F);
    x[at] = testing::kQuietNan;
    const std::vector<float> weight(40, 1.0F);
    std::vector<float> y(40);
    kernels_.rms_norm(x.data(), weight.data(), 1e-6F, y.data(), 40);
    EXPECT_TRUE(std::all_of(y.begin(), y.end(), [](float v) { return std::isnan(v); })) << at;
  }
}

double Silu(double x) { return x / (1 + std::exp(-x)); }

// e^-x is within 4 u (tests/base/simd_test.cc) and 1 + e^-x, the division and the product round once each: 7 u, 1.01
// for higher orders. Below -88 the kernel gives zero, where |silu| < 88 e^-88 < 5.4e-37; results below the normal
// numbers round by up to 2^-149.
double SiluMulBound(double exact, double up) {
  return 1.01 * 7 * kU * std::fabs(exact) + 5.4e-37 * std::fabs(up) + 0x1p-149;
}

TEST_P(RowsTest, SiluMulAgainstFloat64) {
  for (const std::int64_t n : kSizes) {
    for (const float scale : {1.0F, 1e-4F, 10.0F, 40.0F, 1e4F, 1e30F}) {
      const auto gate = Scaled(testing::RandomFloats(n, 61), scale);
      const auto up = testing::RandomFloats(n, 62);
      const auto apart = Guarded(std::vector<float>(gate.size(), testing::kQuietNan),
                                 [&](float* y) { kernels_.silu_mul(gate.data(), up.data(), y, n); });
      const auto in_place = Guarded(gate, [&](float* y) { kernels_.silu_mul(y, up.data(), y, n); });
      ASSERT_TRUE(testing::SameBits(apart.data(), in_place.data(), n)) << n;
      for (std::size_t i = 0; i < gate.size(); ++i) {
        const double exact = Silu(gate[i]) * up[i];
        ASSERT_LE(std::fabs(apart[i] - exact), SiluMulBound(exact, up[i])) << "n " << n << " gate " << gate[i];
      }
    }
  }
}

TEST_P(RowsTest, SiluMulAtItsEnds) {
  const std::vector<float> gate = {
      -kInf, -3e38F, -1e4F, -89, -88, -87.5F, -87, 0, -0.0F, 88, 89, 3e38F, kInf, testing::kQuietNan, 20, -20, -1000};
  const std::vector<float> up(gate.size(), 1.0F);
  std::vector<float> y(gate.size());
  kernels_.silu_mul(gate.data(), up.data(), y.data(), static_cast<std::int64_t>(gate.size()));
  for (std::size_t i = 0; i < gate.size(); ++i) {
    if (std::isnan(gate[i])) {
      EXPECT_TRUE(std::isnan(y[i]));
    } else if (gate[i] == kInf) {
      EXPECT_EQ(y[i], kInf);
    } else {
      const double exact = gate[i] == -kInf ? 0 : Silu(gate[i]);
      EXPECT_LE(std::fabs(y[i] - exact), SiluMulBound(exact, 1)) << gate[i];
    }
  }
}

// Two roundings, of the product and of the sum, on every instruction set: exact bits.
TEST_P(RowsTest, AddScaledToTheBit) {
  for (const std::int64_t n : kSizes) {
    for (const float scale : {1.0F, 0.3F, -2.5e10F, 1e-30F, 0.0F}) {
      const auto x = testing::RandomFloats(n, 71);
      const auto before = testing::RandomFloats(n, 72);
      const auto y = Guarded(before, [&](float* out) { kernels_.add_scaled(x.data(), scale, out, n); });
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float product = scale * x[i];
        ASSERT_EQ(y[i], before[i] + product) << "n " << n << " at " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, RowsTest, ::testing::ValuesIn(testing::MachineIsas()),
                         [](const auto& test) { return std::string(IsaName(test.param)); });

}  // namespace
}  // namespace mla
