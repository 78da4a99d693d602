#include "attention/bf16_block.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace mla::attention {

CachedKeys::CachedKeys(const StepContext& step, std::span<const std::int32_t> pages, std::int64_t keys,
                       const Bf16Scratch& scratch)
    : step_(step),
      pages_(pages),
      keys_(keys),
      scratch_(scratch),
      runs_(step.cache.page_tokens % kBf16Tile == 0),
      direct_(runs_ && step.dims.kv_lora_rank % kBf16Step == 0 && step.dims.qk_rope_head_dim % kBf16Step == 0) {}

const char* CachedKeys::Row(std::int64_t position) const {
  return reinterpret_cast<const char*>(RowAt(step_.cache, pages_, position));
}

// Rows where they lie.
void CachedKeys::Point(std::int64_t first, std::int64_t count, Bf16Keys* keys) const {
  for (std::int64_t run = 0; run < Bf16Tiles(count); ++run) {
    scratch_.runs[0][run] = Row(first + run * kBf16Tile);
    scratch_.runs[1][run] = scratch_.runs[0][run] + step_.cache.rope_offset;
  }
  keys->stride[0] = keys->stride[1] = step_.cache.row_bytes;
}

// Rows copied, each part filled up with zeros.
void CachedKeys::Copy(std::int64_t first, std::int64_t count, Bf16Keys* keys) const {
  const std::int64_t parts[2] = {step_.dims.kv_lora_rank * 2, step_.dims.qk_rope_head_dim * 2};
  const std::int64_t offset[2] = {0, step_.cache.rope_offset};
  char* to = scratch_.rows;
  for (int part = 0; part < 2; ++part) {
    const std::int64_t stride = keys->steps[part] * kBf16Step * 2;
    keys->stride[part] = stride;
    for (std::int64_t i = 0; i < RoundUp(count, kBf16Tile); ++i) {
      if (i % kBf16Tile == 0) scratch_.runs[part][i / kBf16Tile] = to;
      const std::int64_t bytes = i < count ? parts[part] : 0;
      if (bytes > 0) std::memcpy(to, Row(first + i) + offset[part], static_cast<std::size_t>(bytes));
      std::memset(to + bytes, 0, static_cast<std::size_t>(stride - bytes));
      to += stride;
    }
  }
}

// The rows of the block after.
void CachedKeys::LookAhead(std::int64_t first, Bf16Keys* keys) const {
  keys->next = scratch_.next;
  keys->next_runs = runs_ ? Bf16Tiles(std::clamp<std::int64_t>(keys_ - first, 0, kBlockKeys)) : 0;
  keys->next_bytes = kBf16Tile * step_.cache.row_bytes;
  for (std::int64_t run = 0; run < keys->next_runs; ++run) scratch_.next[run] = Row(first + run * kBf16Tile);
}

Bf16Keys CachedKeys::Block(std::int64_t first, std::int64_t count, bool by_key) {
  Bf16Keys keys{};
  keys.count = count;
  keys.runs[0] = scratch_.runs[0];
  keys.runs[1] = scratch_.runs[1];
  keys.steps[0] = Bf16Steps(step_.dims.kv_lora_rank);
  keys.steps[1] = Bf16Steps(step_.dims.qk_rope_head_dim);
  direct_ ? Point(first, count, &keys) : Copy(first, count, &keys);
  LookAhead(first + kBlockKeys, &keys);
  if (by_key) return keys;
  keys.values = scratch_.values;
  keys.value_step = Bf16Tiles(step_.dims.kv_lora_rank) * kBf16TileBytes;
  step_.kernels.bf16->interleave(keys.runs[0], keys.stride[0], count, step_.dims.kv_lora_rank, scratch_.values,
                                 keys.value_step);
  return keys;
}

