// generation_config.json: end-of-sequence ids and the publisher's default sampling.
#ifndef MLA_CONTRACT_GENERATION_H_
#define MLA_CONTRACT_GENERATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mla/result.h"

namespace mla::contract {

struct GenerationConfig {
  std::vector<std::int64_t> eos_token_ids;  // empty: config.json's serve
  std::optional<std::int64_t> bos_token_id;
  bool do_sample = false;                    // false: greedy, and the values below don't count
  std::optional<double> temperature;         // > 0
  std::optional<std::int64_t> top_k;         // >= 0, 0: off
  std::optional<double> top_p;               // (0, 1]
  std::optional<double> min_p;               // [0, 1]
  std::optional<double> repetition_penalty;  // > 0
};

// Of a text, or of DIR/generation_config.json: a directory without one gives the defaults. Fails on a malformed file, a
// value out of its range or an id outside [0, vocab_size). Fields it does not use are ignored: they steer Hugging
// Face's generate(), not the model.
Result<GenerationConfig> ParseGenerationConfig(std::string_view json_text, std::int64_t vocab_size,
                                               std::string_view where);
Result<GenerationConfig> LoadGenerationConfig(const std::string& dir, std::int64_t vocab_size);

}  // namespace mla::contract

#endif  // MLA_CONTRACT_GENERATION_H_
