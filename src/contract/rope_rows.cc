#include "contract/rope_rows.h"

#include <fmt/format.h>

#include "base/check.h"

namespace mla::contract {

std::int64_t RopeRows::Source(std::int64_t row, RopeLayout to) const {
  MLA_CHECK(to == RopeLayout::kInterleaved || to == RopeLayout::kHalfSplit);
  const std::int64_t block = (row - first) / stride;
  if (row < first || block >= blocks) return row;
  const std::int64_t begin = first + block * stride;
  const std::int64_t channel = row - begin;
  if (channel >= dim) return row;
  const std::int64_t half = dim / 2;
  if (to == RopeLayout::kInterleaved) return begin + channel / 2 + (channel % 2) * half;
  return begin + channel % half * 2 + channel / half;
}

std::optional<RopeRows> RopeRowsOf(const ModelConfig& config, std::string_view tensor) {
  const std::int64_t rope = config.qk_rope_head_dim;
  if (rope == 0) return std::nullopt;
  if (tensor.ends_with(".self_attn.q_proj.weight") || tensor.ends_with(".self_attn.q_b_proj.weight")) {
    const std::int64_t head = config.qk_nope_head_dim + rope;
    return RopeRows{config.qk_nope_head_dim, head, config.num_attention_heads, rope};
  }
  if (tensor.ends_with(".self_attn.kv_a_proj_with_mqa.weight")) {
    return RopeRows{config.kv_lora_rank, config.kv_lora_rank + rope, 1, rope};
  }
  return std::nullopt;
}

std::optional<std::string> RopeBlockFault(const RopeRows& rows, const Fp8Config& fp8) {
  for (std::int64_t block = 0; block < rows.blocks; ++block) {
    const std::int64_t begin = rows.first + block * rows.stride;
    const std::int64_t last = begin + rows.dim - 1;
    if (begin / fp8.block_rows == last / fp8.block_rows) continue;
    return fmt::format("expected its rope rows {} to {} within one block of {} rows of fp8, found them in two or more",
                       begin, last, fp8.block_rows);
  }
  return std::nullopt;
}

}  // namespace mla::contract
