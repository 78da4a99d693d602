#include "cli/kernels_report.h"

#include <algorithm>
#include <ranges>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "attention/choose.h"
#include "attention/self_test.h"
#include "ops/self_test.h"

namespace mla::cli {
namespace {

std::string WhyAbsent(const CpuInfo& cpu, Isa isa) {
  if (cpu.Has(isa)) return "";
#if defined(MLA_SCALAR_ONLY) || !defined(__x86_64__)
  return "not in this build";
#else
  return "not on this processor";
#endif
}

std::vector<KernelCheck> ChecksOf(const attention::KernelSet& set) {
  std::vector<KernelCheck> checks = ops::CheckKernels(*set.ops);
  for (KernelCheck& check : attention::CheckKernels(*set.attention)) checks.push_back(std::move(check));
  return checks;
}

const KernelCheck* Find(const KernelColumn& column, std::string_view kernel) {
  const auto found = std::find_if(column.checks.begin(), column.checks.end(),
                                  [&](const KernelCheck& check) { return check.kernel == kernel; });
  return found == column.checks.end() ? nullptr : &*found;
}

// Every kernel that some set has: those of the portable set, the last column, which any machine can run, then others.
std::vector<KernelCheck> Kernels(const KernelsReport& report) {
  std::vector<KernelCheck> kernels = report.columns.back().checks;
  for (const KernelColumn& column : report.columns) {
    for (const KernelCheck& check : column.checks) {
      const bool known = std::any_of(kernels.begin(), kernels.end(), [&](const KernelCheck& kernel) {
        return std::string_view(kernel.kernel) == check.kernel;
      });
      if (!known) kernels.push_back(check);
    }
  }
  return kernels;
}

const char* Verdict(const KernelColumn& column, const char* kernel) {
  const KernelCheck* check = Find(column, kernel);
  if (check == nullptr) return "-";
  return check->fault.empty() ? "passed" : "FAILED";
}

void EndLine(std::string* text) {
  text->erase(text->find_last_not_of(' ') + 1);
  *text += '\n';
}

}  // namespace

KernelsReport ReportKernels(const CpuInfo& cpu) {
  KernelsReport report;
  report.cpu = cpu;
  const std::vector<attention::KernelSet> sets = attention::MachineKernels(cpu);
  for (const Isa isa : std::views::reverse(kIsas)) {
    KernelColumn column;
    column.isa = isa;
    column.absent = WhyAbsent(cpu, isa);
    for (const attention::KernelSet& set : sets) {
      if (set.isa == isa) column.checks = ChecksOf(set);
    }
    report.columns.push_back(std::move(column));
  }
  for (const KernelColumn& column : report.columns) {
    if (!column.absent.empty()) continue;
    const auto failed = std::find_if(column.checks.begin(), column.checks.end(),
                                     [](const KernelCheck& check) { return !check.fault.empty(); });
    if (failed != column.checks.end()) {
      report.rejected.push_back({IsaName(column.isa), fmt::format("{}: {}", failed->kernel, failed->fault)});
    } else if (report.chosen.empty()) {
      report.chosen = IsaName(column.isa);
    }
  }
  return report;
}

std::vector<KernelUse> UsesOf(const contract::ModelConfig& c, const KernelsReport& report) {
  const bool bf16 = std::any_of(report.columns.begin(), report.columns.end(), [&](const KernelColumn& column) {
    return IsaName(column.isa) == report.chosen && Find(column, "attend") != nullptr;
  });
  const char* attend = bf16 ? "attend" : "attend_tile";
  const std::int64_t q_head = c.qk_nope_head_dim + c.qk_rope_head_dim;
  std::vector<KernelUse> uses;
  if (c.fp8) {
    uses.push_back({"projections, experts (fp8 weights)", "gemm_f8",
                    fmt::format("hidden {}, blocks of {}", c.hidden_size, c.fp8->block_columns)});
  }
  uses.push_back({"projections, experts, logits (bf16 weights)", "gemm_bf16",
                  fmt::format("hidden {}, vocabulary {}", c.hidden_size, c.vocab_size)});
  if (c.moe) {
    uses.push_back({"router (f32 weights)", "gemm_f32",
                    fmt::format("hidden {}, {} experts", c.hidden_size, c.moe->n_routed_experts)});
  }
  uses.push_back({"attention, mha form", attend,
                  fmt::format("{} heads, keys of {}, values of {}", c.num_attention_heads, q_head, c.v_head_dim)});
  uses.push_back({"attention, absorbed form", attend,
                  fmt::format("{} heads, keys of {}, values of {}", c.num_attention_heads,
                              c.kv_lora_rank + c.qk_rope_head_dim, c.kv_lora_rank)});
  uses.push_back({"cache rows (bf16)", "widen", fmt::format("latent {}, rope {}", c.kv_lora_rank, c.qk_rope_head_dim)});
  return uses;
}

std::string KernelsText(const KernelsReport& r) {
  std::string text = fmt::format("processor: {}\n\n", r.cpu.model.empty() ? "unknown" : r.cpu.model);
  text += fmt::format("{:<16}{:<8}", "kernel", "reads");
  for (const KernelColumn& column : r.columns) text += fmt::format("{:<12}", IsaName(column.isa));
  EndLine(&text);
  for (const KernelCheck& kernel : Kernels(r)) {
    text += fmt::format("{:<16}{:<8}", kernel.kernel, DTypeName(kernel.dtype));
    for (const KernelColumn& column : r.columns) text += fmt::format("{:<12}", Verdict(column, kernel.kernel));
    EndLine(&text);
  }
  text += "\n";
  for (const KernelColumn& column : r.columns) {
    if (!column.absent.empty()) text += fmt::format("{}: {}\n", IsaName(column.isa), column.absent);
    for (const KernelCheck& check : column.checks) {
      if (!check.fault.empty()) {
        text += fmt::format("{} {} FAILED its self-test: {}\n", IsaName(column.isa), check.kernel, check.fault);
      }
    }
  }
  text += r.chosen.empty() ? "chosen: none, since none passes\n" : fmt::format("chosen: {}\n", r.chosen);
  if (r.model.empty()) return text;
  text += fmt::format("\n{}:\n", r.model);
  for (const KernelUse& use : r.uses) {
    text +=
        fmt::format("  {:<46}{:<14}{:<12}{}\n", use.what, use.kernel, r.chosen.empty() ? "none" : r.chosen, use.shape);
  }
  return text;
}

std::string KernelsJson(const KernelsReport& r) {
  using Json = nlohmann::ordered_json;
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  Json j;
  j["processor"] = r.cpu.model;
  j["instruction_sets"] = Json::array();
  j["kernels"] = Json::array();
  for (const KernelColumn& column : r.columns) {
    const char* isa = IsaName(column.isa);
    j["instruction_sets"].push_back(
        {{"name", isa}, {"can_run", column.absent.empty()}, {"why_not", or_null(column.absent)}});
    for (const KernelCheck& kernel : Kernels(r)) {
      const KernelCheck* ran = Find(column, kernel.kernel);
      const std::string fault = ran != nullptr ? ran->fault : "";
      j["kernels"].push_back({{"kernel", kernel.kernel},
                              {"reads", DTypeName(kernel.dtype)},
                              {"instruction_set", isa},
                              {"self_test", ran == nullptr ? Json(nullptr) : Json(fault.empty() ? "passed" : "failed")},
                              {"fault", or_null(fault)}});
    }
  }
  j["chosen"] = or_null(r.chosen);
  j["rejected"] = Json::array();
  for (const RejectedKernels& rejected : r.rejected) {
    j["rejected"].push_back({{"instruction_set", rejected.name}, {"fault", rejected.fault}});
  }
  if (!r.model.empty()) {
    Json uses = Json::array();
    for (const KernelUse& use : r.uses) {
      uses.push_back(
          {{"use", use.what}, {"kernel", use.kernel}, {"instruction_set", or_null(r.chosen)}, {"shape", use.shape}});
    }
    j["model"] = {{"path", r.model}, {"uses", uses}};
  }
  return j.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace mla::cli
