// The whole model over a short sequence, a layer at a time: an exact run, and runs with random roundings beside it,
// whose distance from the exact one says how far a sound engine may be off. Never holds more than a layer's weights.
#ifndef MLA_REFERENCE_STREAMED_H_
#define MLA_REFERENCE_STREAMED_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "contract/config.h"
#include "io/checkpoint.h"
#include "mla/executor.h"
#include "reference/layer.h"

namespace mla::reference {

struct StreamedOptions {
  int rounded_runs = 8;
  Bf16Parts bf16;                 // what the rounded runs keep so
  std::int64_t context = 0;       // that is served (RopeSpec)
  std::int64_t first_logits = 0;  // logits of rows from this one on
  std::function<bool()> stop;     // asked between layers; may be empty
};

struct StreamedResult {
  std::vector<double> logits;  // [rows, vocab] of the exact run
  // [rows]: root mean square, over the rounded runs, of the distance |rounded - exact|_2 of a row's logits. The rounded
  // runs visit the exact run's experts.
  std::vector<double> spread;
  std::vector<Choice> choices;  // [layers] of the exact run; empty for a dense layer
};

// Empty where `stop` said so. Precondition: RequireTensors has passed, fp8 holds usable numbers, ids are in the
// vocabulary. Throws std::bad_alloc. Runs go side by side on the executor; the result does not depend on it.
std::optional<StreamedResult> RunStreamed(const contract::ModelConfig& config, const io::Checkpoint& checkpoint,
                                          std::span<const std::int32_t> ids, const StreamedOptions& options,
                                          Executor& executor);

// Multiply-adds of the exact run of so many tokens with so many rows of logits. A rounded one takes as long, one with
// fp32's errors about three times as long.
double StreamedWork(const contract::ModelConfig& config, std::int64_t tokens, std::int64_t logit_rows);

// Bytes that RunStreamed holds at a time: a layer without its routed experts, one expert, the logits, for each worker.
std::int64_t StreamedBytes(const contract::ModelConfig& config, std::int64_t tokens, std::int64_t logit_rows,
                           int workers);

}  // namespace mla::reference

#endif  // MLA_REFERENCE_STREAMED_H_
