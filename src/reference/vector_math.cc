#include "reference/vector_math.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace mla::reference {

Matrix Zeros(std::int64_t rows, std::int64_t cols) {
  return {rows, cols, std::vector<double>(static_cast<std::size_t>(rows * cols))};
}

double Dot(const double* a, const double* b, std::int64_t n) {
  // Eight chains of additions: enough for the compiler to use vectors without being allowed to reorder anything.
  double sum[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int lane = 0; lane < 8; ++lane) sum[lane] += a[i + lane] * b[i + lane];
  }
  double tail = 0;
  for (; i < n; ++i) tail += a[i] * b[i];
  return (((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]))) + tail;
}

DotSums DotWithSquares(const double* a, const double* b, std::int64_t n) {
  double sum[4] = {};
  double absolute[4] = {};
  double squares[4] = {};
  const auto add = [&](int lane, double product) {
    sum[lane] += product;
    absolute[lane] += std::abs(product);
    squares[lane] += product * product;
  };
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int lane = 0; lane < 4; ++lane) add(lane, a[i + lane] * b[i + lane]);
  }
  for (; i < n; ++i) add(0, a[i] * b[i]);
  return {(sum[0] + sum[1]) + (sum[2] + sum[3]), (absolute[0] + absolute[1]) + (absolute[2] + absolute[3]),
          (squares[0] + squares[1]) + (squares[2] + squares[3])};
}

void AddScaled(double alpha, const double* x, double* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += alpha * x[i];
}

Matrix Product(const Matrix& x, const Matrix& weight) {
  MLA_CHECK_EQ(x.cols, weight.cols);
  Matrix out = Zeros(x.rows, weight.rows);
  // A block of x stays in the cache while the weight streams by.
  constexpr std::int64_t kBlock = 16;
  for (std::int64_t begin = 0; begin < x.rows; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, x.rows);
    for (std::int64_t o = 0; o < weight.rows; ++o) {
      for (std::int64_t t = begin; t < end; ++t) out.row(t)[o] = Dot(x.row(t), weight.row(o), x.cols);
    }
  }
  return out;
}

void RmsNorm(const double* x, std::span<const double> weight, double eps, double* out) {
  const auto n = static_cast<std::int64_t>(weight.size());
  const double scale = 1.0 / std::sqrt(Dot(x, x, n) / static_cast<double>(n) + eps);
  for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] * scale * weight[static_cast<std::size_t>(i)];
}

Matrix RmsNormRows(const Matrix& x, std::span<const double> weight, double eps) {
  MLA_CHECK_EQ(x.cols, static_cast<std::int64_t>(weight.size()));
  Matrix out = Zeros(x.rows, x.cols);
  for (std::int64_t t = 0; t < x.rows; ++t) RmsNorm(x.row(t), weight, eps, out.row(t));
  return out;
}

void Softmax(std::span<double> x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& value : x) {
    value = std::exp(value - largest);
    sum += value;
  }
  for (double& value : x) value /= sum;
}

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double Silu(double x) { return x * Sigmoid(x); }

}  // namespace mla::reference
