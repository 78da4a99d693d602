#include "engine/step_plan.h"

#include <algorithm>

namespace mla::engine {

void StepPlan::Reserve(const Sizes& sizes) {
  const auto rows = static_cast<std::size_t>(sizes.step.max_rows);
  const auto most = static_cast<std::size_t>(sizes.options.max_sequences);
  ids.reserve(rows);
  positions.reserve(rows);
  slots.reserve(rows);
  sequences.reserve(most);
  in_step.reserve(most);
}

namespace {

// Rows that a sequence may run now, at most `room`, with pages taken for them.
std::int64_t NextRows(const Sizes& sizes, std::int64_t room, PagePool* pool, Sequence* s) {
  std::int64_t end = std::min(s->size(), s->computed + std::min(room, sizes.options.prefill_chunk));
  end = s->FormEnd(s->computed, end);
  while (sizes.layout.PagesFor(end) > static_cast<std::int64_t>(s->pages.size())) {
    const std::int32_t page = pool->Take();
    if (page < 0) break;
    s->pages.push_back(page);
  }
  end = std::min(end, static_cast<std::int64_t>(s->pages.size()) * sizes.layout.page_tokens);
  return end - s->computed;
}

void AddRows(std::int64_t page_tokens, std::int64_t rows, Sequence* s, StepPlan* plan) {
  AttentionSequence part;
  part.first_row = static_cast<std::int64_t>(plan->ids.size());
  part.rows = rows;
  part.keys = s->computed + rows;
  part.form = s->FormAt(s->computed);
  part.pages = s->pages;
  for (std::int64_t position = s->computed; position < part.keys; ++position) {
    plan->ids.push_back(s->ids[static_cast<std::size_t>(position)]);
    plan->positions.push_back(static_cast<std::int32_t>(position));
    const std::int64_t page = s->pages[static_cast<std::size_t>(position / page_tokens)];
    plan->slots.push_back(page * page_tokens + position % page_tokens);
    ++(position < s->prompt_size ? plan->prompt_rows : plan->generated_rows);
  }
  plan->sequences.push_back(part);
  plan->in_step.push_back(s);
}

}  // namespace

void PlanStep(const Sizes& sizes, std::span<const std::unique_ptr<Sequence>> sequences, PagePool* pool,
              StepPlan* plan) {
  plan->ids.clear();
  plan->positions.clear();
  plan->slots.clear();
  plan->sequences.clear();
  plan->in_step.clear();
  plan->prompt_rows = 0;
  plan->generated_rows = 0;
  auto waiting = static_cast<std::int64_t>(sequences.size());
  for (const auto& s : sequences) {
    --waiting;
    if (s->finish != FinishReason::kNone) continue;
    const std::int64_t room = sizes.step.max_rows - static_cast<std::int64_t>(plan->ids.size()) - waiting;
    const std::int64_t rows = NextRows(sizes, room, pool, s.get());
    if (rows > 0) AddRows(sizes.layout.page_tokens, rows, s.get(), plan);
  }
}

std::int64_t CommonPrefix(const Sequence& donor, const Sequence& sequence) {
  const std::int64_t most = std::min(sequence.size() - 1, donor.size());
  std::int64_t common = 0;
  while (common < most &&
         donor.ids[static_cast<std::size_t>(common)] == sequence.ids[static_cast<std::size_t>(common)]) {
    ++common;
  }
  return common;
}

void SharePages(const Sequence& donor, std::int64_t common, std::int64_t page_tokens, PagePool* pool,
                Sequence* sequence) {
  const std::int64_t pages = std::min(common, donor.computed) / page_tokens;
  for (std::int64_t i = 0; i < pages; ++i) {
    const std::int32_t page = donor.pages[static_cast<std::size_t>(i)];
    pool->Share(page);
    sequence->pages.push_back(page);
  }
  sequence->computed = pages * page_tokens;
}

void ReleasePages(PagePool* pool, Sequence* sequence) {
  for (const std::int32_t page : sequence->pages) pool->Release(page);
  sequence->pages.clear();
  sequence->computed = 0;
}

}  // namespace mla::engine
