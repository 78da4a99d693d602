// One sequence: its tokens, what of them is in the cache, and the form of each position.
#ifndef MLA_ENGINE_SEQUENCE_H_
#define MLA_ENGINE_SEQUENCE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/draft.h"
#include "mla/attention.h"
#include "mla/cache.h"
#include "mla/engine.h"
#include "mla/prefix_index.h"

namespace mla::engine {

// Positions from `begin` on, up to the next run, have this form.
struct FormRun {
  std::int64_t begin = 0;
  Form form = Form::kAbsorbed;
};

// A row's form is its label in the prefix index.
using FormLabel = PrefixIndex::Label;

struct Sequence {
  SequenceId id = 0;
  Request request;                // its prompt moves to `ids`
  std::vector<std::int32_t> ids;  // reserved to `most`
  std::int64_t prompt_size = 0;
  std::int64_t most = 0;             // tokens that it can come to
  std::int64_t computed = 0;         // positions whose rows are in the cache
  std::vector<std::int32_t> pages;   // of positions [0, computed) and of the step at hand; reserved
  std::int64_t listed_pages = 0;     // the first of them that are in the prefix index
  bool keeps = false;                // attention may keep expanded keys and values of it
  std::int64_t cached_tokens = 0;    // positions that were found in the index at admission
  std::vector<FormRun> forms;        // by ascending begin, the first 0; the last holds to the end
  bool parked = false;               // holds no pages, and is left out of steps
  Sequence* parent = nullptr;        // of a fork that waits for its prompt to be run
  std::vector<std::int32_t> drafts;  // guesses at what follows `ids`; reserved
  DraftThrottle throttle;
  std::vector<float> logprobs;
  std::vector<float> prompt_logprobs;
  std::vector<TokenLogprob> top;            // [output, request.top_logprobs]
  std::vector<TokenLogprob> top_of_prompt;  // [prompt - 1, request.top_logprobs]
  FinishReason finish = FinishReason::kNone;

  std::int64_t size() const { return static_cast<std::int64_t>(ids.size()); }
  // Where its output begins, what of it came with the prompt included.
  std::int64_t output_begin() const { return prompt_size - request.continued; }
  bool runs() const { return finish == FinishReason::kNone && !parked && parent == nullptr; }
  // Whether all that is left to run is the row of its newest token: of the output, or the prompt's last.
  bool decodes() const { return computed + 1 == size(); }
  Form FormAt(std::int64_t position) const;
  // One past the last position after `position` with the same form, at most `end`.
  std::int64_t FormEnd(std::int64_t position, std::int64_t end) const;
  // Appends the labels of positions [begin, end).
  void AppendLabels(std::int64_t begin, std::int64_t end, std::vector<FormLabel>* labels) const;
};

// The forms of a sequence whose first positions were found in the index with the labels `found`: those keep them, so
// that no bit depends on page size. The rest of the prompt and the output by mode, the prompt's in auto by the cost of
// what is left of it. Rule 1 of docs/design.md: fixed here, for good.
std::vector<FormRun> AssignForms(Mode mode, const FormTable& table, const MlaDims& dims, std::int64_t output_begin,
                                 std::span<const FormLabel> found);

}  // namespace mla::engine

#endif  // MLA_ENGINE_SEQUENCE_H_
