// One step: what is run, and what becomes of its rows of logits.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/clock.h"
#include "engine/draft.h"
#include "engine/engine_impl.h"

namespace mla {

std::int64_t Engine::Impl::DraftLimit(const Sequence& s) const {
  return std::min(sizes.options.draft_tokens, s.most - s.size() - 1);
}

// Guesses for every sequence that runs a row of its output: as many as its throttle, max_tokens and context allow.
void Engine::Impl::Draft() {
  // MTP's were made behind the last step.
  if (sizes.options.drafter != Drafter::kNgram) return;
  for (const auto& s : sequences) {
    s->drafts.clear();
    if (s->runs() && s->decodes()) engine::DraftByNgram(s->ids, s->throttle.Next(DraftLimit(*s)), &s->drafts);
  }
}

void Engine::Impl::CollectLogits(const AttentionSequence& part, Sequence* s) {
  const std::int64_t first_position = part.keys - part.rows;
  for (std::int64_t row = 0; row < part.rows; ++row) {
    const std::int64_t position = first_position + row;
    // A replay after preemption delivers again only what had not been delivered.
    const bool of_prompt = s->request.prompt_logprobs && position + 1 < s->prompt_size &&
                           position >= static_cast<std::int64_t>(s->prompt_logprobs.size());
    const bool of_output = position + 1 >= s->size() && s->request.max_tokens > 0;
    if (!of_prompt && !of_output) continue;
    const auto at = static_cast<std::size_t>(part.first_row + row);
    logit_rows.push_back(static_cast<std::int32_t>(at));
    logit_wants.push_back({s, position, plan.ids[at]});
  }
}

// The log-probability of `id`, and the likeliest tokens beside it. NaN, and nothing told, where the row is no numbers.
float Engine::Impl::Measure(const Sequence& s, std::span<const float> row, std::int32_t id,
                            std::vector<TokenLogprob>* top) {
  const sampler::LogProbabilities<float> all(row);
  const auto logprob = static_cast<float>(all.Of(id));
  if (s.request.top_logprobs == 0 || std::isnan(logprob)) return logprob;
  const auto wanted = std::min(static_cast<std::size_t>(s.request.top_logprobs), row.size());
  top->resize(top->size() + wanted);
  sampler::Likeliest(row, all, std::span(*top).last(wanted));
  return logprob;
}

void Engine::Impl::DeliverPrompt(const LogitWant& want, std::span<const float> row) {
  Sequence* s = want.sequence;
  if (s->finish == FinishReason::kNotFinite) return;
  const float logprob = Measure(*s, row, s->ids[static_cast<std::size_t>(want.position + 1)], &s->top_of_prompt);
  if (std::isnan(logprob)) {
    s->finish = FinishReason::kNotFinite;
    return;
  }
  s->prompt_logprobs.push_back(logprob);
}

void Engine::Impl::DeliverToken(const LogitWant& want, std::span<const float> row) {
  Sequence* s = want.sequence;
  // After a guess that missed, or a guess that ended the sequence, the rows behind it are nobody's.
  const bool stands = want.position + 1 == s->size() && want.id == s->ids[static_cast<std::size_t>(want.position)];
  if (!stands || s->finish != FinishReason::kNone) return;
  const std::int32_t id = sampler.Choose(s->request.sampling, s->request.logit_bias, row, s->ids, s->output_begin(),
                                         static_cast<std::uint64_t>(want.position + 1));
  const float logprob = Measure(*s, row, id, &s->top);
  if (std::isnan(logprob)) {
    s->finish = FinishReason::kNotFinite;
    return;
  }
  s->ids.push_back(id);
  s->logprobs.push_back(logprob);
  const std::vector<std::int32_t>& eos = s->request.eos_ids;
  if (std::find(eos.begin(), eos.end(), id) != eos.end()) {
    s->finish = FinishReason::kEos;
  } else if (static_cast<std::int64_t>(s->logprobs.size()) >= s->request.max_tokens) {
    s->finish = FinishReason::kMaxTokens;
  } else if (s->size() >= s->most) {
    s->finish = FinishReason::kContext;
  }
}

// The prompt's last row is the first of every sample.
void Engine::Impl::DeliverForks(Sequence* parent, const LogitWant& want, std::span<const float> row) {
  for (const auto& s : sequences) {
    if (s->parent != parent) continue;
    s->parent = nullptr;
    if (!s->parked) pages.Share(*parent, parent->prompt_size, s.get());
    s->cached_tokens = parent->prompt_size;
    DeliverToken({s.get(), want.position, want.id}, row);
  }
}

void Engine::Impl::RunLogits() {
  const auto vocab = static_cast<std::size_t>(model.info().vocab_size);
  auto* rows = reinterpret_cast<float*>(logits.data());
  for (std::size_t at = 0; at < logit_rows.size();) {
    const std::size_t count = std::min<std::size_t>(engine::kLogitRows, logit_rows.size() - at);
    transformer->Logits(std::span<const std::int32_t>(logit_rows).subspan(at, count), rows, executor);
    for (std::size_t i = 0; i < count; ++i) {
      const LogitWant& want = logit_wants[at + i];
      const std::span<const float> row(rows + i * vocab, vocab);
      Sequence* s = want.sequence;
      if (want.position + 1 < s->prompt_size) {
        DeliverPrompt(want, row);
        continue;
      }
      const bool first = want.position + 1 == s->prompt_size && s->logprobs.empty();
      DeliverToken(want, row);
      if (first) DeliverForks(s, want, row);
    }
    at += count;
  }
}

// Counts the guesses that held: their rows are the sequence's own. Those of the others will be written over, and are
// read by nobody before.
void Engine::Impl::Settle(Sequence* s) {
  const auto drafted = static_cast<std::int64_t>(s->drafts.size());
  if (drafted > 0) {
    const std::int64_t accepted = std::clamp<std::int64_t>(s->size() - s->computed - 1, 0, drafted);
    s->computed += accepted;
    s->throttle.Tell(drafted, accepted);
    s->drafts.clear();
    stats.accepted += accepted;
  }
}

bool Engine::Step() {
  Impl& impl = *impl_;
  if (!impl.sizes.options.profile) return impl.Step();
  const auto begin = Clock::now();
  if (!impl.Step()) return false;
  ++impl.profiled_steps;
  impl.profiled_seconds += Since(begin);
  return true;
}

bool Engine::Impl::Step() {
  Draft();
  engine::PlanStep(sizes, sequences, &pages, &plan);
  logit_rows.clear();
  logit_wants.clear();
  if (plan.in_step.empty()) {
    for (const auto& s : sequences) s->drafts.clear();
    return false;
  }
  for (const engine::PageCopy& copy : plan.copies) cache.CopyRows(copy.from, copy.to, copy.tokens);
  const layers::Batch batch{plan.ids, plan.positions, plan.slots, plan.sequences};
  transformer->Forward(batch, cache, executor);
  bool mha = false;
  bool absorbed = false;
  for (std::size_t i = 0; i < plan.in_step.size(); ++i) {
    const AttentionSequence& part = plan.sequences[i];
    Sequence* s = plan.in_step[i];
    (part.form == Form::kMha ? mha : absorbed) = true;
    CollectLogits(part, s);
    s->computed = std::min(part.keys, s->size());
    s->drafts.resize(static_cast<std::size_t>(part.keys - s->computed));
    if (s->request.max_tokens == 0 && part.keys == s->size()) s->finish = FinishReason::kMaxTokens;
  }
  ++stats.steps;
  stats.prompt_rows += plan.prompt_rows;
  stats.generated_rows += plan.generated_rows;
  stats.draft_rows += plan.draft_rows;
  stats.mha_steps += mha ? 1 : 0;
  stats.absorbed_steps += absorbed ? 1 : 0;
  RunLogits();
  for (Sequence* s : plan.in_step) Settle(s);
  // Before pages are listed, which may put others with the same rows in their place.
  if (sizes.options.drafter == Drafter::kMtp) DraftByMtp();
  for (Sequence* s : plan.in_step) {
    pages.List(s);
    if (!s->runs() || s->FormAt(s->computed) != Form::kMha) ForgetKept(s);
  }
  return true;
}

}  // namespace mla
