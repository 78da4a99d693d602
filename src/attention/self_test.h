// The start-up self-test of a table of attention kernels.
#ifndef MLA_ATTENTION_SELF_TEST_H_
#define MLA_ATTENTION_SELF_TEST_H_

#include <vector>

#include "attention/kernels.h"
#include "base/kernel_check.h"

namespace mla::attention {

// Runs every kernel on tiny cases (one row and more, tiles that rows see in part or not at all, NaN in keys that no row
// sees, widths that fill no vector, empty states) and compares with plain loops in float64. Takes about 0.2 ms and 160
// KiB of stack. Precondition: this machine can run the table.
std::vector<KernelCheck> CheckKernels(const AttentionKernels& kernels);

// The same of the kernels that compute in products of bf16. For the processor that has them, and has been granted AMX.
std::vector<KernelCheck> CheckKernels(const Bf16Kernels& kernels);

}  // namespace mla::attention

#endif  // MLA_ATTENTION_SELF_TEST_H_
