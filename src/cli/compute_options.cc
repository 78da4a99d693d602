#include "cli/compute_options.h"

#include <algorithm>
#include <vector>

#include <CLI/CLI.hpp>
#include <spdlog/spdlog.h>

#include "base/cpu_info.h"
#include "cli/flags.h"

namespace mla::cli {

void AddModelArgument(CLI::App& command, ComputeOptions* options) {
  command
      .add_option("MODEL", options->model,
                  "Folder with config.json, *.safetensors and tokenizer.json or tiktoken.model")
      ->required();
}

void AddComputeFlags(CLI::App& c, ComputeOptions* o) {
  c.add_option(
       "--mode", o->mode,
       "Form of the attention: auto (prompt by cost, output absorbed), role (prompt mha, output absorbed), mha, "
       "absorb, or explicit (the slow float64 reference)")
      ->check(CLI::IsMember({"auto", "role", "mha", "absorb", "explicit"}))
      ->capture_default_str();
  c.add_option("--prefill-chunk", o->prefill_chunk, "Prompt tokens a step; no result depends on it")
      ->check(WholeIn(1, 1 << 20))
      ->capture_default_str();
  AddMachineFlags(c, o);
}

void AddThreadFlag(CLI::App& c, ComputeOptions* o) {
  c.add_option("--threads", o->threads, "Threads; 0: what affinity and cgroups leave")
      ->check(WholeIn(0, 4096))
      ->capture_default_str();
}

void AddKernelsFlag(CLI::App& c, ComputeOptions* o) {
  std::vector<std::string> names;
  for (const Isa isa : kIsas) names.emplace_back(IsaName(isa));
  c.add_option("--kernels", o->kernels, "Kernels to use instead of the fastest")->check(CLI::IsMember(names));
}

void AddMachineFlags(CLI::App& c, ComputeOptions* o) {
  AddThreadFlag(c, o);
  c.add_option("--weights", o->weights, "How weights are kept: bf16 or f32")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  c.add_option("--kv-dtype", o->kv_dtype, "How cache rows are kept: bf16 or f32")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  AddKernelsFlag(c, o);
  c.add_option("--memory", o->memory,
               "Bytes that weights, cache and workspace may take, as 8G or 512MiB; else what the machine leaves")
      ->check(Checked(ParseSize));
}

Mode EngineMode(const ComputeOptions& options) {
  for (const Mode mode : {Mode::kRole, Mode::kMha, Mode::kAbsorb}) {
    if (options.mode == ModeName(mode)) return mode;
  }
  return Mode::kAuto;
}

EngineOptions EngineOptionsOf(const ComputeOptions& o, std::int64_t context) {
  EngineOptions e;
  e.mode = EngineMode(o);
  e.kv_dtype = o.kv_dtype == "f32" ? DType::kF32 : DType::kBF16;
  e.context = context;
  e.prefill_chunk = o.prefill_chunk;
  e.kernels = o.kernels;
  return e;
}

WeightDType WeightsOf(const ComputeOptions& options) {
  return options.weights == "f32" ? WeightDType::kF32 : WeightDType::kBF16;
}

Result<std::int64_t> MemoryLimit(const ComputeOptions& options) {
  if (options.memory.empty()) return UsableMemory();
  MLA_ASSIGN_OR_RETURN(const std::int64_t asked, ParseSize(options.memory));
  return std::min(asked, UsableMemory());
}

int ThreadCount(const ComputeOptions& options, const Log& log) {
  const int cpus = UsableCpus();
  const int threads = options.threads > 0 ? options.threads : cpus;
  if (threads > 4 * cpus) log->warn("{} threads on {} processors wait for each other", threads, cpus);
  return threads;
}

}  // namespace mla::cli
