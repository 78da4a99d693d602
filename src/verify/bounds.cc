#include "verify/bounds.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "reference/rounding.h"

namespace mla::verify {

double SumError(std::int64_t terms) {
  const auto n = static_cast<double>(terms);
  return std::min(n, kLambda * std::sqrt(n)) * kU;
}

double WeightError(double unit, const reference::DotSums& sums) {
  return unit == 0 ? 0 : unit * std::min(sums.absolute, kLambda * std::sqrt(sums.squares));
}

double RootMeanSquare(const double* x, std::int64_t n) {
  return std::sqrt(reference::Dot(x, x, n) / static_cast<double>(std::max<std::int64_t>(n, 1)));
}

Bounded Exact(Matrix value) {
  Bounded out;
  out.error = reference::Zeros(value.rows, value.cols);
  out.value = std::move(value);
  return out;
}

RoundedInput RoundInput(const double* x, const double* error, std::int64_t n) {
  RoundedInput out;
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    const double low = reference::NearestBf16(x[i] - error[i]);
    const bool known = low == reference::NearestBf16(x[i] + error[i]);
    out.value.push_back(known ? low : x[i]);
    if (!known) out.unsure.push_back({i, error[i], kUBf16 * (std::abs(x[i]) + error[i])});
  }
  return out;
}

Matrix RoundedExactly(Matrix x) {
  for (double& value : x.values) value = reference::NearestBf16(value);
  return x;
}

double RoundedInput::Roundings(const double* w) const {
  double absolute = 0;
  double squares = 0;
  for (const Unsure& u : unsure) {
    absolute += std::abs(w[u.index] * u.rounding);
    squares += std::pow(w[u.index] * u.rounding, 2);
  }
  return std::min(absolute, kLambda * std::sqrt(squares));
}

double RoundedInput::Carried(const double* w) const {
  double squares = 0;
  for (const Unsure& u : unsure) squares += std::pow(w[u.index] * u.error, 2);
  return std::sqrt(squares) + Roundings(w);
}

double RoundedInput::CarriedAtMost(const double* w) const {
  double absolute = 0;
  for (const Unsure& u : unsure) absolute += std::abs(w[u.index] * u.error);
  return absolute + Roundings(w);
}

Bounded BoundedProduct(const Bounded& x, const Matrix& weight, const ProductRule& rule, Executor& executor) {
  MLA_CHECK_EQ(x.value.cols, weight.cols);
  const std::int64_t n = weight.cols;
  Bounded out{reference::Zeros(x.value.rows, weight.rows), reference::Zeros(x.value.rows, weight.rows)};
  const double sum_error = SumError(n);
  std::vector<RoundedInput> rounded;
  for (std::int64_t t = 0; rule.bf16_inputs && t < x.value.rows; ++t) {
    rounded.push_back(RoundInput(x.value.row(t), x.error.row(t), n));
  }
  ParallelFor(executor, weight.rows, [&](std::int64_t o, int /*worker*/) {
    const double* w = weight.row(o);
    for (std::int64_t t = 0; t < x.value.rows; ++t) {
      const RoundedInput* input = rule.bf16_inputs ? &rounded[static_cast<std::size_t>(t)] : nullptr;
      const double* in = input != nullptr ? input->value.data() : x.value.row(t);
      const reference::DotSums sums = reference::DotWithSquares(in, w, n);
      const double carried =
          input != nullptr ? input->Carried(w) : std::sqrt(reference::DotWithSquares(x.error.row(t), w, n).squares);
      out.value.row(t)[o] = sums.sum;
      out.error.row(t)[o] = sum_error * sums.absolute + WeightError(rule.weight_unit, sums) + carried + kTiny;
    }
  });
  return out;
}

// y = x s w, s = (mean x^2 + eps)^-1/2. The sum of squares is off by SumError of itself and so s by half of that, the
// root, eps in fp32 and the two products by 6 u more. An error e of x moves y_i by s w_i e_i - y_i s^2 (x e) / n, whose
// second part is at most |y_i| |e| / |x|.
Bounded BoundedNorm(const Bounded& x, std::int64_t first, std::span<const double> weight, double eps) {
  const auto n = static_cast<std::int64_t>(weight.size());
  Bounded out{reference::Zeros(x.value.rows, n), reference::Zeros(x.value.rows, n)};
  for (std::int64_t t = 0; t < x.value.rows; ++t) {
    const double* in = x.value.row(t) + first;
    const double* e = x.error.row(t) + first;
    reference::RmsNorm(in, weight, eps, out.value.row(t));
    const double squares = reference::Dot(in, in, n);
    const double s = 1 / std::sqrt(squares / static_cast<double>(n) + eps);
    const double turned = squares > 0 ? std::sqrt(reference::Dot(e, e, n) / squares) : 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double y = std::abs(out.value.row(t)[i]);
      out.error.row(t)[i] =
          (SumError(n) / 2 + 6 * kU + turned) * y + s * std::abs(weight[static_cast<std::size_t>(i)]) * e[i] + kTiny;
    }
  }
  return out;
}

// Each of cos and sin is rounded once, and is that of an angle which float64 has to a few units of 2^-52; the two
// products and their sum are rounded.
void BoundedRotate(const RopeSpec& spec, const reference::RopeAngles& angles, std::int64_t position, std::int64_t row,
                   std::int64_t first, Bounded* x) {
  if (spec.layout == RopeLayout::kNone) return;
  double* value = x->value.row(row) + first;
  double* error = x->error.row(row) + first;
  const std::size_t pairs = angles.cos.size();
  const bool interleaved = spec.layout == RopeLayout::kInterleaved;
  const double angle_error = static_cast<double>(position) * 0x1p-49;
  for (std::size_t i = 0; i < pairs; ++i) {
    const std::size_t a = interleaved ? 2 * i : i;
    const std::size_t b = interleaved ? 2 * i + 1 : i + pairs;
    const double cos = std::abs(angles.cos[i]);
    const double sin = std::abs(angles.sin[i]);
    const double size = std::hypot(angles.cos[i], angles.sin[i]);
    const auto of = [&](double from, double other, double e_from, double e_other) {
      return 3 * kU * (cos * std::abs(from) + sin * std::abs(other)) + cos * e_from + sin * e_other +
             size * angle_error * (std::abs(from) + std::abs(other)) + kTiny;
    };
    const double e_a = of(value[a], value[b], error[a], error[b]);
    const double e_b = of(value[b], value[a], error[b], error[a]);
    error[a] = e_a;
    error[b] = e_b;
  }
  reference::Rotate(spec.layout, angles, value);
}

void CompareRow(const double* found, const Bounded& expected, std::int64_t row, std::int64_t first, std::int64_t count,
                Place place, Tally* tally) {
  const double* value = expected.value.row(row) + first;
  const double* bound = expected.error.row(row) + first;
  const double size = RootMeanSquare(value, count);
  for (std::int64_t i = 0; i < count; ++i) {
    place.channel = i;
    tally->Add(std::abs(found[i] - value[i]), bound[i], size, place);
  }
}

}  // namespace mla::verify
