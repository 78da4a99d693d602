#include "attention/absorbed_plan.h"

#include <algorithm>

#include "attention/scratch.h"

namespace mla::attention {
namespace {

// Items a worker, at least, where work can be cut so: the last ones to end then leave others idle for little.
constexpr std::int64_t kItemsPerWorker = 4;
// Of segments that are kept apart, joined: where an item begins its rows have not been asked for.
constexpr std::int64_t kRunsPerWorker = 2;
constexpr std::int64_t kLeastRun = 2;
// States of a short extend: a part of so many is split by segments however few there are.
constexpr std::int64_t kSplitStates = 256;

std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t SegmentsOf(std::int64_t keys) { return CeilDiv(keys, kSegmentKeys); }

void SetBlock(std::int64_t block, Part* part) {
  part->block = block;
  part->blocks = CeilDiv(part->states, block);
}

// Not std::stable_sort, which allocates: a step does not.
void CostliestFirst(std::span<Part> parts) {
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return a.item_cost() != b.item_cost() ? a.item_cost() > b.item_cost() : a.pass_row < b.pass_row;
  });
}

// Splits a part by segments where an item costs more than `share` and its states find room.
void SplitSegments(std::int64_t share, std::int64_t room, std::int64_t* used, Part* part) {
  const std::int64_t needed = part->states * part->segments;
  if (part->segments == 1 || part->item_cost() <= share || *used + needed > room) return;
  part->partial = *used;
  *used += needed;
}

// Segments kept apart go to an item together, as many as cost `share` at most, or two, and leave workers no later done.
void JoinSegments(std::int64_t share, std::int64_t workers, Part* part) {
  if (part->partial < 0) return;
  const auto rounds = [&](std::int64_t run) {
    return CeilDiv(part->blocks * CeilDiv(part->segments, run), workers) * run;
  };
  const std::int64_t alone = rounds(1);
  const std::int64_t most = std::max(share / part->item_cost(), kLeastRun);
  for (std::int64_t run = std::min(most, part->segments); run > 1; --run) {
    if (rounds(run) > alone) continue;
    part->run = run;
    return;
  }
}

// Halves a part's blocks while an item is more than one worker's part of the pass.
void CutBlocks(const PlanLimits& limits, std::int64_t total, Part* part) {
  while (part->block > 8 && part->item_cost() * limits.workers > total) SetBlock(CeilDiv(part->block, 2), part);
  SetBlock(RoundUp(part->block, limits.block_multiple), part);
}

}  // namespace

std::int64_t Part::item_cost() const {
  const std::int64_t tiles = partial >= 0 ? std::min(Tiles(), run * kSegmentKeys / kTileKeys) : Tiles();
  return tiles * std::min(block, states);
}

std::int64_t PartialStates(std::int64_t heads, std::int64_t workers, std::int64_t max_keys) {
  const std::int64_t segments = SegmentsOf(max_keys);
  if (segments == 1) return 0;
  return std::max(segments * std::max(heads, kSplitStates), kItemsPerWorker * workers * kMaxBlockRows);
}

Pass PlanPass(const PlanLimits& limits, std::span<const AttentionSequence> sequences, PassCursor* cursor, Part* parts,
              std::int32_t* row_ids) {
  Pass pass;
  std::int64_t tiles = 0;
  std::int64_t total = 0;
  for (; cursor->sequence < sequences.size() && pass.rows < limits.pass_rows; ++cursor->sequence, cursor->row = 0) {
    const AttentionSequence& s = sequences[cursor->sequence];
    if (s.form != Form::kAbsorbed || s.rows == 0) continue;
    Part& part = parts[pass.parts++];
    part = Part{};
    part.sequence = &s;
    part.pass_row = pass.rows;
    part.rows = std::min(s.rows - cursor->row, limits.pass_rows - pass.rows);
    part.first_position = s.keys - s.rows + cursor->row;
    part.keys = part.first_position + part.rows;
    part.states = part.rows * limits.heads;
    part.segments = SegmentsOf(part.keys);
    part.tile = tiles;
    SetBlock(std::min(part.states, kMaxBlockRows), &part);
    tiles += Bf16Tiles(part.states);
    total += part.cost();
    for (std::int64_t i = 0; i < part.rows; ++i) {
      row_ids[part.pass_row + i] = static_cast<std::int32_t>(s.first_row + cursor->row + i);
    }
    pass.rows += part.rows;
    cursor->row += part.rows;
    if (cursor->row < s.rows) break;
  }
  const std::span<Part> all(parts, static_cast<std::size_t>(pass.parts));
  CostliestFirst(all);
  std::int64_t used = 0;
  const std::int64_t share = total / (kItemsPerWorker * limits.workers);
  for (Part& part : all) {
    SplitSegments(share, limits.partial_states, &used, &part);
    CutBlocks(limits, total, &part);
    JoinSegments(total / (kRunsPerWorker * limits.workers), limits.workers, &part);
  }
  CostliestFirst(all);
  return pass;
}

}  // namespace mla::attention
