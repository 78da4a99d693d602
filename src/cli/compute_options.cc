#include "cli/compute_options.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "base/cpu_info.h"
#include "base/huge_pages.h"
#include "base/numa.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "ops/packed.h"

namespace mla::cli {
namespace {

std::vector<std::string> KernelNames() {
  std::vector<std::string> names;
  for (const Isa isa : kIsas) names.emplace_back(IsaName(isa));
  return names;
}

}  // namespace

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
  AddKeepExpandedFlag(c, o);
  AddTuneTableFlag(c, o);
  AddMachineFlags(c, o);
}

void AddKeepExpandedFlag(CLI::App& c, ComputeOptions* o) {
  c.add_option("--keep-expanded", o->keep_expanded,
               "Memory, as 4G, to keep a prompt's expanded keys and values in from chunk to chunk of the mha form; "
               "default: none. No result depends on it")
      ->check(Checked(ParseSize));
}

void AddTuneTableFlag(CLI::App& c, ComputeOptions* o) {
  c.add_option(
      "--tune-table", o->tune_table,
      "Table of mla tune that auto chooses the form by, or shipped; default: the one that mla tune left in the "
      "cache folder, if it fits this machine and build");
}

void AddThreadFlag(CLI::App& c, ComputeOptions* o) {
  c.add_option("--threads", o->threads, "Threads; 0: what affinity and cgroups leave")
      ->check(WholeIn(0, 4096))
      ->capture_default_str();
}

void AddKernelsFlag(CLI::App& c, ComputeOptions* o) {
  c.add_option("--kernels", o->kernels,
               "Kernels to use instead of the fastest; avx512bf16 and amx round what meets bf16 weights to bf16, the "
               "others keep it in fp32")
      ->check(CLI::IsMember(KernelNames()));
}

void AddMachineFlags(CLI::App& c, ComputeOptions* o) {
  AddThreadFlag(c, o);
  c.add_option("--weights", o->weights,
               "How weights are kept: auto (blocks of fp8 as the checkpoint has them, all else bf16; the same results "
               "as bf16), bf16 or f32")
      ->check(CLI::IsMember({"auto", "bf16", "f32"}))
      ->capture_default_str();
  c.add_option("--kv-dtype", o->kv_dtype, "How cache rows are kept: bf16 or f32")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  AddKernelsFlag(c, o);
  c.add_option("--memory", o->memory,
               "Bytes that weights, cache and workspace may take, as 8G or 512MiB; else what the machine leaves")
      ->check(Checked(ParseSize));
  c.add_option(
       "--huge-pages", o->huge_pages,
       "Pages of weights, cache and workspace: auto (huge ones as the system has them), hugetlbfs (huge ones that "
       "sysctl vm.nr_hugepages has reserved, or an error), off")
      ->check(CLI::IsMember({"auto", "hugetlbfs", "off"}))
      ->capture_default_str();
  c.add_option(
       "--numa", o->numa,
       "Where memory has several nodes: auto (threads are kept to nodes, and each weight lies near those that read "
       "it), off")
      ->check(CLI::IsMember({"auto", "off"}))
      ->capture_default_str();
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
  e.kv_dtype = KvDTypeOf(o);
  e.context = context;
  e.prefill_chunk = o.prefill_chunk;
  if (!o.keep_expanded.empty()) e.keep_bytes = ParseSize(o.keep_expanded).value();
  for (const Drafter drafter : {Drafter::kNone, Drafter::kNgram, Drafter::kMtp}) {
    if (o.draft == DrafterName(drafter)) e.drafter = drafter;
  }
  e.draft_tokens = o.draft_tokens;
  e.kernels = o.kernels;
  e.huge_pages = HugePagesOf(o);
  return e;
}

Status CheckContext(std::int64_t ctx, std::int64_t most) {
  if (ctx <= most) return {};
  return Error{fmt::format("--ctx: expected at most the model's {} positions, found {}", most, ctx)};
}

DType KvDTypeOf(const ComputeOptions& options) { return options.kv_dtype == "f32" ? DType::kF32 : DType::kBF16; }

WeightDType PlainWeightsOf(const ComputeOptions& options) {
  return options.weights == "f32" ? WeightDType::kF32 : WeightDType::kBF16;
}

WeightDType WeightsOf(const ComputeOptions& options) {
  if (options.weights == "f32") return WeightDType::kF32;
  return options.weights == "bf16" ? WeightDType::kBF16 : WeightDType::kFp8;
}

const char* KeptWeights(const ComputeOptions& options, const contract::ModelConfig& config) {
  switch (WeightsOf(options)) {
    case WeightDType::kF32: return "f32";
    case WeightDType::kBF16: return "bf16";
    case WeightDType::kFp8: break;
  }
  return config.fp8 && ops::CanKeepF8(config.fp8->block_columns) ? "fp8" : "bf16";
}

HugePages HugePagesOf(const ComputeOptions& options) {
  for (const HugePages pages : {HugePages::kHugetlbfs, HugePages::kOff}) {
    if (options.huge_pages == HugePagesName(pages)) return pages;
  }
  return HugePages::kAuto;
}

Result<std::int64_t> MemoryLimit(const ComputeOptions& options) {
  std::int64_t usable = UsableMemory();
  // What is reserved is not available to anyone else: Linux does not count it as such.
  if (HugePagesOf(options) == HugePages::kHugetlbfs &&
      __builtin_add_overflow(usable, ReadHugePagePool().free * kHugePageBytes, &usable)) {
    usable = std::numeric_limits<std::int64_t>::max();
  }
  if (options.memory.empty()) return usable;
  MLA_ASSIGN_OR_RETURN(const std::int64_t asked, ParseSize(options.memory));
  return std::min(asked, usable);
}

Status FitsHugePages(const ComputeOptions& options, const MemoryPlan& plan, std::int64_t layers) {
  if (HugePagesOf(options) != HugePages::kHugetlbfs) return {};
  const HugePagePool pool = ReadHugePagePool();
  const std::int64_t needed = plan.total() / kHugePageBytes;
  if (needed <= pool.free) return {};
  // Each layer's kv_b and each of the other buffers is rounded up to whole pages.
  constexpr std::int64_t kOtherBuffers = 8;
  return Error{
      fmt::format("--huge-pages hugetlbfs: {} pages of 2 MiB are needed (weights {}, cache {}, workspace {}), "
                  "and {} of {} are free; sysctl vm.nr_hugepages={} makes room",
                  needed, HumanBytes(plan.weights), HumanBytes(plan.cache), HumanBytes(plan.workspace + plan.tables),
                  pool.free, pool.total, pool.total - pool.free + needed + layers + kOtherBuffers)};
}

int ThreadCount(const ComputeOptions& options, const Log& log) {
  const int cpus = UsableCpus();
  const int threads = options.threads > 0 ? options.threads : cpus;
  if (threads > 4 * cpus) log->warn("{} threads on {} processors wait for each other", threads, cpus);
  return threads;
}

std::unique_ptr<Executor> MakePool(const ComputeOptions& options, int threads) {
  if (options.numa == "off") return MakeThreadPool(threads);
  return MakeThreadPool(threads, ReadNumaNodes(AllowedCpus()));
}

}  // namespace mla::cli
