#include "bench/model_bench.h"

#include <algorithm>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "engine/limits.h"

namespace mla::bench {
namespace {

constexpr std::int64_t kUntimed = 2;      // tokens of output: the prompt's own, and one to warm up
constexpr std::int64_t kLimitRounds = 3;  // of repeats, with the limits measured around each

std::int64_t Held(const ModelBenchOptions& o) { return std::max<std::int64_t>(1, o.context); }

std::vector<std::int32_t> RandomIds(std::int64_t count, std::int64_t vocab, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab)));
  }
  return ids;
}

Request RequestOf(std::vector<std::int32_t> prompt, std::int64_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  return request;
}

// Steps until each has `tokens` of output. Returns seconds.
Result<double> StepUntil(Engine& engine, std::span<const SequenceId> ids, std::size_t tokens) {
  const auto begin = Clock::now();
  const auto has = [&](SequenceId id) { return engine.Get(id).logprobs.size() >= tokens; };
  while (!std::all_of(ids.begin(), ids.end(), has)) {
    if (!engine.Step()) return Error{"cache: no page is left"};
    for (const SequenceId id : ids) {
      const SequenceView view = engine.Get(id);
      if (view.finish == FinishReason::kNotFinite) return engine::NotFiniteError(std::ssize(view.ids));
    }
  }
  return Since(begin);
}

Result<double> StepUntil(Engine& engine, SequenceId id, std::size_t tokens) {
  return StepUntil(engine, std::span(&id, 1), tokens);
}

// Times of runs, with what is measured beside them: the engine's profile, where it has one, and limits.
class TimedRuns {
 public:
  TimedRuns(Engine* engine, const ModelBenchOptions& options, const std::optional<ModelLimits>& limits,
            std::int64_t count)
      : engine_(*engine), options_(options), limits_(limits), count_(count) {
    if (!limits_) return;
    limits_->meter->Reset();
    limits_->meter->Measure();
  }

  void Begin() {
    if (profiled()) engine_.ResetProfile();
  }
  void End(double seconds) {
    if (profiled()) profiles_.push_back(engine_.profile());
    seconds_.push_back(seconds);
    // After each third; where there are fewer runs, several times after one.
    for (; limits_ && measured_ < std::ssize(seconds_) * kLimitRounds / count_; ++measured_) limits_->meter->Measure();
  }

  Summary seconds() const { return Summarise(seconds_); }
  std::optional<ProfileResult> profile() const {
    if (!profiled()) return std::nullopt;
    return SummariseSteps(options_.dims, {}, profiles_, options_.workers);
  }

 private:
  bool profiled() const { return engine_.options().profile; }

  Engine& engine_;
  const ModelBenchOptions& options_;
  const std::optional<ModelLimits>& limits_;
  std::int64_t count_;
  std::int64_t measured_ = 0;
  std::vector<double> seconds_;
  std::vector<StepProfile> profiles_;
};

// Sequences that have one token of output each and go on in step: those that wait for the others' prompts are parked,
// or they would grow meanwhile.
Result<std::vector<SequenceId>> SubmitTogether(Engine& engine, const ModelBenchOptions& o) {
  std::vector<SequenceId> ids;
  for (std::int64_t i = 0; i < o.sequences; ++i) {
    // The first prompt's seed is 1; the others' are past those of the prompts that are timed.
    const auto seed = static_cast<std::uint64_t>(i == 0 ? 1 : 2 + o.repeats + i);
    MLA_ASSIGN_OR_RETURN(const SequenceId id,
                         engine.Submit(RequestOf(RandomIds(Held(o), o.vocab_size, seed), o.tokens + kUntimed)));
    MLA_RETURN_IF_ERROR(StepUntil(engine, id, 1));
    if (o.sequences > 1) engine.Park(id);
    ids.push_back(id);
  }
  if (o.sequences > 1) std::for_each(ids.begin(), ids.end(), [&](SequenceId id) { engine.Resume(id); });
  return ids;
}

