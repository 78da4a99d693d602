// How a call's absorbed rows are cut into passes, parts and items of work: a pure function of lengths and limits. No
// bit depends on it: items are whole segments of whole rows, and segments are folded in order in any case.
#ifndef MLA_ATTENTION_ABSORBED_PLAN_H_
#define MLA_ATTENTION_ABSORBED_PLAN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "attention/kernels.h"
#include "mla/attention.h"

namespace mla::attention {

// States that are folded together: 32 KiB of sums at DeepSeek-V3's dims stay in the first cache meanwhile.
inline constexpr std::int64_t kFoldStates = 16;

// A run of one sequence's rows in a pass. Its states are (row, head), heads fastest.
struct Part {
  const AttentionSequence* sequence = nullptr;
  std::int64_t pass_row = 0;  // its first row in the pass
  std::int64_t rows = 0;
  std::int64_t first_position = 0;  // of its first row
  std::int64_t keys = 0;            // that its last row sees
  std::int64_t states = 0;          // rows * heads
  std::int64_t block = 0;           // states of an item
  std::int64_t blocks = 0;
  std::int64_t segments = 0;
  std::int64_t partial = -1;  // where its segments' states are kept apart, or -1: one item folds them as it goes
  std::int64_t run = 1;       // of segments that are kept apart, those of an item: the next one's rows are asked for
  std::int64_t tile = 0;      // its first tile of packed queries

  std::int64_t items() const { return partial >= 0 ? blocks * ((segments + run - 1) / run) : blocks; }
  // Segments of an item, from first_segment(item) to end_segment(item).
  std::int64_t first_segment(std::int64_t item) const { return partial >= 0 ? item / blocks * run : 0; }
  std::int64_t end_segment(std::int64_t item) const {
    return partial >= 0 ? std::min(segments, first_segment(item) + run) : segments;
  }
  // Groups of states whose segments are folded afterwards.
  std::int64_t folds() const { return partial >= 0 ? (states + kFoldStates - 1) / kFoldStates : 0; }
  // Of all items together, and of the largest: tiles of 64 keys by states.
  std::int64_t cost() const { return Tiles() * states; }
  std::int64_t item_cost() const;

 private:
  std::int64_t Tiles() const { return (keys + kTileKeys - 1) / kTileKeys; }
};

struct PlanLimits {
  std::int64_t heads = 1;
  std::int64_t workers = 1;
  std::int64_t pass_rows = 1;       // of all parts together
  std::int64_t partial_states = 0;  // states of single segments that may be kept apart
  std::int64_t block_multiple = 1;  // an item's states, but for the last of a part, are a multiple of it
};

// States kept apart that let a call of any sequences of up to max_keys be shared out well: enough to split the longest
// one, and for several items a worker.
std::int64_t PartialStates(std::int64_t heads, std::int64_t workers, std::int64_t max_keys);

// Where the next pass begins.
struct PassCursor {
  std::size_t sequence = 0;
  std::int64_t row = 0;  // of it
};

// The next pass's parts, those with the largest items first.
struct Pass {
  std::int64_t parts = 0;
  std::int64_t rows = 0;
};

// Takes rows of absorbed sequences from the cursor on until the pass is full: to `parts` and `row_ids`, both
// [pass_rows]. A part is split by segments where an item of it would be more than a share of the pass's work that lets
// workers be equally busy, as far as partial_states allow, the costliest part first. Done when a pass has no rows.
Pass PlanPass(const PlanLimits& limits, std::span<const AttentionSequence> sequences, PassCursor* cursor, Part* parts,
              std::int32_t* row_ids);

}  // namespace mla::attention

#endif  // MLA_ATTENTION_ABSORBED_PLAN_H_