namespace {

// Elements of a key in tiles of values: pair key / 2 of its step, every second one.
Bf16Bits* ValueAt(char* tile, std::int64_t key, std::int64_t column) {
  return reinterpret_cast<Bf16Bits*>(tile) + key % kBf16Step / 2 * 2 * kBf16Tile + column * 2 + key % 2;
}

bool IsFinite(const Bf16Keys& keys, std::int64_t key, std::int64_t value_dim) {
  constexpr Bf16Bits kExponent = 0x7f80;
  const char* step = keys.values + key / kBf16Step * keys.value_step;
  bool finite = true;
  for (std::int64_t tile = 0; tile < Bf16Tiles(value_dim); ++tile) {
    const Bf16Bits* at = ValueAt(const_cast<char*>(step) + tile * kBf16TileBytes, key, 0);
    for (std::int64_t c = 0; c < kBf16Tile; ++c) finite &= (at[2 * c] & kExponent) != kExponent;
  }
  return finite;
}

// Products of weight 0 and a value that is no number are none: of the keys that some rows see and some do not, those
// with such values are taken out, and the rows that see them made NaN.
class Unfit {
 public:
  Unfit(const Bf16Kernels& kernels, std::int64_t value_dim, char* copy)
      : kernels_(kernels), value_dim_(value_dim), copy_(copy) {}

  void TakeOut(std::int64_t seen_by_all, std::int64_t seen, Bf16Keys* keys) {
    first_ = kNone;
    if (seen_by_all == seen) return;
    // Steps of 32 keys at a time first: nearly always all is well.
    const std::int64_t step = seen_by_all / kBf16Step;
    const std::int64_t bytes = (Bf16Steps(seen) - step) * keys->value_step;
    if (kernels_.all_finite(keys->values + step * keys->value_step, bytes / 2)) return;
    for (std::int64_t key = seen_by_all; key < seen; ++key) {
      if (IsFinite(*keys, key, value_dim_)) continue;
      const std::int64_t steps = Bf16Steps(keys->count);
      if (keys->values != copy_) {
        std::memcpy(copy_, keys->values, static_cast<std::size_t>(steps * keys->value_step));
        keys->values = copy_;
      }
      for (std::int64_t tile = 0; tile < Bf16Tiles(value_dim_); ++tile) {
        char* at = copy_ + key / kBf16Step * keys->value_step + tile * kBf16TileBytes;
        for (std::int64_t c = 0; c < kBf16Tile; ++c) *ValueAt(at, key, c) = 0;
      }
      first_ = std::min(first_, key);
    }
  }

  void Mark(const std::int32_t* visible, std::int64_t rows, const States& state) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      if (visible[r] > first_) state.sum[r] = state.max[r] = std::numeric_limits<float>::quiet_NaN();
    }
  }

 private:
  static constexpr std::int64_t kNone = kBlockKeys;
  const Bf16Kernels& kernels_;
  std::int64_t value_dim_;
  char* copy_;
  std::int64_t first_ = kNone;
};

}  // namespace

void RunBf16Segment(const StepContext& step, const Bf16Rows& rows, std::int64_t begin, std::int64_t end,
                    std::int64_t value_dim, KeySource* source, const Scratch& scratch, const States& state) {
  std::fill_n(state.max, rows.count, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, rows.count, 0.0F);
  Unfit unfit(*step.kernels.bf16, value_dim, scratch.bf16.values);
  for (std::int64_t first = begin; first < end; first += kBlockKeys) {
    const std::int64_t count = std::min(kBlockKeys, end - first);
    for (std::int64_t i = 0; i < rows.count; ++i) {
      scratch.visible[i] =
          static_cast<std::int32_t>(std::clamp<std::int64_t>(rows.PositionOf(i) + 1 - first, 0, count));
    }
    const std::int32_t seen_by_all = scratch.visible[0];
    const bool by_key = rows.count <= step.kernels.bf16->rows_by_key && seen_by_all == count;
    Bf16Keys keys = source->Block(first, count, by_key);
    unfit.TakeOut(seen_by_all, scratch.visible[rows.count - 1], &keys);
    step.kernels.bf16->attend(
        {rows.q, rows.count, keys, scratch.visible, step.scale, value_dim, first == begin, state, scratch.bf16.kernel});
    unfit.Mark(scratch.visible, rows.count, state);
  }
}

}  // namespace mla::attention
