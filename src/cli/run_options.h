// What `mla run` was asked for.
#ifndef MLA_CLI_RUN_OPTIONS_H_
#define MLA_CLI_RUN_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/compute_options.h"
#include "mla/model.h"
#include "mla/result.h"
#include "mla/sampling.h"
#include "mla/tokenizer.h"

namespace CLI {
class App;
}

namespace mla::cli {

struct RunOptions : ComputeOptions {
  std::optional<std::string> prompt;
  std::string prompt_file;
  std::optional<std::string> ids;  // "0,3,17"
  bool special = false;            // added tokens in the prompt are parsed
  bool prompt_logprobs = false;
  bool ignore_eos = false;
  std::string load_cache;  // files; "" for none
  std::string save_cache;
  std::int64_t ctx = 0;
  std::int64_t max_tokens = 256;
  // Sampling flags override the publisher's defaults one by one.
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::uint64_t seed = 0;
};

void AddRunFlags(CLI::App& command, RunOptions* options);
// Those of them that say how long an output is and how its tokens are drawn.
void AddSamplingFlags(CLI::App& command, RunOptions* options);

// The publisher's defaults under what was asked for.
SamplingParams Sampling(const RunOptions& options, const SamplingParams& defaults);

// The prompt's ids: from --ids as they are; else text, from the argument, the file or stdin, behind one BOS where the
// tokenizer asks for it. An empty prompt is BOS alone. Fails on a text that can't fit the model. `tokenizer` is null
// only with --ids.
Result<std::vector<std::int32_t>> PromptIds(const RunOptions& options, const Tokenizer* tokenizer,
                                            const ModelInfo& model);

}  // namespace mla::cli

#endif  // MLA_CLI_RUN_OPTIONS_H_
