// Whole numbers that remember when they left 63 bits: sums and products of a plan are exact or refused.
#ifndef MLA_PLAN_EXACT_H_
#define MLA_PLAN_EXACT_H_

#include <cstdint>
#include <string>

#include "base/check.h"
#include "mla/result.h"

namespace mla::plan {

class Exact {
 public:
  constexpr Exact(std::int64_t value = 0) : value_(value) {}  // NOLINT(google-explicit-constructor): as a number

  constexpr bool fits() const { return fits_; }
  // Precondition: fits().
  std::int64_t value() const {
    MLA_CHECK(fits_);
    return value_;
  }
  // The number, or an error that names it: "WHAT: more than fits in 63 bits".
  Result<std::int64_t> Get(const std::string& what) const {
    if (fits_) return value_;
    return Error{what + ": expected a number below 2^63, found a larger one"};
  }

  friend constexpr Exact operator+(Exact a, Exact b) {
    Exact sum;
    sum.fits_ = !__builtin_add_overflow(a.value_, b.value_, &sum.value_) && a.fits_ && b.fits_;
    return sum;
  }
  friend constexpr Exact operator-(Exact a, Exact b) {
    Exact difference;
    difference.fits_ = !__builtin_sub_overflow(a.value_, b.value_, &difference.value_) && a.fits_ && b.fits_;
    return difference;
  }
  friend constexpr Exact operator*(Exact a, Exact b) {
    Exact product;
    product.fits_ = !__builtin_mul_overflow(a.value_, b.value_, &product.value_) && a.fits_ && b.fits_;
    return product;
  }
  Exact& operator+=(Exact other) { return *this = *this + other; }

  // a / b rounded up, of a >= 0 and b > 0.
  friend constexpr Exact CeilDiv(Exact a, std::int64_t b) {
    Exact quotient = a.value_ / b + (a.value_ % b != 0 ? 1 : 0);
    quotient.fits_ = a.fits_;
    return quotient;
  }
  // The next multiple of b.
  friend constexpr Exact RoundUp(Exact a, std::int64_t b) { return CeilDiv(a, b) * b; }

 private:
  std::int64_t value_ = 0;
  bool fits_ = true;
};

// n / ways rounded up, of n >= 0 and ways > 0: what one of so many holds at most.
constexpr std::int64_t Ceil(std::int64_t n, std::int64_t ways) { return n / ways + (n % ways != 0 ? 1 : 0); }

}  // namespace mla::plan

#endif  // MLA_PLAN_EXACT_H_
