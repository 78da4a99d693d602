// What `mla kernels` knows: every kernel of every instruction set, what its self-test says here, and what is chosen.
#ifndef MLA_CLI_KERNELS_REPORT_H_
#define MLA_CLI_KERNELS_REPORT_H_

#include <string>
#include <vector>

#include "base/cpu_info.h"
#include "base/kernel_check.h"
#include "contract/config.h"
#include "mla/attention.h"

namespace mla::cli {

// The kernels of one instruction set.
struct KernelColumn {
  Isa isa = Isa::kPortable;
  std::string absent;               // why it can't run here; "" where it can
  std::vector<KernelCheck> checks;  // where it can: products, rows, then attention's
};

// Where a model needs a kernel.
struct KernelUse {
  std::string what;    // "attention, absorbed form"
  std::string kernel;  // "attend_tile"
  std::string shape;   // with the model's dims
};

struct KernelsReport {
  CpuInfo cpu;
  std::vector<KernelColumn> columns;  // fastest first, portable last
  std::string chosen;                 // "" where none passes
  std::vector<RejectedKernels> rejected;
  std::string model;            // "" for none
  std::vector<KernelUse> uses;  // of the model

  // No self-test failed.
  bool ok() const { return !chosen.empty() && rejected.empty(); }
};

// Runs the self-tests of all that this machine and build have.
KernelsReport ReportKernels(const CpuInfo& cpu);

// The kernels of the chosen set that a model takes as `mla run` keeps it by default: bf16 weights and cache rows.
std::vector<KernelUse> UsesOf(const contract::ModelConfig& config, const KernelsReport& report);

std::string KernelsText(const KernelsReport& report);
std::string KernelsJson(const KernelsReport& report);

}  // namespace mla::cli

#endif  // MLA_CLI_KERNELS_REPORT_H_
