// A run that begins from a cache file, and one that leaves one.
#ifndef MLA_CLI_RUN_CACHE_H_
#define MLA_CLI_RUN_CACHE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/output.h"
#include "cli/run_options.h"
#include "mla/engine.h"
#include "mla/model.h"
#include "mla/result.h"
#include "mla/tokenizer.h"

namespace mla::cli {

// What is run: all ids, the cache file's first, and how many of the last are output that goes on.
struct RunPrompt {
  std::vector<std::int32_t> ids;
  std::int64_t continued = 0;
};

// The prompt that was asked for. With --load-cache it follows the file's ids, unless it begins with them itself; none
// asked for, the file's output goes on. Fails as PromptIds, and where the file can't be one of this model.
Result<RunPrompt> PromptOf(const RunOptions& options, const Tokenizer* tokenizer, const ModelInfo& model);

// Fails where --save-cache names a place that can't be written: before a run, not after it.
Status CanSave(const RunOptions& options);

// What --load-cache and --save-cache ask for, told in the report. `request`: what was submitted.
Status LoadCacheOf(const RunOptions& options, Engine* engine, RunReport* report);
Status SaveCacheOf(const RunOptions& options, const Request& request, SequenceId id, Engine* engine, RunReport* report);

}  // namespace mla::cli

#endif  // MLA_CLI_RUN_CACHE_H_
