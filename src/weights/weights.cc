#include "weights/weights.h"

#include <cstring>
#include <string>

#include <fmt/format.h>

#include "weights/builder.h"

namespace mla::weights {
namespace {

Mlp BuildMlp(Builder& b, const std::string& prefix, std::int64_t hidden, std::int64_t intermediate) {
  Mlp mlp;
  mlp.intermediate_size = intermediate;
  mlp.gate_up = b.Swiglu(prefix + "gate_proj.weight", prefix + "up_proj.weight", intermediate, hidden);
  mlp.down = b.Product({{prefix + "down_proj.weight", hidden}}, intermediate);
  return mlp;
}

Moe BuildMoe(Builder& b, const contract::ModelConfig& c, const std::string& prefix) {
  const contract::MoeConfig& m = *c.moe;
  Moe moe;
  b.Begin(Part::kRouter);
  moe.router = b.Matrix({prefix + "gate.weight", m.n_routed_experts}, c.hidden_size, ops::PackedFormat::kF32);
  if (m.topk_method == contract::TopkMethod::kNoauxTc) {
    moe.bias = b.Vector(prefix + "gate.e_score_correction_bias", m.n_routed_experts);
  }
  b.Begin(Part::kExperts);
  for (std::int64_t e = 0; e < m.n_routed_experts; ++e) {
    moe.experts.push_back(BuildMlp(b, fmt::format("{}experts.{}.", prefix, e), c.hidden_size, m.moe_intermediate_size));
  }
  b.Begin(Part::kShared);
  if (m.n_shared_experts > 0) {
    moe.shared = BuildMlp(b, prefix + "shared_experts.", c.hidden_size, m.moe_intermediate_size * m.n_shared_experts);
  }
  return moe;
}

Attention BuildAttention(Builder& b, const contract::ModelConfig& c, const std::string& prefix) {
  const MlaDims d = DimsOf(c);
  const std::int64_t q_rows = d.num_attention_heads * (d.qk_nope_head_dim + d.qk_rope_head_dim);
  const std::int64_t kv_rows = d.kv_lora_rank + d.qk_rope_head_dim;
  const std::string kv_a = prefix + "kv_a_proj_with_mqa.weight";
  Attention a;
  b.Begin(Part::kAttention);
  if (c.q_lora_rank) {
    a.q_a_kv_a = b.Product({{prefix + "q_a_proj.weight", *c.q_lora_rank}, {kv_a, kv_rows}}, c.hidden_size);
    a.q_a_norm = b.Vector(prefix + "q_a_layernorm.weight", *c.q_lora_rank);
    a.q_b = b.Product({{prefix + "q_b_proj.weight", q_rows}}, *c.q_lora_rank);
  } else {
    a.q_a_kv_a = b.Product({{prefix + "q_proj.weight", q_rows}, {kv_a, kv_rows}}, c.hidden_size);
  }
  a.kv_a_norm = b.Vector(prefix + "kv_a_layernorm.weight", d.kv_lora_rank);
  b.Begin(Part::kKvB);
  a.kv_b = b.KvB(prefix + "kv_b_proj.weight", d);
  b.Begin(Part::kAttention);
  a.o = b.Product({{prefix + "o_proj.weight", c.hidden_size}}, d.num_attention_heads * d.v_head_dim);
  return a;
}

Layer BuildLayer(Builder& b, const contract::ModelConfig& c, std::int64_t index) {
  const std::string prefix = fmt::format("model.layers.{}.", index);
  Layer layer;
  b.Begin(Part::kNorms);
  layer.input_norm = b.Vector(prefix + "input_layernorm.weight", c.hidden_size);
  layer.attention = BuildAttention(b, c, prefix + "self_attn.");
  b.Begin(Part::kNorms);
  layer.post_attention_norm = b.Vector(prefix + "post_attention_layernorm.weight", c.hidden_size);
  if (c.IsMoeLayer(index)) {
    layer.moe = BuildMoe(b, c, prefix + "mlp.");
  } else {
    b.Begin(Part::kDense);
    layer.dense = BuildMlp(b, prefix + "mlp.", c.hidden_size, c.intermediate_size);
  }
  return layer;
}

std::string MtpPrefix(const contract::ModelConfig& c, std::int64_t i) {
  return fmt::format("model.layers.{}.", c.num_hidden_layers + i);
}

Mtp BuildMtp(Builder& b, const contract::ModelConfig& c, std::int64_t i) {
  const std::string prefix = MtpPrefix(c, i);
  Mtp mtp;
  mtp.enorm = b.Vector(prefix + "enorm.weight", c.hidden_size);
  mtp.hnorm = b.Vector(prefix + "hnorm.weight", c.hidden_size);
  mtp.eh_proj = b.Product({{prefix + "eh_proj.weight", c.hidden_size}}, 2 * c.hidden_size);
  mtp.layer = BuildLayer(b, c, c.num_hidden_layers + i);
  mtp.norm = b.Vector(prefix + "shared_head.norm.weight", c.hidden_size);
  // A config does not say whether the checkpoint has these.
  const std::string embed = prefix + "embed_tokens.weight";
  const std::string head = prefix + "shared_head.head.weight";
  if (b.Has(embed)) mtp.embed = b.Table(embed, c.vocab_size, c.hidden_size);
  if (b.Has(head)) mtp.head = b.Matrix({head, c.vocab_size}, c.hidden_size);
  return mtp;
}

ModelWeights Build(Builder& b, const contract::ModelConfig& c) {
  const char* embed = "model.embed_tokens.weight";
  ModelWeights w;
  w.embed = b.Table(embed, c.vocab_size, c.hidden_size);
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) w.layers.push_back(BuildLayer(b, c, i));
  b.Begin(Part::kNorms);
  w.norm = b.Vector("model.norm.weight", c.hidden_size);
  b.Begin(Part::kHead);
  w.lm_head = b.Matrix({c.tie_word_embeddings ? embed : "lm_head.weight", c.vocab_size}, c.hidden_size);
  if (c.num_nextn_predict_layers > 0) b.Begin(Part::kMtp);
  for (std::int64_t i = 0; i < c.num_nextn_predict_layers; ++i) w.mtp.push_back(BuildMtp(b, c, i));
  return w;
}

}  // namespace

