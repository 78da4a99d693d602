// What fp32 arithmetic and stored bf16 do to a float64 run, imitated at random: the spread of several such runs says
// how far a sound engine may be from the exact one.
#ifndef MLA_REFERENCE_ROUNDING_H_
#define MLA_REFERENCE_ROUNDING_H_

#include <cstdint>

#include "reference/vector_math.h"

namespace mla::reference {

inline constexpr double kUnitF32 = 0x1p-24;  // half the distance from 1 to the next fp32

// One run's roundings; the seed decides them all. Where anything is kept in bf16, fp32's own errors, 2^16 times
// smaller, are left out. Not thread-safe.
class Rounding {
 public:
  // bf16_cache: cache rows are kept in bf16. bf16_weights: so are products' weights, whatever the file has.
  Rounding(std::uint64_t seed, bool bf16_cache, bool bf16_weights)
      : state_(seed), bf16_cache_(bf16_cache), bf16_weights_(bf16_weights) {}

  bool bf16_cache() const { return bf16_cache_; }
  bool bf16_weights() const { return bf16_weights_; }

  // One of the two bf16 numbers around x, either as likely; x itself where it is one.
  double ToBf16(double x);
  // Whether sums have fp32's errors.
  bool f32_errors() const { return !bf16_cache_ && !bf16_weights_; }
  // x with an error of standard deviation kUnitF32 * size.
  double WithError(double x, double size) { return x + kUnitF32 * size * Random(); }

 private:
  std::uint64_t Next();
  // Uniform, mean 0, variance 1.
  double Random();

  std::uint64_t state_;
  bool bf16_cache_;
  bool bf16_weights_;
};

// Product(x, weight) with the errors of fp32 sums: a sum of n products in fp32 is off by n roundings of partial sums
// that grow like a random walk, so by about u sqrt(n) |(x_i w_i)|_2. Without rounding, Product.
Matrix Product(const Matrix& x, const Matrix& weight, Rounding* rounding);

}  // namespace mla::reference

#endif  // MLA_REFERENCE_ROUNDING_H_
