// A model's speed through the engine: output of one sequence or several at once, and prompts, one at a time.
#ifndef MLA_BENCH_MODEL_BENCH_H_
#define MLA_BENCH_MODEL_BENCH_H_

#include <cstdint>
#include <optional>

#include "bench/least.h"
#include "bench/measure.h"
#include "bench/profile.h"
#include "mla/engine.h"
#include "mla/result.h"

namespace mla::bench {

struct ModelBenchOptions {
  std::int64_t context = 0;    // tokens that a sequence holds before the output that is timed; 0: one
  std::int64_t tokens = 64;    // of each sequence's output, timed step by step
  std::int64_t sequences = 1;  // with prompts of their own, that are decoded in one step each time
  std::int64_t prompt = 512;
  std::int64_t prompt_after = 0;  // tokens whose rows are in the cache before the prompt's
  std::int64_t repeats = 5;       // of the prompt
  // The model's, and the engine's executor's.
  std::int64_t vocab_size = 0;
  MlaDims dims;
  int workers = 1;
};

// What the machine's limits allow for what was timed.
struct LeastResult {
  LeastTime time;
  LeastRates rates;  // around it
};

struct ModelBenchResult {
  Summary step_seconds;    // of a step of output: a token of each sequence
  Summary prompt_seconds;  // of the prompt's steps, to the first token of output
  Form prompt_form = Form::kAbsorbed;
  // Where limits were measured: of the middle one of the timed steps of output (keys grow by one from step to step),
  // and of the prompt.
  std::optional<LeastResult> step_least;
  std::optional<LeastResult> prompt_least;
  // Where the engine has EngineOptions::profile: of a step of output, and of a prompt's steps together.
  std::optional<ProfileResult> step_profile;
  std::optional<ProfileResult> prompt_profile;
};

// Most tokens of a sequence: what the engine's context must hold. The engine holds options.sequences of them.
std::int64_t ContextNeeded(const ModelBenchOptions& options);
// Pages of the cache for all that is held at a time.
std::int64_t PagesNeeded(const ModelBenchOptions& options, std::int64_t page_tokens);

// The machine's limits, to be measured beside a model's times.
struct ModelLimits {
  const LeastModel* model = nullptr;
  LimitMeter* meter = nullptr;
};

// Random prompts, other ones for each sequence and repeat; greedy output, whatever ends a text. Sequences' prompts are
// run one after another, and parked until all are there. One step of output and one prompt go first, untimed. Limits
// are measured before, after, and twice between the timed steps, and likewise for the prompts. Fails as Engine::Submit
// does, where no page is left, where the cache has lost rows that a prompt comes after, where logits are not finite,
// and as LeastOfStep. Precondition: the engine's prefix reuse is on.
Result<ModelBenchResult> BenchModel(Engine& engine, const ModelBenchOptions& options,
                                    const std::optional<ModelLimits>& limits = std::nullopt);

}  // namespace mla::bench

#endif  // MLA_BENCH_MODEL_BENCH_H_
