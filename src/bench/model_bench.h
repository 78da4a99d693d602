// A model's speed through the engine: prompts and output, one sequence at a time.
#ifndef MLA_BENCH_MODEL_BENCH_H_
#define MLA_BENCH_MODEL_BENCH_H_

#include <cstdint>
#include <optional>

#include "bench/measure.h"
#include "bench/profile.h"
#include "mla/engine.h"
#include "mla/result.h"

namespace mla::bench {

struct ModelBenchOptions {
  std::int64_t context = 0;  // tokens that the sequence holds before the output that is timed; 0: one
  std::int64_t tokens = 64;  // of output, timed one by one
  std::int64_t prompt = 512;
  std::int64_t repeats = 5;  // of the prompt
  // The model's, and the engine's executor's.
  std::int64_t vocab_size = 0;
  MlaDims dims;
  int workers = 1;
};

struct ModelBenchResult {
  Summary step_seconds;    // of a token of output
  Summary prompt_seconds;  // from admission to the first token of output
  Form prompt_form = Form::kAbsorbed;
  // Where the engine has EngineOptions::profile: of a step of output, and of a prompt's steps together.
  std::optional<ProfileResult> step_profile;
  std::optional<ProfileResult> prompt_profile;
};

// Most tokens of a sequence: what the engine's context must hold.
std::int64_t ContextNeeded(const ModelBenchOptions& options);

// Random prompts, other ones for each repeat; greedy output, whatever ends a text. One token of output and one prompt
// go first, untimed. Fails as Engine::Submit does, where no page is left, and where logits are not finite.
Result<ModelBenchResult> BenchModel(Engine& engine, const ModelBenchOptions& options);

}  // namespace mla::bench

#endif  // MLA_BENCH_MODEL_BENCH_H_
