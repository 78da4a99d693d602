#include "plan/shape.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include <fmt/format.h>

#include "contract/tensors.h"
#include "ops/packed.h"
#include "plan/exact.h"
#include "plan/heads.h"

namespace mla::plan {
namespace {

// The part of a tensor, by Hugging Face's names.
Part PartOf(std::string_view name) {
  const auto has = [&](std::string_view word) { return name.find(word) != std::string_view::npos; };
  if (has("embed_tokens")) return Part::kEmbedding;
  if (has("lm_head")) return Part::kHead;
  if (has("norm")) return Part::kNorms;
  if (has("self_attn.q_")) return Part::kQuery;
  if (has("self_attn.kv_")) return Part::kKeyValue;
  if (has("self_attn.o_")) return Part::kOutput;
  if (has("mlp.experts.")) return Part::kExperts;
  if (has("mlp.shared_experts.")) return Part::kShared;
  if (has("mlp.gate.")) return Part::kRouter;
  return Part::kDense;
}

// Whose layers the tensor's is: those from `layers` on are for multi-token prediction.
bool IsMtp(std::string_view name, std::int64_t layers) {
  constexpr std::string_view kPrefix = "model.layers.";
  if (!name.starts_with(kPrefix)) return false;
  std::int64_t layer = 0;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  return layer >= layers;
}

Parameters ParametersOf(const contract::ModelConfig& config) {
  Parameters parameters;
  for (const contract::TensorSpec& spec : contract::ExpectedTensors(config)) {
    if (!spec.required) continue;
    const std::int64_t n = std::accumulate(spec.shape.begin(), spec.shape.end(), std::int64_t{1}, std::multiplies<>());
    parameters[IsMtp(spec.name, config.num_hidden_layers) ? Part::kMtp : PartOf(spec.name)] += n;
  }
  return parameters;
}

LayerGroup LatentGroup(const MlaDims& dims, std::int64_t layers) {
  LayerGroup group;
  group.kind = AttentionKind::kLatent;
  group.layers = layers;
  group.heads = dims.num_attention_heads;
  group.kv_heads = 1;
  group.key_dim = dims.qk_nope_head_dim + dims.qk_rope_head_dim;
  group.value_dim = dims.v_head_dim;
  group.latent = dims;
  return group;
}

Result<std::int64_t> GroupsAsked(const std::string& attention, std::int64_t heads) {
  if (attention == "mha") return heads;
  if (attention == "mqa") return std::int64_t{1};
  std::int64_t groups = 0;
  if (attention.starts_with("gqa:")) {
    const auto [end, fault] = std::from_chars(attention.data() + 4, attention.data() + attention.size(), groups);
    if (fault != std::errc() || end != attention.data() + attention.size()) groups = 0;
  }
  if (groups > 0 && heads % groups == 0) return groups;
  return Error{fmt::format("attention: expected mha, mqa, mla, or gqa:G with G dividing {} heads, found '{}'", heads,
                           attention)};
}

// Keys and values as plain projections of the layer's input: what `--as` compares.
Exact KeyValueParameters(const Shape& shape, const LayerGroup& g) {
  if (g.kind == AttentionKind::kHeads) {
    return Exact(shape.hidden) * g.layers * g.kv_heads * (Exact(g.key_dim) + g.value_dim);
  }
  const MlaDims& d = g.latent;
  return Exact(g.layers) * (Exact(shape.hidden) * (Exact(d.kv_lora_rank) + d.qk_rope_head_dim) +
                            Exact(d.num_attention_heads) * (Exact(d.qk_nope_head_dim) + d.v_head_dim) * d.kv_lora_rank);
}

LayerGroup AsLatent(const LayerGroup& g) {
  const MlaDims dims{g.heads, g.key_dim, std::max<std::int64_t>(2, g.key_dim / 4 * 2), g.value_dim, 4 * g.key_dim};
  LayerGroup latent = LatentGroup(dims, g.layers);
  latent.window = g.window;
  return latent;
}

LayerGroup AsHeads(const LayerGroup& g, std::int64_t kv_heads) {
  LayerGroup heads = g;
  heads.kind = AttentionKind::kHeads;
  heads.kv_heads = kv_heads;
  heads.latent = {};
  return heads;
}

}  // namespace

std::int64_t LayerGroup::elements() const {
  switch (kind) {
    case AttentionKind::kLatent: return latent.kv_lora_rank + latent.qk_rope_head_dim;
    case AttentionKind::kHeads: return kv_heads * (key_dim + value_dim);
    case AttentionKind::kLinear: return 0;
  }
  return 0;
}

std::int64_t LayerGroup::heads_per_row() const { return kv_heads > 0 ? heads / kv_heads : heads; }

const char* PartName(Part part) {
  constexpr std::array<const char*, kParts> kNames = {"embedding", "query",  "key and value", "output",
                                                      "norms",     "dense",  "router",        "experts",
                                                      "shared",    "logits", "MTP layers"};
  return kNames[static_cast<std::size_t>(part)];
}

std::int64_t Parameters::total() const {
  return std::accumulate(of.begin(), of.end(), std::int64_t{0}) - (*this)[Part::kMtp];
}

Result<std::int64_t> ElementsPerToken(const Shape& shape) {
  Exact elements;
  for (const LayerGroup& g : shape.groups) elements += Exact(g.layers) * g.elements();
  return elements.Get("elements a token");
}

Shape ShapeOf(const contract::ModelConfig& config) {
  Shape shape;
  shape.model_type = config.model_type;
  shape.hidden = config.hidden_size;
  shape.layers = config.num_hidden_layers;
  shape.vocab = config.vocab_size;
  shape.dense_width = config.intermediate_size;
  shape.max_positions = config.max_position_embeddings;
  shape.mtp_layers = config.num_nextn_predict_layers;
  shape.tied = config.tie_word_embeddings;
  shape.fp8 = config.fp8 && ops::CanKeepF8(config.fp8->block_columns);
  const MlaDims dims{config.num_attention_heads, config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim,
                     config.kv_lora_rank};
  shape.groups = {LatentGroup(dims, config.num_hidden_layers)};
  if (config.moe) {
    const contract::MoeConfig& m = *config.moe;
    shape.experts = {.experts = m.n_routed_experts,
                     .per_token = m.num_experts_per_tok,
                     .width = m.moe_intermediate_size,
                     .shared_width = m.n_shared_experts * m.moe_intermediate_size,
                     .of = m.n_routed_experts};
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) shape.experts.layers += config.IsMoeLayer(i) ? 1 : 0;
  }
  shape.parameters = ParametersOf(config);
  shape.config = config;
  return shape;
}

