#include "attention/profile.h"

#include <algorithm>

#include "attention/bf16_block.h"
#include "attention/kv_b.h"

namespace mla {

const char* AttentionPhaseName(AttentionPhase phase) {
  constexpr const char* kNames[kAttentionPhases] = {"absorb", "pack",   "attend", "merge",     "project",
                                                    "load",   "expand", "round",  "mha attend"};
  return kNames[static_cast<std::size_t>(phase)];
}

namespace attention {
namespace {

// Pairs that kernels compute for a block of rows, of which row r sees the first keys_of(r) keys, no fewer than the rows
// before it; keys stand at a tile's border.
template <class KeysOf>
std::int64_t Computed(const StepContext& step, std::int64_t rows, const KeysOf& keys_of) {
  if (!UsesBf16(step)) return rows * RoundUp(keys_of(rows - 1), kTileKeys);
  constexpr std::int64_t kGroupRows = kBf16Group * kBf16Tile;
  std::int64_t computed = 0;
  for (std::int64_t begin = 0; begin < rows; begin += kGroupRows) {
    const std::int64_t count = std::min(kGroupRows, rows - begin);
    computed += RoundUp(count, kBf16Tile) * RoundUp(keys_of(begin + count - 1), kBf16Step);
  }
  return computed;
}

std::int64_t BytesOf(std::span<const ops::PackedMatrix> matrices) {
  std::int64_t bytes = 0;
  for (const ops::PackedMatrix& m : matrices) bytes += m.bytes();
  return bytes;
}

std::int64_t ElementBytes(const StepContext& step) { return UsesBf16(step) ? 2 : 4; }

}  // namespace

void CountCall(const StepContext& step, std::span<const AttentionSequence> sequences, double seconds) {
  AttentionProfile& profile = step.measured->profile;
  ++profile.calls;
  profile.seconds += seconds;
  profile.weight_bytes_read = step.measured->products.weight_bytes;
  profile.weight_conversions = step.measured->products.conversions;
  bool forms[2] = {false, false};
  for (const AttentionSequence& s : sequences) {
    if (s.rows == 0) continue;
    profile.cache_bytes_needed += s.keys * step.cache.row_bytes;
    forms[static_cast<std::size_t>(s.form)] = true;
  }
  const KvBWeights::Impl& w = step.weights;
  if (forms[static_cast<std::size_t>(Form::kAbsorbed)]) profile.weight_bytes_needed += BytesOf(w.absorb);
  if (forms[static_cast<std::size_t>(Form::kMha)]) profile.weight_bytes_needed += BytesOf(w.expand);
  if (forms[0] || forms[1]) profile.weight_bytes_needed += BytesOf(w.value);
}

void CountParts(const StepContext& step, std::span<const Part> parts) {
  AttentionProfile& profile = step.measured->profile;
  const MlaDims& d = step.dims;
  const std::int64_t h = d.num_attention_heads;
  for (const Part& part : parts) {
    profile.absorbed_rows += part.rows;
    for (std::int64_t row = 0; row < part.rows; ++row) profile.absorbed_pairs += h * (part.first_position + row + 1);
    for (std::int64_t begin = 0; begin < part.states; begin += part.block) {
      const std::int64_t count = std::min(part.block, part.states - begin);
      const auto keys_of = [&](std::int64_t r) { return part.first_position + (begin + r) / h + 1; };
      profile.absorbed_computed += Computed(step, count, keys_of);
      profile.cache_bytes_read += keys_of(count - 1) * step.cache.row_bytes;
    }
    constexpr std::int64_t kWays = 2;  // there and back
    const std::int64_t state_bytes = (d.kv_lora_rank + 2) * static_cast<std::int64_t>(sizeof(float));
    if (part.partial >= 0) profile.kept_bytes += kWays * part.states * part.segments * state_bytes;
  }
}

void CountExpanded(const StepContext& step, const Piece& piece) {
  AttentionProfile& profile = step.measured->profile;
  const MlaDims& d = step.dims;
  const std::int64_t keys = piece.keys - piece.kept;
  profile.expanded += keys * piece.heads;
  profile.cache_bytes_read += keys * step.cache.row_bytes;
  profile.kept_bytes += keys * piece.heads * (d.qk_nope_head_dim + d.v_head_dim) * ElementBytes(step);
}

void CountAttended(const StepContext& step, const Piece& piece, std::int64_t block) {
  AttentionProfile& profile = step.measured->profile;
  const MlaDims& d = step.dims;
  const AttentionSequence& s = piece.sequence;
  const auto seen = [&](std::int64_t row) {
    return std::clamp<std::int64_t>(s.keys - s.rows + row + 1 - piece.first, 0, piece.keys);
  };
  for (std::int64_t row = 0; row < s.rows; ++row) profile.mha_pairs += piece.heads * seen(row);
  for (std::int64_t begin = 0; begin < s.rows; begin += block) {
    const std::int64_t count = std::min(block, s.rows - begin);
    const std::int64_t keys = seen(begin + count - 1);
    profile.mha_computed += piece.heads * Computed(step, count, [&](std::int64_t r) { return seen(begin + r); });
    profile.kept_bytes += piece.heads * keys * (d.qk_nope_head_dim + d.v_head_dim) * ElementBytes(step);
  }
}

}  // namespace attention
}  // namespace mla
