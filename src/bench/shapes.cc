#include "bench/shapes.h"

#include <algorithm>

#include <fmt/format.h>

namespace mla::bench {

std::vector<WeightShape> ProjectionShapes(const contract::ModelConfig& c) {
  const std::int64_t q = c.num_attention_heads * (c.qk_nope_head_dim + c.qk_rope_head_dim);
  const std::int64_t kv_a = c.kv_lora_rank + c.qk_rope_head_dim;
  std::vector<WeightShape> shapes;
  if (c.q_lora_rank) {
    shapes.push_back({"q_a+kv_a", *c.q_lora_rank + kv_a, c.hidden_size});
    shapes.push_back({"q_b", q, *c.q_lora_rank});
  } else {
    shapes.push_back({"q+kv_a", q + kv_a, c.hidden_size});
  }
  shapes.push_back({"o", c.hidden_size, c.num_attention_heads * c.v_head_dim});
  shapes.push_back({"gate_up", 2 * c.intermediate_size, c.hidden_size});
  shapes.push_back({"down", c.hidden_size, c.intermediate_size});
  const std::int64_t head = std::min(c.vocab_size, kHeadRows);
  shapes.push_back({head < c.vocab_size ? fmt::format("lm_head[:{}]", head) : "lm_head", head, c.hidden_size});
  return shapes;
}

}  // namespace mla::bench