Status TimeOutput(Engine& engine, const ModelBenchOptions& o, const std::optional<ModelLimits>& limits,
                  ModelBenchResult* result) {
  MLA_ASSIGN_OR_RETURN(const std::vector<SequenceId> ids, SubmitTogether(engine, o));
  MLA_RETURN_IF_ERROR(StepUntil(engine, ids, kUntimed));
  TimedRuns runs(&engine, o, limits, o.tokens);
  for (std::int64_t i = 1; i <= o.tokens; ++i) {
    runs.Begin();
    MLA_ASSIGN_OR_RETURN(const double step, StepUntil(engine, ids, static_cast<std::size_t>(kUntimed + i)));
    runs.End(step);
  }
  for (const SequenceId id : ids) engine.Release(id);
  result->step_seconds = runs.seconds();
  result->step_profile = runs.profile();
  if (!limits) return {};
  // A timed step's row is of the token before the one that it makes.
  const plan::Step middle{1, Held(o) + kUntimed + o.tokens / 2, o.sequences};
  LeastResult& least = result->step_least.emplace();
  least.rates = limits->meter->Mean();
  MLA_ASSIGN_OR_RETURN(least.time, LeastOfStep(*limits->model, middle, least.rates));
  return {};
}

// Runs `tokens` of a prompt to come, so that their rows are found in the cache.
Status CacheRows(Engine& engine, const std::vector<std::int32_t>& tokens) {
  if (tokens.empty()) return {};
  MLA_ASSIGN_OR_RETURN(const SequenceId id, engine.Submit(RequestOf(tokens, 1)));
  MLA_RETURN_IF_ERROR(StepUntil(engine, id, 1));
  engine.Release(id);
  return {};
}

Status TimePrompts(Engine& engine, const ModelBenchOptions& o, const std::optional<ModelLimits>& limits,
                   ModelBenchResult* result) {
  const std::vector<std::int32_t> cached = RandomIds(o.prompt_after, o.vocab_size, 0);
  MLA_RETURN_IF_ERROR(CacheRows(engine, cached));
  std::optional<TimedRuns> runs;  // begun after the prompt that is not timed
  for (std::int64_t i = 0; i <= o.repeats; ++i) {
    std::vector<std::int32_t> ids = cached;
    const std::vector<std::int32_t> more = RandomIds(o.prompt, o.vocab_size, static_cast<std::uint64_t>(2 + i));
    ids.insert(ids.end(), more.begin(), more.end());
    MLA_ASSIGN_OR_RETURN(const SequenceId id, engine.Submit(RequestOf(std::move(ids), 1)));
    if (const std::int64_t found = engine.Get(id).cached_tokens; found < o.prompt_after) {
      return Error{fmt::format("cache: {} of the {} tokens before the prompt are left", found, o.prompt_after)};
    }
    if (runs) runs->Begin();
    MLA_ASSIGN_OR_RETURN(const double prompt, StepUntil(engine, id, 1));
    if (runs) runs->End(prompt);
    result->prompt_form = engine.Get(id).prompt_form;
    engine.Release(id);
    if (!runs) runs.emplace(&engine, o, limits, o.repeats);
  }
  result->prompt_seconds = runs->seconds();
  result->prompt_profile = runs->profile();
  if (!limits) return {};
  LeastResult& least = result->prompt_least.emplace();
  least.rates = limits->meter->Mean();
  MLA_ASSIGN_OR_RETURN(
      least.time, LeastOfPrompt(*limits->model, o.prompt_after, o.prompt, engine.options().prefill_chunk, least.rates));
  return {};
}

}  // namespace

std::int64_t ContextNeeded(const ModelBenchOptions& o) {
  return std::max(Held(o) + o.tokens + kUntimed, o.prompt_after + o.prompt + 1);
}

std::int64_t PagesNeeded(const ModelBenchOptions& o, std::int64_t page_tokens) {
  const auto pages = [&](std::int64_t tokens) { return (tokens + page_tokens - 1) / page_tokens; };
  // A page of cached tokens that is not full is copied before a prompt goes on in it.
  const std::int64_t copies = o.prompt_after > 0 ? 1 : 0;
  return std::max(o.sequences * pages(Held(o) + o.tokens + kUntimed), pages(o.prompt_after + o.prompt + 1) + copies);
}

Result<ModelBenchResult> BenchModel(Engine& engine, const ModelBenchOptions& options,
                                    const std::optional<ModelLimits>& limits) {
  ModelBenchResult result;
  MLA_RETURN_IF_ERROR(TimeOutput(engine, options, limits, &result));
  MLA_RETURN_IF_ERROR(TimePrompts(engine, options, limits, &result));
  return result;
}

}  // namespace mla::bench
