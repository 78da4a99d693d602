// Which rows a step runs, and the pages that sequences hold for them.
#ifndef MLA_ENGINE_STEP_PLAN_H_
#define MLA_ENGINE_STEP_PLAN_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/limits.h"
#include "engine/sequence.h"
#include "mla/attention.h"
#include "mla/cache.h"

namespace mla::engine {

// The rows of one step: row i is token ids[i] at positions[i], stored in slots[i].
struct StepPlan {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> positions;
  std::vector<std::int64_t> slots;           // page * page_tokens + token of the page
  std::vector<AttentionSequence> sequences;  // each sequence's range of rows, in order of admission
  std::vector<Sequence*> in_step;            // [sequences.size()] whose rows they are
  std::int64_t prompt_rows = 0;
  std::int64_t generated_rows = 0;

  // Room for any step of these sizes: planning allocates nothing.
  void Reserve(const Sizes& sizes);
};

// Plans a step over all unfinished sequences, in order of admission: of each the next rows of one form, at most a chunk
// and as far as pages go, which are taken from the pool; one row is kept for every later sequence. A sequence for which
// there is no page is left out. Precondition: pages of the sequences are reserved to their full length.
void PlanStep(const Sizes& sizes, std::span<const std::unique_ptr<Sequence>> sequences, PagePool* pool, StepPlan* plan);

// Positions of the longest common prefix of a donor and a sequence that has computed nothing; one is left to run.
std::int64_t CommonPrefix(const Sequence& donor, const Sequence& sequence);

// Shares the whole pages of the common prefix, as far as the donor has computed them: their rows need not be run.
void SharePages(const Sequence& donor, std::int64_t common, std::int64_t page_tokens, PagePool* pool,
                Sequence* sequence);

// Gives a sequence's pages back; its rows are to be computed again.
void ReleasePages(PagePool* pool, Sequence* sequence);

}  // namespace mla::engine

#endif  // MLA_ENGINE_STEP_PLAN_H_
