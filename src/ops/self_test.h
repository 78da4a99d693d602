// The start-up self-test of a table of ops kernels.
#ifndef MLA_OPS_SELF_TEST_H_
#define MLA_OPS_SELF_TEST_H_

#include <cstddef>
#include <vector>

#include "base/kernel_check.h"
#include "ops/kernels.h"

namespace mla::ops {

// Runs every kernel on tiny cases (lanes past n, odd k, one row and more, add, scale, gathered rows) and compares with
// plain loops in float64. Takes about 0.1 ms and 64 KiB of stack. `scratch`: kGemmScratch bytes at a 64-byte border;
// null: allocated for the while. Precondition: this machine can run the table.
std::vector<KernelCheck> CheckKernels(const OpKernels& kernels, std::byte* scratch = nullptr);

}  // namespace mla::ops

#endif  // MLA_OPS_SELF_TEST_H_
