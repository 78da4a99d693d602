// From opened files to what computes: planned, refused where memory lacks, loaded with progress on stderr.
#ifndef MLA_CLI_LOAD_H_
#define MLA_CLI_LOAD_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/cpu_info.h"
#include "cli/compute_options.h"
#include "mla/engine.h"
#include "mla/result.h"
#include "model/model.h"
#include "reference/reference.h"

namespace mla::cli {

// The model, its weights kept as the options say; the caller has seen to memory.
Result<std::unique_ptr<Model>> LoadModel(const ComputeOptions& options, const model::Opened& opened,
                                         Executor& executor);

struct LoadedEngine {
  std::unique_ptr<Executor> pool;
  std::unique_ptr<Model> model;
  std::unique_ptr<Engine> engine;  // the last: it refers to the others
};

// An engine for one sequence of `context` tokens. Fails, before anything is loaded, where the plan passes the limit;
// `context_flag` is what the message names beside --weights and --memory. The table of forms is ChooseFormTable's.
Result<LoadedEngine> LoadEngine(const ComputeOptions& options, const model::Opened& opened, std::int64_t context,
                                int threads, std::string_view context_flag, const Log& log);

// The same, for an engine of any options but the table.
Result<LoadedEngine> LoadEngine(const ComputeOptions& options, const model::Opened& opened,
                                EngineOptions engine_options, int threads, std::string_view context_flag,
                                const Log& log);

// A warning for each instruction set that is done without since it failed its self-test, `used` being what is used
// instead. Returns how many.
std::int64_t WarnOfRejectedKernels(std::span<const RejectedKernels> rejected, const char* used, const Log& log);
std::int64_t WarnOfRejectedKernels(const Engine& engine, const Log& log);

// The instruction set asked for, or the fastest that passes its self-test; the others as above.
Result<Isa> UsableIsa(const ComputeOptions& options, const Log& log);

struct LoadedReference {
  reference::ReferenceModel model;
  MemoryPlan plan;
};

// The float64 reference, for sequences of at most `context` tokens appended in pieces of at most prefill_chunk. Fails
// where 8 bytes a parameter, the keys and values of every head and a piece's logits don't fit the limit.
Result<LoadedReference> LoadReference(const ComputeOptions& options, const model::Opened& opened, std::int64_t context);

}  // namespace mla::cli

#endif  // MLA_CLI_LOAD_H_
