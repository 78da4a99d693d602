// Guesses by the checkpoint's multi-token-prediction layer, which runs behind each step.
#include <algorithm>
#include <limits>

#include "engine/engine_impl.h"

namespace mla {

using engine::Sequence;

namespace {

// The largest; where none is (all are NaN), any id will do: a guess is checked.
std::int32_t Likeliest(std::span<const float> logits) {
  float best = -std::numeric_limits<float>::infinity();
  std::size_t id = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > best) {
      best = logits[i];
      id = i;
    }
  }
  return static_cast<std::int32_t>(id);
}

}  // namespace

void engine::MtpRows::Reserve(const Sizes& sizes) {
  const auto rows = static_cast<std::size_t>(sizes.step.max_rows);
  const auto most = static_cast<std::size_t>(sizes.options.max_sequences);
  ids.reserve(rows);
  positions.reserve(rows);
  from.reserve(rows);
  slots.reserve(rows);
  parts.reserve(most);
  owners.reserve(most);
  guessing.reserve(most);
  next.reserve(most);
  last.reserve(most);
}

void engine::MtpRows::Clear() {
  ids.clear();
  positions.clear();
  from.clear();
  slots.clear();
  parts.clear();
  owners.clear();
}

void engine::MtpRows::Begin(Sequence* s, std::int64_t rows, std::int64_t keys, Form form) {
  AttentionSequence part;
  part.first_row = static_cast<std::int64_t>(ids.size());
  part.rows = rows;
  part.keys = keys;
  part.form = form;
  part.pages = s->pages;
  parts.push_back(part);
  owners.push_back(s);
}

void engine::MtpRows::Add(std::int32_t id, std::int64_t position, std::int64_t slot, std::int64_t hidden) {
  ids.push_back(id);
  positions.push_back(static_cast<std::int32_t>(position));
  slots.push_back(slot);
  from.push_back(static_cast<std::int32_t>(hidden));
}

// Every row of the step that stands, with the token after it: what a guess that missed leaves behind is written over,
// as in the model's own layers. A prompt that is run without output has no token after its last: the row gets that last
// one, so that none is missing where another's prompt goes on from here.
void Engine::Impl::CollectMtpRows() {
  mtp.Clear();
  for (std::size_t i = 0; i < plan.in_step.size(); ++i) {
    const AttentionSequence& part = plan.sequences[i];
    Sequence* s = plan.in_step[i];
    const std::int64_t first = part.keys - part.rows;
    if (s->computed <= first) continue;
    mtp.Begin(s, s->computed - first, s->computed, part.form);
    for (std::int64_t position = first; position < s->computed; ++position) {
      const std::int64_t row = part.first_row + position - first;
      const std::int32_t id = s->ids[static_cast<std::size_t>(std::min(position + 1, s->size() - 1))];
      mtp.Add(id, position, plan.slots[static_cast<std::size_t>(row)], row);
    }
  }
}

void Engine::Impl::RunMtpRows() {
  transformer->ForwardMtp({mtp.ids, mtp.positions, mtp.slots, mtp.parts}, mtp.from, cache, executor);
}

// One more guess for each sequence of `guessing`, from the row of MTP's that `last` names.
void Engine::Impl::GuessByMtp() {
  const auto vocab = static_cast<std::size_t>(model.info().vocab_size);
  auto* rows = reinterpret_cast<float*>(logits.data());
  for (std::size_t at = 0; at < mtp.guessing.size();) {
    const std::size_t count = std::min<std::size_t>(engine::kLogitRows, mtp.guessing.size() - at);
    transformer->MtpLogits(std::span<const std::int32_t>(mtp.last).subspan(at, count), rows, executor);
    for (std::size_t i = 0; i < count; ++i) {
      mtp.guessing[at + i].sequence->drafts.push_back(Likeliest({rows + i * vocab, vocab}));
    }
    at += count;
  }
}

// The layer's own output stands in for the next hidden state, and the guess for the next token: the row lies where the
// model's own will, and is written over by it. Where that place is not this sequence's own yet, there are no more
// guesses.
void Engine::Impl::CollectNextGuesses() {
  mtp.Clear();
  mtp.next.clear();
  for (std::size_t i = 0; i < mtp.guessing.size(); ++i) {
    const engine::Guessing& g = mtp.guessing[i];
    Sequence* s = g.sequence;
    const auto made = static_cast<std::int64_t>(s->drafts.size());
    const std::int64_t position = s->computed - 1 + made;
    if (made >= g.wanted || !pages.Owns(*s, position)) continue;
    const std::int64_t page_tokens = sizes.layout.page_tokens;
    const std::int64_t page = s->pages[static_cast<std::size_t>(position / page_tokens)];
    mtp.Begin(s, 1, position + 1, s->FormAt(position));
    mtp.Add(s->drafts.back(), position, page * page_tokens + position % page_tokens, mtp.last[i]);
    mtp.next.push_back(g);
  }
  mtp.guessing.swap(mtp.next);
  mtp.last.clear();
  for (std::size_t i = 0; i < mtp.guessing.size(); ++i) mtp.last.push_back(static_cast<std::int32_t>(i));
}

void Engine::Impl::DraftByMtp() {
  CollectMtpRows();
  if (mtp.ids.empty()) return;
  RunMtpRows();
  mtp.guessing.clear();
  mtp.last.clear();
  for (std::size_t i = 0; i < mtp.owners.size(); ++i) {
    Sequence* s = mtp.owners[i];
    s->drafts.clear();
    if (!s->runs() || !s->decodes()) continue;
    const std::int64_t wanted = s->throttle.Next(DraftLimit(*s));
    if (wanted <= 0) continue;
    mtp.guessing.push_back({s, wanted});
    mtp.last.push_back(static_cast<std::int32_t>(mtp.parts[i].first_row + mtp.parts[i].rows - 1));
  }
  while (!mtp.guessing.empty()) {
    GuessByMtp();
    CollectNextGuesses();
    if (!mtp.guessing.empty()) RunMtpRows();
  }
}

}  // namespace mla