MlaDims DimsOf(const contract::ModelConfig& config) {
  return {config.num_attention_heads, config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim,
          config.kv_lora_rank};
}

void Embedding::Lookup(std::int64_t id, float* out) const {
  if (dtype == WeightDType::kF32) {
    std::memcpy(out, reinterpret_cast<const float*>(rows) + id * hidden, static_cast<std::size_t>(hidden) * 4);
    return;
  }
  const Bf16Bits* row = reinterpret_cast<const Bf16Bits*>(rows) + id * hidden;
  for (std::int64_t i = 0; i < hidden; ++i) out[i] = FloatFromBf16(row[i]);
}

std::int64_t ModelWeights::bytes() const {
  std::int64_t total = arena.bytes();
  for (const Layer& layer : layers) total += layer.attention.kv_b->bytes();
  for (const Mtp& m : mtp) total += m.layer.attention.kv_b->bytes();
  return total;
}

std::vector<PartBytes> PlannedParts(const contract::ModelConfig& config, WeightDType keep,
                                    const io::Checkpoint* checkpoint) {
  Builder counting(config, keep, checkpoint);
  Build(counting, config);
  std::vector<PartBytes> parts;
  for (const auto& [key, bytes] : counting.bytes_of()) parts.push_back({key.first, key.second, bytes});
  return parts;
}

std::int64_t PlannedBytes(const contract::ModelConfig& config, WeightDType keep, const io::Checkpoint* checkpoint) {
  Builder counting(config, keep, checkpoint);
  Build(counting, config);
  return counting.arena_bytes() + counting.kv_b_bytes();
}

Result<ModelWeights> Load(const contract::ModelConfig& config, const io::Checkpoint& checkpoint, WeightDType keep,
                          Executor& executor, const Progress& progress, HugePages huge_pages) {
  Builder counting(config, keep, &checkpoint);
  Build(counting, config);
  MLA_ASSIGN_OR_RETURN(Buffer arena, Buffer::Allocate(counting.arena_bytes(), "weights", huge_pages));
  Builder loading(counting, arena, checkpoint, executor, progress, huge_pages);
  ModelWeights weights = Build(loading, config);
  if (!loading.status().ok()) return loading.status().error();
  weights.fingerprint = loading.fingerprint();
  weights.arena = std::move(arena);
  return weights;
}

}  // namespace mla::weights
