// What self-tests of kernels share: verdicts, made-up values, and the comparison with a reference.
#ifndef MLA_BASE_KERNEL_CHECK_H_
#define MLA_BASE_KERNEL_CHECK_H_

#include <cstdint>
#include <string>

#include "mla/dtypes.h"

namespace mla {

// The verdict on one kernel of a table.
struct KernelCheck {
  const char* kernel = "";    // its name in the table: "gemm_bf16"
  DType dtype = DType::kF32;  // of the elements that it reads
  std::string fault;          // "" where it does what the table promises
};

// Multiples of 1/64 in [-2, 2), the same on every machine: exact in bf16, and sums of a few hundred of their products
// exact in fp32, in any order. What a kernel makes of those is right to the bit or wrong.
class CheckValues {
 public:
  float Next() {
    state_ = state_ * 1664525U + 1013904223U;  // Numerical Recipes' generator
    return static_cast<float>(static_cast<int>(state_ >> 24) - 128) / 64;
  }

 private:
  std::uint32_t state_ = 1;
};

// The first of `count` numbers that is no number or further from `want` than its bound (null: 0), in words; "" where
// there is none.
std::string FirstFault(const float* got, const double* want, const double* bound, std::int64_t count);

}  // namespace mla

#endif  // MLA_BASE_KERNEL_CHECK_H_
