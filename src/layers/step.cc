#include "layers/step.h"

#include <algorithm>

#include "ops/routing.h"

namespace mla::layers {

namespace {

// Of the product with the largest input; the experts of a step, shared ones too, have theirs side by side, each rounded
// up to whole tiles.
std::int64_t InputBytes(const contract::ModelConfig& c, std::int64_t rows, bool mtp) {
  const std::int64_t widest = std::max({mtp ? 2 * c.hidden_size : c.hidden_size, c.q_lora_rank.value_or(0),
                                        c.intermediate_size, c.num_attention_heads * c.v_head_dim});
  std::int64_t bytes = ops::PackedInputBytes(rows, widest);
  if (c.moe) {
    const contract::MoeConfig& m = *c.moe;
    const std::int64_t chosen = rows * m.num_experts_per_tok;
    const std::int64_t padded = chosen + std::min(chosen, m.n_routed_experts) * (ops::kPackRows - 1);
    const std::int64_t shared = m.n_shared_experts > 0 ? rows : 0;
    bytes =
        std::max({bytes, ops::PackedInputBytes(padded, c.hidden_size) + ops::PackedInputBytes(shared, c.hidden_size),
                  ops::PackedInputBytes(padded, m.moe_intermediate_size) +
                      ops::PackedInputBytes(shared, m.moe_intermediate_size * m.n_shared_experts)});
  }
  return bytes;
}

}  // namespace

void PlaceWorkspace(const contract::ModelConfig& config, const StepLimits& limits, Carver* carver, Workspace* out) {
  const std::int64_t t = limits.max_rows;
  const std::int64_t q_width = config.num_attention_heads * (config.qk_nope_head_dim + config.qk_rope_head_dim);
  out->x = carver->Take<float>(t * config.hidden_size);
  out->normed = carver->Take<float>(t * config.hidden_size);
  if (limits.mtp) out->mtp_in = carver->Take<float>(t * 2 * config.hidden_size);
  out->q_a_kv_a =
      carver->Take<float>(t * (config.q_lora_rank.value_or(q_width) + config.kv_lora_rank + config.qk_rope_head_dim));
  out->q = carver->Take<float>(t * q_width);
  out->attended = carver->Take<float>(t * config.num_attention_heads * config.v_head_dim);
  std::int64_t activated = config.intermediate_size;
  if (config.moe) {
    const contract::MoeConfig& m = *config.moe;
    const std::int64_t k = m.num_experts_per_tok;
    activated = std::max(activated, (k + m.n_shared_experts) * m.moe_intermediate_size);
    out->slot_out = carver->Take<float>(t * k * config.hidden_size);
    out->router_logits = carver->Take<float>(t * m.n_routed_experts);
    out->router_scratch = carver->Take<float>(limits.workers * ops::RouteScratch(m.n_routed_experts, m.n_group));
    out->expert = carver->Take<std::int32_t>(t * k);
    out->expert_weight = carver->Take<float>(t * k);
    out->sorted_token = carver->Take<std::int32_t>(t * k);
    out->sorted_slot = carver->Take<std::int32_t>(t * k);
    out->expert_begin = carver->Take<std::int32_t>(m.n_routed_experts + 1);
    out->products = carver->Take<ops::GemmProblem>(m.n_routed_experts + 1);
  }
  out->activated = carver->Take<float>(t * activated);
  out->gemm = ops::GemmMemory::Place(limits.workers, InputBytes(config, t, limits.mtp), carver);
}

}  // namespace mla::layers
