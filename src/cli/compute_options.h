// How a model is computed: the flags that mean the same in every subcommand that runs one.
#ifndef MLA_CLI_COMPUTE_OPTIONS_H_
#define MLA_CLI_COMPUTE_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "cli/command.h"
#include "contract/config.h"
#include "mla/engine.h"
#include "mla/memory.h"
#include "mla/result.h"

namespace mla::cli {

// What --tune-table says for no file at all.
inline constexpr const char* kShippedTable = "shipped";

struct ComputeOptions {
  std::string model;
  std::string mode = "auto";  // or "explicit": the float64 reference
  std::string kv_dtype = "bf16";
  std::string weights = "auto";
  std::string memory;  // "" for what the machine leaves
  std::int64_t prefill_chunk = 512;
  std::string keep_expanded;  // a size, or "" for none
  std::string tune_table;     // "" for the cache folder's, or kShippedTable
  std::string draft = "none";
  std::int64_t draft_tokens = 4;
  int threads = 0;
  std::string kernels;
  std::string huge_pages = "auto";
  std::string numa = "auto";
  bool json = false;
  bool quiet = false;

  bool is_explicit() const { return mode == "explicit"; }
};

// MODEL, the first argument.
void AddModelArgument(CLI::App& command, ComputeOptions* options);
// --threads and --kernels.
void AddThreadFlag(CLI::App& command, ComputeOptions* options);
void AddKernelsFlag(CLI::App& command, ComputeOptions* options);
// Those, memory, and how weights and cache are kept.
void AddMachineFlags(CLI::App& command, ComputeOptions* options);
// --tune-table.
void AddTuneTableFlag(CLI::App& command, ComputeOptions* options);
// --keep-expanded.
void AddKeepExpandedFlag(CLI::App& command, ComputeOptions* options);
// Machine flags, the form of the attention, what chooses it, and the prompt's chunks.
void AddComputeFlags(CLI::App& command, ComputeOptions* options);

// Fails, naming --ctx, on more than the model's positions.
Status CheckContext(std::int64_t ctx, std::int64_t most);
// The options as the engine's types. Preconditions: the flags' own checks have passed.
Mode EngineMode(const ComputeOptions& options);
// `context`: most tokens of a sequence.
EngineOptions EngineOptionsOf(const ComputeOptions& options, std::int64_t context);
DType KvDTypeOf(const ComputeOptions& options);
WeightDType WeightsOf(const ComputeOptions& options);
// Of kv_b_proj, and of products that have no fp8 to keep.
WeightDType PlainWeightsOf(const ComputeOptions& options);
// How that keeps the weights of a model of this config, in a word: "fp8", "bf16" or "f32".
const char* KeptWeights(const ComputeOptions& options, const contract::ModelConfig& config);
HugePages HugePagesOf(const ComputeOptions& options);
// Fails on a malformed or absurd size; "" gives what the machine and its cgroups leave, and the reserved huge pages
// where those were asked for.
Result<std::int64_t> MemoryLimit(const ComputeOptions& options);
// Fails where hugetlbfs was asked for and has fewer pages than the plan takes, naming what is needed, free and to set.
Status FitsHugePages(const ComputeOptions& options, const MemoryPlan& plan, std::int64_t layers);
// As asked, or what affinity and cgroups leave; warns where there are far too many.
int ThreadCount(const ComputeOptions& options, const Log& log);
// So many workers, spread over the machine's nodes unless told otherwise.
std::unique_ptr<Executor> MakePool(const ComputeOptions& options, int threads);

}  // namespace mla::cli

#endif  // MLA_CLI_COMPUTE_OPTIONS_H_
