// What `mla run` was asked for.
#ifndef MLA_CLI_RUN_OPTIONS_H_
#define MLA_CLI_RUN_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mla/engine.h"
#include "mla/result.h"
#include "mla/tokenizer.h"

namespace CLI {
class App;
}

namespace mla::cli {

struct RunOptions {
  std::string model;
  std::optional<std::string> prompt;
  std::string prompt_file;
  std::optional<std::string> ids;  // "0,3,17"
  bool special = false;            // added tokens in the prompt are parsed
  bool json = false;
  bool prompt_logprobs = false;
  bool ignore_eos = false;
  bool quiet = false;
  std::string mode = "auto";  // or "explicit": the float64 reference
  std::string kv_dtype = "bf16";
  std::string weights = "bf16";
  std::string memory;  // "" for what the machine leaves
  std::int64_t ctx = 0;
  std::int64_t max_tokens = 256;
  std::int64_t prefill_chunk = 512;
  int threads = 0;
  std::string kernels;
  // Sampling flags override the publisher's defaults one by one.
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::uint64_t seed = 0;

  bool is_explicit() const { return mode == "explicit"; }
};

void AddRunFlags(CLI::App& command, RunOptions* options);

// The options as the engine's types. Preconditions: the flags' own checks have passed.
Mode EngineMode(const RunOptions& options);
SamplingParams Sampling(const RunOptions& options, const SamplingParams& defaults);
// Fails on a malformed or absurd size; "" gives what the machine and its cgroups leave.
Result<std::int64_t> MemoryLimit(const RunOptions& options);
// "512", "8G", "1.5GiB", "64MiB" -> bytes.
Result<std::int64_t> ParseSize(const std::string& text);

// The prompt's ids: from --ids as they are; else text, from the argument, the file or stdin, behind one BOS where the
// tokenizer asks for it. An empty prompt is BOS alone. Fails on a text that can't fit the model. `tokenizer` is null
// only with --ids.
Result<std::vector<std::int32_t>> PromptIds(const RunOptions& options, const Tokenizer* tokenizer,
                                            const ModelInfo& model);

}  // namespace mla::cli

#endif  // MLA_CLI_RUN_OPTIONS_H_
