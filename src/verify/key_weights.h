// Weights of the keys that one row of one head sees: softmax of their scores, with what production may make of them.
//
// Attention in products of bf16 (attention/kernels.h, Bf16Kernels) adds the exponentials up as they are, and rounds
// each to bf16 before it meets its value. What is rounded is relative to a maximum: that of all keys that the row sees
// from its segment's beginning to its block's end. So a key's weight is known as another product's input is
// (verify/bounds.h): where everything within its error rounds to one number, only the maximum's error is left of it.
#ifndef MLA_VERIFY_KEY_WEIGHTS_H_
#define MLA_VERIFY_KEY_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mla::verify {

// A number and how far fp32 may be from it.
struct Bound {
  double value;
  double error;
};

class KeyWeights {
 public:
  // Of scores (scaled) of the keys from position 0 on, each off by at most its error. Not empty.
  KeyWeights(std::vector<double> scores, std::vector<double> errors, bool bf16);

  std::int64_t count() const { return static_cast<std::int64_t>(p_.size()); }
  // Of key j, as its value meets it; all add up to about 1.
  double met(std::int64_t j) const { return met_[static_cast<std::size_t>(j)]; }
  const Bound& lse() const { return lse_; }
  // What exponentials and sums over keys are off by, as a part of themselves.
  double relative() const { return relative_; }

  // sum_j met_j x_j, x_j = x[j stride]: how far scores and roundings of weights may move it; without `relative`.
  Bound Mix(const double* x, std::int64_t stride) const;

 private:
  // Keys whose weights are rounded relative to one maximum.
  struct Block {
    std::size_t largest;  // the key that has it
    double error;         // of the maximum, beside the error of that key's score
  };
  void Round(const std::vector<double>& scores);
  Block BlockAt(const std::vector<double>& scores, std::size_t begin) const;
  Bound MixRounded(const double* x, std::int64_t stride, double value) const;

  std::vector<double> p_;
  std::vector<double> ds_;   // errors of the scores
  std::vector<double> met_;  // p, or rounded
  Bound lse_{};
  double largest_ = 0;
  double relative_ = 0;
  double growth_ = 1;  // what terms past the first make of ds
  // Of attention in bf16 alone.
  std::vector<double> argument_;  // errors of the exponentials' arguments beside ds
  std::vector<double> rounding_;  // of met, where not known; else 0
  std::vector<Block> blocks_;
};

}  // namespace mla::verify

#endif  // MLA_VERIFY_KEY_WEIGHTS_H_
