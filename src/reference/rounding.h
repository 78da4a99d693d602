// What fp32 arithmetic and stored bf16 do to a float64 run, imitated at random: the spread of several such runs says
// how far a sound engine may be from the exact one.
#ifndef MLA_REFERENCE_ROUNDING_H_
#define MLA_REFERENCE_ROUNDING_H_

#include <cstdint>

#include "reference/vector_math.h"

namespace mla::reference {

inline constexpr double kUnitF32 = 0x1p-24;  // half the distance from 1 to the next fp32

// The bf16 number nearest to x, of two as near the one whose last bit is 0; 0 below bf16's normal numbers. What
// products with bf16 inputs do to theirs.
double NearestBf16(double x);

// What a run keeps in bf16.
struct Bf16Parts {
  bool cache = false;    // cache rows
  bool weights = false;  // products' weights, whatever the file has; the router's are not
  bool inputs = false;   // what meets those weights
  // Queries, expanded keys and values, and the weights of keys, each where it meets another. Cache rows are then too.
  bool attention = false;
};

// One run's roundings; the seed decides them all. Where cache rows or inputs are kept in bf16, fp32's own errors, 2^16
// times smaller, are left out. Weights alone don't decide: the file may have them in bf16, and then nothing is rounded.
// Not thread-safe.
class Rounding {
 public:
  Rounding(std::uint64_t seed, const Bf16Parts& bf16) : state_(seed), bf16_(bf16) {}

  bool bf16_cache() const { return bf16_.cache; }
  bool bf16_weights() const { return bf16_.weights; }
  bool bf16_inputs() const { return bf16_.inputs; }
  bool bf16_attention() const { return bf16_.attention; }

  // One of the two bf16 numbers around x, either as likely; x itself where it is one.
  double ToBf16(double x);
  // Whether sums have fp32's errors.
  bool f32_errors() const { return !bf16_.cache && !bf16_.inputs; }
  // x with an error of standard deviation kUnitF32 * size.
  double WithError(double x, double size) { return x + kUnitF32 * size * Random(); }

 private:
  std::uint64_t Next();
  // Uniform, mean 0, variance 1.
  double Random();

  std::uint64_t state_;
  Bf16Parts bf16_;
};

// Product(x, weight) with the errors of fp32 sums: a sum of n products in fp32 is off by n roundings of partial sums
// that grow like a random walk, so by about u sqrt(n) |(x_i w_i)|_2. Without rounding, Product.
Matrix Product(const Matrix& x, const Matrix& weight, Rounding* rounding);

// x as products take it: with bf16 inputs each number rounded, else x itself.
Matrix Inputs(Matrix x, Rounding* rounding);

}  // namespace mla::reference

#endif  // MLA_REFERENCE_ROUNDING_H_