Result<Shape> WithAttention(const Shape& shape, const std::string& attention) {
  Shape other = shape;
  const bool to_latent = attention == "mla";
  const auto is_latent = [](const LayerGroup& g) { return g.kind == AttentionKind::kLatent; };
  if (to_latent && std::any_of(shape.groups.begin(), shape.groups.end(), is_latent)) return other;
  other.name = fmt::format("{} as {}", shape.name, attention);
  other.config.reset();
  other.not_run = "its attention is made up";
  Exact key_value = shape.parameters ? (*shape.parameters)[Part::kKeyValue] : 0;
  Exact query = shape.parameters ? (*shape.parameters)[Part::kQuery] : 0;
  for (LayerGroup& g : other.groups) {
    if (g.kind == AttentionKind::kLinear) continue;
    const LayerGroup before = g;
    if (to_latent) {
      g = AsLatent(g);
      query += Exact(shape.hidden) * g.layers * g.heads * (g.key_dim - before.key_dim);
    } else {
      MLA_ASSIGN_OR_RETURN(const std::int64_t kv_heads, GroupsAsked(attention, g.heads));
      g = AsHeads(g, kv_heads);
    }
    key_value += KeyValueParameters(shape, g) - KeyValueParameters(shape, before);
  }
  if (other.parameters) {
    MLA_ASSIGN_OR_RETURN((*other.parameters)[Part::kKeyValue], key_value.Get("parameters of keys and values"));
    MLA_ASSIGN_OR_RETURN((*other.parameters)[Part::kQuery], query.Get("parameters of queries"));
  }
  return other;
}

}  // namespace mla::plan
