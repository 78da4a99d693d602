// Which rows a step runs.
#ifndef MLA_ENGINE_STEP_PLAN_H_
#define MLA_ENGINE_STEP_PLAN_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/limits.h"
#include "engine/pages.h"
#include "engine/sequence.h"
#include "mla/attention.h"

namespace mla::engine {

// Fewest prompt rows of the MHA form that are worth a part of a step: the whole prefix is expanded again for each
// part (docs/mla.md). A prompt's last rows, and a step that has nothing else, may be fewer.
inline constexpr std::int64_t kLeastMhaRows = 512;

// The rows of one step: row i is token ids[i] at positions[i], stored in slots[i].
struct StepPlan {
  std::vector<PageCopy> copies;  // in this order, before any row is run
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> positions;
  std::vector<std::int64_t> slots;           // page * page_tokens + token of the page
  std::vector<AttentionSequence> sequences;  // each sequence's range of rows
  std::vector<Sequence*> in_step;            // [sequences.size()] whose rows they are
  std::int64_t prompt_rows = 0;
  std::int64_t generated_rows = 0;  // drafts not among them
  std::int64_t draft_rows = 0;

  // Room for any step of these sizes: planning allocates nothing.
  void Reserve(const Sizes& sizes);
};

// Plans a step over all sequences that run. First, in order of admission, each that has one row left to run: that row,
// and of its drafts as many as fit in the page behind it. Then the others in the same order, of each the next rows of
// one form, at most a chunk of rows for all of them together, so that no prompt holds up decoding for longer than a
// chunk; a part of fewer than kLeastMhaRows waits for the next step. Pages are taken as they are needed; a sequence for
// whose next row there is none is left out.
void PlanStep(const Sizes& sizes, std::span<const std::unique_ptr<Sequence>> sequences, Pages* pages, StepPlan* plan);

// Pages that are missing (none free, none idle) for the next step to run a row of every sequence that decodes, and the
// next part of the first other one.
std::int64_t MissingPages(const Sizes& sizes, std::span<const std::unique_ptr<Sequence>> sequences, const Pages& pages);

}  // namespace mla::engine

#endif  // MLA_ENGINE_STEP_PLAN_H_
