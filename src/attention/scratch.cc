#include "attention/scratch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

namespace mla::attention {

void PlaceStates(std::int64_t rows, std::int64_t value_dim, Carver* carver, States* out) {
  out->ld = RoundUp(value_dim, 16);
  if (out->ld % 32 == 0) out->ld += 16;
  out->max = carver->Take<float>(rows);
  out->sum = carver->Take<float>(rows);
  out->acc = carver->Take<float>(rows * out->ld);
}

namespace {

void PlaceBf16(const MlaDims& d, Carver* carver, Bf16Scratch* out) {
  const std::int64_t rope = RoundUp(d.qk_rope_head_dim, kBf16Step);
  const std::int64_t width =
      std::max(RoundUp(d.kv_lora_rank, kBf16Step), RoundUp(d.qk_nope_head_dim, kBf16Step)) + rope;
  out->queries = carver->Take<char>(kMaxBlockRows * width * 2);
  out->rows = carver->Take<char>(kBlockKeys * width * 2);
  out->values = carver->Take<char>(kBlockKeys * RoundUp(std::max(d.kv_lora_rank, d.v_head_dim), kBf16Tile) * 2);
  out->kernel = carver->Take<char>(kBf16Scratch);
  for (const char**& runs : out->runs) runs = carver->Take<const char*>(kBlockKeys / kBf16Tile);
  out->next = carver->Take<const char*>(kBlockKeys / kBf16Tile);
}

}  // namespace

void PlaceScratch(const MlaDims& dims, Carver* carver, Scratch* out) {
  const std::int64_t row = dims.kv_lora_rank + dims.qk_rope_head_dim;
  out->ld_rows = RoundUp(row, 16);
  out->rows = carver->Take<float>(kTileKeys * out->ld_rows);
  out->keys =
      carver->Take<float>((std::max(dims.kv_lora_rank, dims.qk_nope_head_dim) + dims.qk_rope_head_dim) * kTileKeys);
  out->scores = carver->Take<float>(kMaxBlockRows * kTileKeys);
  out->visible = carver->Take<std::int32_t>(kMaxBlockRows);
  PlaceStates(kMaxBlockRows, std::max(dims.kv_lora_rank, dims.v_head_dim), carver, &out->segment);
  PlaceBf16(dims, carver, &out->bf16);
}

States Offset(const States& states, std::int64_t row) {
  return {states.max + row, states.sum + row, states.acc + row * states.ld, states.ld};
}

void Clear(const States& states, std::int64_t rows) {
  std::fill_n(states.max, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(states.sum, rows, 0.0F);
  std::fill_n(states.acc, rows * states.ld, 0.0F);
}

float LogSumExp(const States& states, std::int64_t row) {
  if (states.max[row] == -std::numeric_limits<float>::infinity()) return states.max[row];
  return states.max[row] + std::log(states.sum[row]);
}

namespace {

void LoadSegment(const AttentionKernels& kernels, DType dtype, const std::byte* from, float* to, std::int64_t n) {
  if (dtype == DType::kBF16) {
    kernels.widen(reinterpret_cast<const Bf16Bits*>(from), to, n);
  } else if (n > 0) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
  }
}

}  // namespace

const std::byte* RowAt(const CacheLayerView& cache, std::span<const std::int32_t> pages, std::int64_t position) {
  const std::int64_t page = pages[static_cast<std::size_t>(position / cache.page_tokens)];
  MLA_DCHECK(page >= 0 && page < cache.pages);
  return cache.Row(page * cache.page_tokens + position % cache.page_tokens);
}

void LoadRows(const AttentionKernels& kernels, const CacheLayerView& cache, std::span<const std::int32_t> pages,
              std::int64_t first, std::int64_t count, float* latent, std::int64_t ld_latent, float* rope,
              std::int64_t ld_rope) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::byte* row = RowAt(cache, pages, first + i);
    LoadSegment(kernels, cache.dtype, row, latent + i * ld_latent, cache.latent_elements);
    LoadSegment(kernels, cache.dtype, row + cache.rope_offset, rope + i * ld_rope, cache.rope_elements);
  }
}

}  // namespace mla::attention
