#include "bench/model_bench.h"

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "base/clock.h"
#include "engine/limits.h"

namespace mla::bench {
namespace {

constexpr std::int64_t kUntimed = 2;  // tokens of output: the prompt's own, and one to warm up

std::int64_t Held(const ModelBenchOptions& o) { return std::max<std::int64_t>(1, o.context); }

Request RandomRequest(std::int64_t prompt, std::int64_t max_tokens, std::int64_t vocab, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Request request;
  request.max_tokens = max_tokens;
  for (std::int64_t i = 0; i < prompt; ++i) {
    request.prompt.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab)));
  }
  return request;
}

// Steps until `tokens` of output are there. Returns seconds.
Result<double> StepUntil(Engine& engine, SequenceId id, std::size_t tokens) {
  const auto begin = Clock::now();
  while (engine.Get(id).logprobs.size() < tokens) {
    if (!engine.Step()) return Error{"cache: no page is left"};
    const SequenceView view = engine.Get(id);
    if (view.finish == FinishReason::kNotFinite) return engine::NotFiniteError(std::ssize(view.ids));
  }
  return Since(begin);
}

// The profiles of runs, one after another, where the engine has any.
class Profiles {
 public:
  explicit Profiles(Engine* engine) : engine_(*engine), wanted_(engine->options().profile) {}

  void Begin() {
    if (wanted_) engine_.ResetProfile();
  }
  void End() {
    if (wanted_) runs_.push_back(engine_.profile());
  }
  std::optional<ProfileResult> Summarised(const ModelBenchOptions& o) const {
    if (!wanted_) return std::nullopt;
    return SummariseSteps(o.dims, {}, runs_, o.workers);
  }

 private:
  Engine& engine_;
  bool wanted_;
  std::vector<StepProfile> runs_;
};

Status TimeOutput(Engine& engine, const ModelBenchOptions& o, ModelBenchResult* result) {
  MLA_ASSIGN_OR_RETURN(const SequenceId id,
                       engine.Submit(RandomRequest(Held(o), o.tokens + kUntimed, o.vocab_size, 1)));
  MLA_RETURN_IF_ERROR(StepUntil(engine, id, kUntimed));
  std::vector<double> seconds;
  Profiles profiles(&engine);
  for (std::int64_t i = 1; i <= o.tokens; ++i) {
    profiles.Begin();
    MLA_ASSIGN_OR_RETURN(const double step, StepUntil(engine, id, static_cast<std::size_t>(kUntimed + i)));
    seconds.push_back(step);
    profiles.End();
  }
  engine.Release(id);
  result->step_seconds = Summarise(seconds);
  result->step_profile = profiles.Summarised(o);
  return {};
}

Status TimePrompts(Engine& engine, const ModelBenchOptions& o, ModelBenchResult* result) {
  std::vector<double> seconds;
  Profiles profiles(&engine);
  for (std::int64_t i = 0; i <= o.repeats; ++i) {
    const Request request = RandomRequest(o.prompt, 1, o.vocab_size, static_cast<std::uint64_t>(2 + i));
    MLA_ASSIGN_OR_RETURN(const SequenceId id, engine.Submit(request));
    profiles.Begin();
    MLA_ASSIGN_OR_RETURN(const double prompt, StepUntil(engine, id, 1));
    if (i > 0) {
      seconds.push_back(prompt);
      profiles.End();
    }
    result->prompt_form = engine.Get(id).prompt_form;
    engine.Release(id);
  }
  result->prompt_seconds = Summarise(seconds);
  result->prompt_profile = profiles.Summarised(o);
  return {};
}

}  // namespace

std::int64_t ContextNeeded(const ModelBenchOptions& o) { return std::max(Held(o) + o.tokens + kUntimed, o.prompt + 1); }

Result<ModelBenchResult> BenchModel(Engine& engine, const ModelBenchOptions& options) {
  ModelBenchResult result;
  MLA_RETURN_IF_ERROR(TimeOutput(engine, options, &result));
  MLA_RETURN_IF_ERROR(TimePrompts(engine, options, &result));
  return result;
}

}  // namespace mla::bench
