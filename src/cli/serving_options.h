// Flags of what serves many requests at once: how many, how long, and what they share.
#ifndef MLA_CLI_SERVING_OPTIONS_H_
#define MLA_CLI_SERVING_OPTIONS_H_

#include <cstdint>
#include <string>

#include "cli/compute_options.h"
#include "mla/engine.h"

namespace CLI {
class App;
}

namespace mla::cli {

struct ServingOptions {
  std::int64_t ctx = 0;  // 0: the model's
  std::int64_t max_sequences = 16;
  std::int64_t cache_pages = 0;
  std::string prefix_reuse = "all";
};

// --draft and --draft-tokens.
void AddDraftFlags(CLI::App& command, ComputeOptions* options);
// Those, and --ctx, --max-sequences, --cache-pages, --prefix-reuse.
void AddServingFlags(CLI::App& command, ServingOptions* serving, ComputeOptions* compute);

// Options of an engine for a model of `most` positions. Fails where --ctx is more.
Result<EngineOptions> ServingEngineOptions(const ServingOptions& serving, const ComputeOptions& compute,
                                           std::int64_t most);
// What a message names where the plan passes the memory.
inline constexpr const char* kServingSizeFlags = "--ctx, --max-sequences, --cache-pages";

}  // namespace mla::cli

#endif  // MLA_CLI_SERVING_OPTIONS_H_
