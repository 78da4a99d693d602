// Runs of an engine, and their comparison bit by bit.
#ifndef MLA_TESTS_ENGINE_HARNESS_H_
#define MLA_TESTS_ENGINE_HARNESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "mla/engine.h"
#include "testing/models.h"

namespace mla::testing {

// Models by name, each made once: "experts", "odd" (sizes that are no multiples of anything), "half_split", "demo", or
// a folder of tests/conformance/data.
const Model& ModelOf(const std::string& name);

// All that a sequence has given.
struct Outcome {
  std::vector<std::int32_t> ids;  // output
  std::vector<float> logprobs;
  std::vector<float> prompt_logprobs;
  FinishReason finish = FinishReason::kNone;
  Form prompt_form = Form::kAbsorbed;
};

Outcome OutcomeOf(const Engine& engine, SequenceId id);

// Steps until every one of the sequences has finished; fails the test where nothing moves before.
void RunAll(Engine* engine, const std::vector<SequenceId>& ids);

// A fresh engine, that request alone.
Outcome Alone(const Model& model, const EngineOptions& options, const Request& request, int threads = 1);

// Equal ids, finish, and bits of every log-probability; names the first place where they differ.
void ExpectSameBits(const Outcome& found, const Outcome& expected, const std::string& what);

// Bits of the output's log-probabilities as the transformer alone gives them, the prompt's rows in runs of
// `prompt_forms` and the output's in `output`.
void ExpectBitsOfForward(const Model& model, const Request& request, const Outcome& found, DType kv_dtype,
                         const std::vector<std::pair<std::int64_t, Form>>& prompt_forms, Form output);

}  // namespace mla::testing

#endif  // MLA_TESTS_ENGINE_HARNESS_H_
