#include "reference/rounding.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace mla::reference {
namespace {

// Eight significant bits: a double's 52 bits of fraction, cut to 7.
constexpr int kCutBits = 45;
constexpr std::uint64_t kCut = (std::uint64_t{1} << kCutBits) - 1;

}  // namespace

double NearestBf16(double x) {
  if (std::isnan(x)) return x;
  if (std::abs(x) < 0x1p-126) return 0;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  // Just below a half is added to an even number, a half to an odd one.
  return std::bit_cast<double>((bits + (kCut >> 1) + (bits >> kCutBits & 1)) & ~kCut);
}

// SplitMix64 (Steele, Lea, Flood 2014).
std::uint64_t Rounding::Next() {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

double Rounding::Random() {
  const double unit = static_cast<double>(Next() >> 11) * 0x1p-53;
  return (2 * unit - 1) * std::numbers::sqrt3;
}

double Rounding::ToBf16(double x) {
  // Normal numbers of bf16 alone matter here.
  const auto bits = std::bit_cast<std::uint64_t>(x);
  if ((bits & kCut) == 0 || !std::isfinite(x)) return x;
  const std::uint64_t down = bits & ~kCut;
  return std::bit_cast<double>((Next() & 1U) == 0 ? down : down + kCut + 1);
}

Matrix Product(const Matrix& x, const Matrix& weight, Rounding* rounding) {
  if (rounding == nullptr || !rounding->f32_errors()) return Product(x, weight);
  Matrix out = Zeros(x.rows, weight.rows);
  const double root = std::sqrt(static_cast<double>(x.cols));
  for (std::int64_t t = 0; t < x.rows; ++t) {
    for (std::int64_t o = 0; o < weight.rows; ++o) {
      const DotSums sums = DotWithSquares(x.row(t), weight.row(o), x.cols);
      out.row(t)[o] = rounding->WithError(sums.sum, root * std::sqrt(sums.squares));
    }
  }
  return out;
}

Matrix Inputs(Matrix x, Rounding* rounding) {
  if (rounding == nullptr || !rounding->bf16_inputs()) return x;
  for (double& value : x.values) value = rounding->ToBf16(value);
  return x;
}

}  // namespace mla::reference
