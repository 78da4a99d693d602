// Numbers beside how far fp32 arithmetic may be from them.
//
// A rounding is off by at most u = 2^-24 of its result (2^-8 for bf16). A sum of n products in fp32, in any order, is n
// roundings of partial sums, none of which passes sum |a b|: at most n u sum |a b| (Higham, Accuracy and Stability of
// Numerical Algorithms, section 3.1). Taken as independent with mean 0 they stay within kLambda sqrt(n) u sum |a b| but
// for a chance of 2 exp(-kLambda^2 / 2) = 3e-14 (Hoeffding; Higham and Mary, SIAM J. Sci. Comput. 41, 2019, theorem
// 2.4); the smaller of the two is the bound. Bounds of independent errors e_i that pass through a sum w_i e_i add up as
// the root of their squares, by the same inequality.
//
// Inputs that a product rounds to bf16: where x is known to within e, and everything from x - e to x + e rounds to one
// number, that number is what production multiplied, and x's error is gone. Else the input is off by e and by a
// rounding of at most 2^-8 of itself.
#ifndef MLA_VERIFY_BOUNDS_H_
#define MLA_VERIFY_BOUNDS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mla/executor.h"
#include "mla/rope.h"
#include "reference/rope.h"
#include "reference/vector_math.h"
#include "verify/report.h"

namespace mla::verify {

using reference::Matrix;

inline constexpr double kU = 0x1p-24;     // fp32
inline constexpr double kUBf16 = 0x1p-8;  // bf16
inline constexpr double kLambda = 8;
// Numbers so small that fp32 loses them altogether.
inline constexpr double kTiny = 0x1p-120;

// min(n, kLambda sqrt(n)) u: what a sum of n terms may be off by, as a part of the sum of their magnitudes.
double SumError(std::int64_t terms);

// What weights off by `unit` of themselves do to a sum of products: min(unit sum |a b|, kLambda unit |(a b)|_2).
double WeightError(double unit, const reference::DotSums& sums);

struct Bounded {
  Matrix value;
  Matrix error;  // of the same shape; absolute
};
// Given without error.
Bounded Exact(Matrix value);

// How a product is computed: how far the kept weights may be from the file's, as a part of themselves, and whether its
// inputs are rounded to bf16.
struct ProductRule {
  double weight_unit = 0;
  bool bf16_inputs = false;
};

// Inputs as a product takes them.
struct RoundedInput {
  // One whose rounding is not known: it stays as it is, off by `error` and by `rounding` more.
  struct Unsure {
    std::size_t index;
    double error;
    double rounding;
  };
  std::vector<double> value;
  std::vector<Unsure> unsure;

  // What the unsure ones do to a sum with weights w: errors as the root of their squares, or in the worst case.
  double Carried(const double* w) const;
  double CarriedAtMost(const double* w) const;

 private:
  double Roundings(const double* w) const;
};
// x[i] within error[i], rounded to bf16.
RoundedInput RoundInput(const double* x, const double* error, std::int64_t n);

// x rounded to bf16, each number by itself. For inputs known exactly.
Matrix RoundedExactly(Matrix x);

// x W^T. Outputs are shared out to workers.
Bounded BoundedProduct(const Bounded& x, const Matrix& weight, const ProductRule& rule, Executor& executor);
// RMS norm of each row; `first` is the column of x at which it begins, weight.size() columns on.
Bounded BoundedNorm(const Bounded& x, std::int64_t first, std::span<const double> weight, double eps);
// Rotates channels [first, first + P) of a row, its angles rounded to fp32.
void BoundedRotate(const RopeSpec& spec, const reference::RopeAngles& angles, std::int64_t position, std::int64_t row,
                   std::int64_t first, Bounded* x);

// Compares columns [first, first + count) of found's row with expected's; errors are told relative to their root mean
// square. `place.channel` counts from `first`.
void CompareRow(const double* found, const Bounded& expected, std::int64_t row, std::int64_t first, std::int64_t count,
                Place place, Tally* tally);

// sqrt of the mean square.
double RootMeanSquare(const double* x, std::int64_t n);

}  // namespace mla::verify

#endif  // MLA_VERIFY_BOUNDS_H_
