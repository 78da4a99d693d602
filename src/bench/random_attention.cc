#include "bench/random_attention.h"

#include <cmath>
#include <cstddef>
#include <iterator>
#include <vector>

#include "base/parallel.h"
#include "bench/random_fill.h"
#include "bench/random_weights.h"

namespace mla::bench {

std::int64_t KvBElements(const MlaDims& d) {
  return d.num_attention_heads * (d.qk_nope_head_dim + d.v_head_dim) * d.kv_lora_rank;
}

Result<KvBWeights> RandomKvB(const MlaDims& dims, WeightDType keep, float* drawn, Executor& executor) {
  FillNormal(drawn, KvBElements(dims), TensorKey(1, "kv_b"), executor);
  const float size = 1 / std::sqrt(static_cast<float>(dims.kv_lora_rank));
  for (std::int64_t i = 0; i < KvBElements(dims); ++i) drawn[i] *= size;
  return KvBWeights::Pack(dims, DType::kF32, reinterpret_cast<const std::byte*>(drawn), keep, executor);
}

void FillCacheRows(const CacheLayerView& layer, Executor& executor) {
  constexpr std::int64_t kDrawn = 1024;
  const std::int64_t width = layer.latent_elements + layer.rope_elements;
  std::vector<float> drawn(static_cast<std::size_t>(kDrawn * width));
  FillNormal(drawn.data(), std::ssize(drawn), TensorKey(1, "rows"), executor);
  ParallelFor(executor, layer.pages, [&](std::int64_t page, int /*worker*/) {
    for (std::int64_t slot = page * layer.page_tokens; slot < (page + 1) * layer.page_tokens; ++slot) {
      const float* row = drawn.data() + slot % kDrawn * width;
      WriteCacheRow(layer, slot, row, row + layer.latent_elements);
    }
  });
}

}  // namespace mla::bench
