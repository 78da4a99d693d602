// One sequence: its tokens, what of them is in the cache, and the form of each position.
#ifndef MLA_ENGINE_SEQUENCE_H_
#define MLA_ENGINE_SEQUENCE_H_

#include <cstdint>
#include <vector>

#include "mla/attention.h"
#include "mla/cache.h"
#include "mla/engine.h"

namespace mla::engine {

// Positions from `begin` on, up to the next run, have this form.
struct FormRun {
  std::int64_t begin = 0;
  Form form = Form::kAbsorbed;
};

struct Sequence {
  SequenceId id = 0;
  Request request;                // its prompt moves to `ids`
  std::vector<std::int32_t> ids;  // reserved to the context
  std::int64_t prompt_size = 0;
  std::int64_t computed = 0;        // positions whose rows are in the cache
  std::vector<std::int32_t> pages;  // of positions [0, computed) and of the step at hand; reserved
  std::vector<FormRun> forms;       // by ascending begin, the first 0; the last holds to the end
  std::vector<float> logprobs;
  std::vector<float> prompt_logprobs;
  FinishReason finish = FinishReason::kNone;

  std::int64_t size() const { return static_cast<std::int64_t>(ids.size()); }
  Form FormAt(std::int64_t position) const;
  // One past the last position after `position` with the same form, at most `end`.
  std::int64_t FormEnd(std::int64_t position, std::int64_t end) const;
};

// The forms of a sequence admitted with a donor whose first `common` positions are its own: those keep the donor's
// forms, all of them, whether their pages are shared or (past the last whole page, or given back) run again, so that no
// bit depends on page size or on how far the donor had got. The rest of the prompt and the output by mode, the prompt's
// in auto by the cost of what follows `common`. Rule 1 of docs/design.md: fixed here, for good.
std::vector<FormRun> AssignForms(Mode mode, const FormTable& table, const MlaDims& dims, std::int64_t prompt_size,
                                 const Sequence* donor, std::int64_t common);

}  // namespace mla::engine

#endif  // MLA_ENGINE_SEQUENCE_H_
