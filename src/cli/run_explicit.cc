#include "cli/run_explicit.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "cli/load.h"
#include "engine/limits.h"
#include "reference/reference.h"
#include "sampler/sampler.h"

namespace mla::cli {
namespace {

struct Loop {
  const reference::ReferenceModel& model;
  const Request& request;
  std::int64_t context;
  sampler::Sampler sampler;
  std::vector<float> row;  // the sampler's logits: only the choice is made in float
};

// Chooses the next token from a row of logits; the finish reason where it is the last.
FinishReason Choose(Loop& loop, std::span<const double> logits, std::vector<std::int32_t>* ids, RunReport* report) {
  std::int32_t id = 0;
  const SamplingParams& sampling = loop.request.sampling;
  const bool as_they_are = loop.request.logit_bias.empty() && sampling.repetition_penalty == 1 &&
                           sampling.presence_penalty == 0 && sampling.frequency_penalty == 0;
  if (sampling.temperature == 0 && as_they_are) {
    id = static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  } else {
    std::transform(logits.begin(), logits.end(), loop.row.begin(), [](double x) { return static_cast<float>(x); });
    id = loop.sampler.Choose(sampling, loop.request.logit_bias, loop.row, *ids,
                             static_cast<std::int64_t>(loop.request.prompt.size()), ids->size());
  }
  ids->push_back(id);
  report->ids.push_back(id);
  report->logprobs.push_back(sampler::LogProbability(logits, id));
  if (std::isnan(report->logprobs.back())) return FinishReason::kNotFinite;
  const auto& eos = loop.request.eos_ids;
  if (std::find(eos.begin(), eos.end(), id) != eos.end()) return FinishReason::kEos;
  if (static_cast<std::int64_t>(report->ids.size()) >= loop.request.max_tokens) return FinishReason::kMaxTokens;
  if (static_cast<std::int64_t>(ids->size()) >= loop.context) return FinishReason::kContext;
  return FinishReason::kNone;
}

// Runs the prompt in chunks. Returns the last row's logits; empty where stopped.
std::vector<double> RunPrompt(const Loop& loop, reference::ReferenceModel::State& state, std::int64_t chunk,
                              const std::function<bool()>& stop, RunReport* report) {
  const std::vector<std::int32_t>& prompt = loop.request.prompt;
  const auto vocab = static_cast<std::size_t>(loop.model.config().vocab_size);
  std::vector<double> last;
  for (std::size_t at = 0; at < prompt.size();) {
    const std::size_t count = std::min(prompt.size() - at, static_cast<std::size_t>(chunk));
    const std::vector<double> logits =
        loop.model.Append(state, std::span<const std::int32_t>(prompt).subspan(at, count), nullptr, stop);
    if (logits.empty()) return {};
    for (std::size_t i = 0; i < count && loop.request.prompt_logprobs && at + i + 1 < prompt.size(); ++i) {
      report->prompt_logprobs.push_back(
          sampler::LogProbability(std::span<const double>(logits).subspan(i * vocab, vocab), prompt[at + i + 1]));
    }
    last.assign(logits.end() - static_cast<std::ptrdiff_t>(vocab), logits.end());
    at += count;
  }
  return last;
}

}  // namespace

Result<bool> RunExplicit(const ExplicitRun& run, const std::function<bool()>& stop, Streamer& streamer,
                         RunReport* report) {
  const contract::ModelConfig& config = run.opened.config;
  for (const std::int32_t id : run.request.prompt) {
    if (id < 0 || id >= config.vocab_size) {
      return Error{fmt::format("prompt: expected ids from 0 to {}, found {}", config.vocab_size - 1, id)};
    }
  }
  if (run.request.prompt.empty()) return Error{"prompt: expected at least one token, found none"};
  auto begin = Clock::now();
  const auto lap = [&] {
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - begin).count();
    begin = now;
    return seconds;
  };
  MLA_ASSIGN_OR_RETURN(const LoadedReference loaded, LoadReference(run.options, run.opened, run.context));
  const reference::ReferenceModel& model = loaded.model;
  report->memory = loaded.plan;
  report->load_seconds = lap();
  report->kernels = "float64 reference";
  report->prompt_form = "explicit";
  report->threads = 1;
  report->context = run.context;
  report->rope_fingerprint = RopeFingerprint(run.opened.config.rope, run.context);

  Loop loop{model, run.request, run.context, sampler::Sampler(config.vocab_size),
            std::vector<float>(static_cast<std::size_t>(config.vocab_size))};
  auto state = model.NewState();
  std::vector<double> logits = RunPrompt(loop, state, run.options.prefill_chunk, stop, report);
  report->prompt_seconds = lap();
  std::vector<std::int32_t> ids = run.request.prompt;
  FinishReason finish = run.request.max_tokens == 0 && !logits.empty() ? FinishReason::kMaxTokens : FinishReason::kNone;
  while (finish == FinishReason::kNone && !logits.empty()) {
    finish = Choose(loop, logits, &ids, report);
    if (finish == FinishReason::kNotFinite) break;
    MLA_RETURN_IF_ERROR(streamer.Push(ids.back()));
    if (finish == FinishReason::kNone) {
      logits = model.Append(state, std::span<const std::int32_t>(&ids.back(), 1), nullptr, stop);
    }
  }
  report->decode_seconds = lap();
  if (!report->logprobs.empty() && std::isnan(report->logprobs.back())) {
    return engine::NotFiniteError(static_cast<std::int64_t>(ids.size()) - 1);
  }
  report->finish_reason = finish == FinishReason::kNone ? "interrupt" : FinishReasonName(finish);
  return finish == FinishReason::kNone;
}

}  // namespace mla::cli
