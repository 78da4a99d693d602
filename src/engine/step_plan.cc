#include "engine/step_plan.h"

#include <algorithm>

namespace mla::engine {

void StepPlan::Reserve(const Sizes& sizes) {
  const auto rows = static_cast<std::size_t>(sizes.step.max_rows);
  const auto most = static_cast<std::size_t>(sizes.options.max_sequences);
  copies.reserve(most);
  ids.reserve(rows);
  positions.reserve(rows);
  slots.reserve(rows);
  sequences.reserve(most);
  in_step.reserve(most);
}

namespace {

void Clear(StepPlan* plan) {
  plan->copies.clear();
  plan->ids.clear();
  plan->positions.clear();
  plan->slots.clear();
  plan->sequences.clear();
  plan->in_step.clear();
  plan->prompt_rows = 0;
  plan->generated_rows = 0;
  plan->draft_rows = 0;
}

// Token `position` of a sequence, or of its drafts behind it.
std::int32_t IdAt(const Sequence& s, std::int64_t position) {
  return position < s.size() ? s.ids[static_cast<std::size_t>(position)]
                             : s.drafts[static_cast<std::size_t>(position - s.size())];
}

void AddRows(std::int64_t page_tokens, std::int64_t end, Sequence* s, StepPlan* plan) {
  AttentionSequence part;
  part.first_row = static_cast<std::int64_t>(plan->ids.size());
  part.rows = end - s->computed;
  part.keys = end;
  part.form = s->FormAt(s->computed);
  part.pages = s->pages;
  if (part.form == Form::kMha) {
    part.kept_as = static_cast<std::uint64_t>(s->id);
    part.keep = end < s->most && s->FormAt(end) == Form::kMha;
    s->keeps = s->keeps || part.keep;
  }
  for (std::int64_t position = s->computed; position < end; ++position) {
    plan->ids.push_back(IdAt(*s, position));
    plan->positions.push_back(static_cast<std::int32_t>(position));
    const std::int64_t page = s->pages[static_cast<std::size_t>(position / page_tokens)];
    plan->slots.push_back(page * page_tokens + position % page_tokens);
    ++(position < s->prompt_size ? plan->prompt_rows
                                 : (position < s->size() ? plan->generated_rows : plan->draft_rows));
  }
  plan->sequences.push_back(part);
  plan->in_step.push_back(s);
}

// One past the last of the next rows of a sequence that is behind, at most `room` of them.
std::int64_t NextEnd(const Sequence& s, std::int64_t room) {
  return s.FormEnd(s.computed, std::min(s.size(), s.computed + room));
}

}  // namespace

void PlanStep(const Sizes& sizes, std::span<const std::unique_ptr<Sequence>> sequences, Pages* pages, StepPlan* plan) {
  const std::int64_t page_tokens = sizes.layout.page_tokens;
  Clear(plan);
  for (const auto& s : sequences) {
    if (!s->runs() || !s->decodes()) continue;
    if (pages->Prepare(s.get(), s->size(), &plan->copies) == s->computed) continue;
    // Drafts take no page of their own, which others may need; and they have the form of the output, which the last row
    // of a prompt may not have.
    const std::int64_t drafted = s->size() + static_cast<std::int64_t>(s->drafts.size());
    const std::int64_t end = std::min(drafted, static_cast<std::int64_t>(s->pages.size()) * page_tokens);
    AddRows(page_tokens, s->FormEnd(s->computed, end), s.get(), plan);
  }
  std::int64_t room = sizes.options.prefill_chunk;
  for (const auto& s : sequences) {
    if (!s->runs() || s->decodes() || room == 0) continue;
    const std::int64_t wanted = NextEnd(*s, room);
    const std::int64_t worth = std::min(NextEnd(*s, sizes.options.prefill_chunk), s->computed + kLeastMhaRows);
    const bool first = room == sizes.options.prefill_chunk;
    if (!first && s->FormAt(s->computed) == Form::kMha && wanted < worth) continue;
    const std::int64_t end = pages->Prepare(s.get(), wanted, &plan->copies);
    if (end <= s->computed) continue;
    room -= end - s->computed;
    AddRows(page_tokens, end, s.get(), plan);
  }
}

std::int64_t MissingPages(const Sizes& sizes, std::span<const std::unique_ptr<Sequence>> sequences,
                          const Pages& pages) {
  std::int64_t needed = 0;
  bool first = true;
  for (const auto& s : sequences) {
    if (!s->runs()) continue;
    if (s->decodes()) {
      needed += pages.Missing(*s, s->size());
    } else if (first) {
      needed += pages.Missing(*s, NextEnd(*s, sizes.options.prefill_chunk));
      first = false;
    }
  }
  return std::max<std::int64_t>(0, needed - pages.free() - pages.idle());
}

}  // namespace mla::engine
