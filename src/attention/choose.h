// Which instruction set computes: the fastest whose kernels do what they promise.
#ifndef MLA_ATTENTION_CHOOSE_H_
#define MLA_ATTENTION_CHOOSE_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "attention/kernels.h"
#include "base/cpu_info.h"
#include "mla/attention.h"
#include "mla/result.h"
#include "ops/kernels.h"

namespace mla::attention {

// The tables of one instruction set: chosen together, so that one name says what computed.
struct KernelSet {
  Isa isa = Isa::kPortable;
  const AttentionKernels* attention = nullptr;
  const ops::OpKernels* ops = nullptr;
};

// Those that the processor and the build have, fastest first.
std::vector<KernelSet> MachineKernels(const CpuInfo& cpu);

struct KernelChoice {
  KernelSet kernels;
  std::vector<RejectedKernels> rejected;  // tried before it
};

// The first of `sets` that passes its self-tests; or, where `name` is not empty, that one of them. Fails, with each
// one's fault, where none passes. Precondition: a name is one of the sets', and this machine can run all of them.
// `scratch`: the self-tests' (ops/self_test.h), or null.
Result<KernelChoice> ChooseKernels(std::span<const KernelSet> sets, const std::string& name,
                                   std::byte* scratch = nullptr);

// MlaAttention::Create with these sets in place of the machine's. Precondition: as ChooseKernels.
Result<MlaAttention> CreateAttention(const MlaAttention::Options& options, std::span<const KernelSet> sets);

}  // namespace mla::attention

#endif  // MLA_ATTENTION_CHOOSE_H_
