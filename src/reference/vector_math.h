// The few operations on rows of doubles that the reference is made of. Every result depends on its arguments alone, in
// one fixed order of additions, so a token's numbers don't depend on which other tokens stand beside it.
#ifndef MLA_REFERENCE_VECTOR_MATH_H_
#define MLA_REFERENCE_VECTOR_MATH_H_

#include <cstdint>
#include <span>
#include <vector>

namespace mla::reference {

// [rows, cols], row-major. As a product's weight: [out, in].
struct Matrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<double> values;

  const double* row(std::int64_t i) const { return values.data() + i * cols; }
  double* row(std::int64_t i) { return values.data() + i * cols; }
  bool empty() const { return values.empty(); }
};

// A matrix of zeros.
Matrix Zeros(std::int64_t rows, std::int64_t cols);

// Sum of a[i] * b[i] over [0, n), in eight interleaved partial sums.
double Dot(const double* a, const double* b, std::int64_t n);

// The same sum; those of |a[i] b[i]| and of (a[i] b[i])^2 beside it, which say what rounding may do to it.
struct DotSums {
  double sum = 0;
  double absolute = 0;
  double squares = 0;
};
DotSums DotWithSquares(const double* a, const double* b, std::int64_t n);

// y[i] += alpha * x[i] over [0, n).
void AddScaled(double alpha, const double* x, double* y, std::int64_t n);

// x W^T: x [T, in], weight [out, in] -> [T, out].
Matrix Product(const Matrix& x, const Matrix& weight);

// out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i] over [0, weight.size()). out may be x.
void RmsNorm(const double* x, std::span<const double> weight, double eps, double* out);
// The same for each row of x [T, weight.size()].
Matrix RmsNormRows(const Matrix& x, std::span<const double> weight, double eps);

// Replaces x by softmax(x): the largest is subtracted first. x is not empty and finite.
void Softmax(std::span<double> x);

double Sigmoid(double x);
double Silu(double x);

}  // namespace mla::reference

#endif  // MLA_REFERENCE_VECTOR_MATH_H_
