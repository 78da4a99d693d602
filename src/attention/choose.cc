#include "attention/choose.h"

#include <ranges>
#include <utility>

#include <fmt/format.h>

#include "attention/self_test.h"
#include "base/check.h"
#include "ops/gemm.h"
#include "ops/self_test.h"

namespace mla::attention {
namespace {

const AttentionKernels& KernelsFor(Isa isa) {
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
  if (isa == Isa::kAmx) return kAttentionAmx;
  if (isa == Isa::kAvx512Bf16) return kAttentionAvx512Bf16;
  if (isa == Isa::kAvx512) return kAttentionAvx512;
  if (isa == Isa::kAvx2) return kAttentionAvx2;
#endif
  MLA_CHECK(isa == Isa::kPortable);
  return kAttentionPortable;
}

std::string FirstFailed(const std::vector<KernelCheck>& checks) {
  for (const KernelCheck& check : checks) {
    if (!check.fault.empty()) return fmt::format("{}: {}", check.kernel, check.fault);
  }
  return "";
}

std::string SelfTest(const KernelSet& set, std::byte* scratch) {
  std::string fault = FirstFailed(ops::CheckKernels(*set.ops, scratch));
  return fault.empty() ? FirstFailed(CheckKernels(*set.attention)) : fault;
}

}  // namespace

std::vector<KernelSet> MachineKernels(const CpuInfo& cpu) {
  std::vector<KernelSet> sets;
  for (const Isa isa : std::views::reverse(kIsas)) {
    if (cpu.Has(isa)) sets.push_back({isa, &KernelsFor(isa), &ops::KernelsFor(isa)});
  }
  return sets;
}

Result<KernelChoice> ChooseKernels(std::span<const KernelSet> sets, const std::string& name, std::byte* scratch) {
  KernelChoice choice;
  std::string faults;
  for (const KernelSet& set : sets) {
    if (!name.empty() && name != IsaName(set.isa)) continue;
    std::string fault = SelfTest(set, scratch);
    if (fault.empty()) {
      choice.kernels = set;
      return choice;
    }
    faults += fmt::format("{}{}: {}", faults.empty() ? "" : "; ", IsaName(set.isa), fault);
    choice.rejected.push_back({IsaName(set.isa), std::move(fault)});
  }
  MLA_CHECK(!faults.empty());
  return Error{fmt::format("kernels: expected {} to pass the self-test, found {}",
                           name.empty() ? "one instruction set" : "'" + name + "'", faults)};
}

}  // namespace mla::attention
