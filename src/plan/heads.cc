#include "plan/heads.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "contract/config_parts.h"

namespace mla::plan {
namespace {

using contract::kMaxDim;

// Fields of attentions whose cache is none of ours. Zero, null, false and an empty list say that there is none.
constexpr std::string_view kForeign[] = {"attn_layer_period",
                                         "attn_type_list",
                                         "block_configs",
                                         "block_types",
                                         "cla_share_factor",
                                         "cross_attention_layers",
                                         "hybrid_override_pattern",
                                         "index_topk",
                                         "is_encoder_decoder",
                                         "kv_lora_rank",
                                         "layers_block_type",
                                         "linear_attn_config",
                                         "lightning_nh",
                                         "mamba_d_state",
                                         "num_kv_shared_layers",
                                         "ssm_cfg",
                                         "ssm_state_size",
                                         "state_size"};

bool IsNothing(const io::JsonValue& value) {
  return value.is_null() || (value.is_bool() && !value.boolean()) || (value.is_number() && value.number() == 0) ||
         (value.is_array() && value.items().empty());
}

void RefuseForeign(contract::Fields* fields) {
  for (const std::string_view name : kForeign) {
    const io::JsonValue* value = fields->TakeValue(name);
    if (value == nullptr || IsNothing(*value)) continue;
    fields->Fail(name, "no such field: its attention keeps something else than keys and values by head",
                 value->Describe());
  }
}

struct Heads {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t dim = 1;
};

Heads ParseHeadDims(const HeadsFamily* family, std::int64_t hidden, contract::Fields* fields) {
  Heads h;
  h.heads = fields->Int("num_attention_heads", 1, contract::kMaxHeads);
  const bool follow = family != nullptr && family->kv_heads_follow;
  h.kv_heads = follow && fields->TakeValue("num_key_value_heads") == nullptr
                   ? h.heads
                   : fields->Int("num_key_value_heads", 1, contract::kMaxHeads);
  if (h.heads % h.kv_heads != 0) {
    fields->Fail("num_key_value_heads", fmt::format("a divisor of num_attention_heads = {}", h.heads),
                 fmt::format("{}", h.kv_heads));
  }
  if (fields->TakeValue("head_dim") != nullptr || family == nullptr) {
    h.dim = fields->Int("head_dim", 1, kMaxDim);
  } else if (hidden % h.heads == 0) {
    h.dim = hidden / h.heads;
  } else {
    fields->Fail("head_dim", fmt::format("a width, since {} heads don't divide hidden_size = {}", h.heads, hidden),
                 "nothing");
  }
  return h;
}

LayerGroup LinearGroup(contract::Fields* fields) {
  LayerGroup g;
  g.kind = AttentionKind::kLinear;
  g.heads = fields->Int("linear_num_value_heads", 1, contract::kMaxHeads);
  g.kv_heads = fields->Int("linear_num_key_heads", 1, contract::kMaxHeads);
  g.key_dim = fields->Int("linear_key_head_dim", 1, kMaxDim);
  g.value_dim = fields->Int("linear_value_head_dim", 1, kMaxDim);
  g.taps = fields->Int("linear_conv_kernel_dim", 1, kMaxDim);
  return g;
}

std::vector<LayerGroup> Grouped(const std::vector<std::int64_t>& windows, const Heads& h, contract::Fields* fields) {
  std::map<std::int64_t, std::int64_t> count;
  for (const std::int64_t window : windows) ++count[window];
  std::vector<LayerGroup> groups;
  for (const auto& [window, layers] : count) {
    LayerGroup g;
    if (window == kLinearLayer) {
      g = LinearGroup(fields);
    } else {
      g.heads = h.heads;
      g.kv_heads = h.kv_heads;
      g.key_dim = g.value_dim = h.dim;
      g.window = window;
    }
    g.layers = layers;
    groups.push_back(g);
  }
  return groups;
}

// How many of the layers have experts: all but the first ones, those of mlp_only_layers, or those between steps.
std::int64_t ExpertLayers(std::int64_t layers, contract::Fields* fields) {
  const std::int64_t first = fields->OptionalInt("first_k_dense_replace", 0, kMaxDim).value_or(0);
  const std::int64_t step = fields->OptionalInt("decoder_sparse_step", 1, kMaxDim).value_or(1);
  std::vector<bool> dense(static_cast<std::size_t>(layers), false);
  if (const io::JsonValue* only = fields->TakeValue("mlp_only_layers")) {
    for (const io::JsonValue& id : only->items()) {
      if (!id.is_int() || id.integer() < 0 || id.integer() >= layers) {
        fields->Fail("mlp_only_layers", fmt::format("layers from 0 to {}", layers - 1), id.Describe());
        return 0;
      }
      dense[static_cast<std::size_t>(id.integer())] = true;
    }
  }
  std::int64_t count = 0;
  for (std::int64_t i = first; i < layers; ++i) {
    count += (i + 1) % step == 0 && !dense[static_cast<std::size_t>(i)] ? 1 : 0;
  }
  return count;
}

// Under the names that families give it.
ExpertShape ParseExperts(const Shape& shape, contract::Fields* fields) {
  ExpertShape e;
  const char* name = nullptr;
  for (const char* candidate : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (const io::JsonValue* value = fields->TakeValue(candidate); value != nullptr && !IsNothing(*value)) {
      name = candidate;
    }
  }
  if (name == nullptr) return e;
  e.experts = fields->Int(name, 1, contract::kMaxTensors);
  e.of = e.experts;
  e.per_token = fields->Int("num_experts_per_tok", 1, e.experts);
  // Mixtral and gpt-oss have one width.
  const bool own_width = fields->TakeValue("moe_intermediate_size") != nullptr;
  e.width = own_width ? fields->Int("moe_intermediate_size", 1, kMaxDim) : shape.dense_width;
  if (fields->TakeValue("shared_expert_intermediate_size") != nullptr) {
    e.shared_width = fields->Int("shared_expert_intermediate_size", 0, kMaxDim);
  } else {
    e.shared_width = e.width * fields->OptionalInt("n_shared_experts", 0, 1024).value_or(0);
  }
  e.layers = ExpertLayers(shape.layers, fields);
  return e;
}

void ParseSizes(const HeadsFamily* family, contract::Fields* fields, Shape* shape) {
  shape->hidden = fields->Int("hidden_size", 1, kMaxDim);
  shape->layers = fields->Int("num_hidden_layers", 1, 1 << 20);
  shape->vocab = fields->Int("vocab_size", 1, contract::kMaxPositions);
  shape->dense_width = fields->Int("intermediate_size", 1, kMaxDim);
  shape->max_positions = fields->Int("max_position_embeddings", 1, contract::kMaxPositions);
  shape->mtp_layers = fields->OptionalInt("num_nextn_predict_layers", 0, 1024).value_or(0);
  shape->tied = fields->OptionalBool("tie_word_embeddings").value_or(family != nullptr && family->tied);
}

bool HasQkNorm(const HeadsFamily& family, contract::Fields* fields) {
  if (family.qk_norm == NormRule::kField) return fields->OptionalBool("use_qk_norm").value_or(false);
  return family.qk_norm != NormRule::kNone;
}

void AddNotes(const io::JsonValue& root, bool known, Shape* shape) {
  if (!known) shape->notes.push_back("Parameters are counted as Llama's form has them: this model_type is not known.");
  const io::JsonValue* quantised = root.Find("quantization_config");
  const io::JsonValue* method = quantised == nullptr ? nullptr : quantised->Find("quant_method");
  shape->fp8 = method != nullptr && method->is_string() && method->string() == "fp8";
  if (method != nullptr && method->is_string() && !shape->fp8) {
    shape->notes.push_back(
        fmt::format("The checkpoint is quantised by {}; weights are priced as --weights says.", method->Describe()));
  }
  if (shape->mtp_layers > 0) {
    shape->notes.push_back(fmt::format("Layers for multi-token prediction are not counted: {}.", shape->mtp_layers));
  }
}

}  // namespace

Result<Shape> ParseHeads(const io::JsonValue& root, std::string_view where) {
  constexpr HeadsFamily kLikeLlama = {};
  contract::Fields fields(root, where);
  Shape shape;
  const io::JsonValue* type = fields.Take("model_type");
  if (type == nullptr || !type->is_string()) fields.Fail("model_type", "a name", contract::Describe(type));
  shape.model_type = type == nullptr ? "" : std::string(type->string().substr(0, 64));
  const HeadsFamily* known = FindHeadsFamily(shape.model_type);
  const HeadsFamily& family = known == nullptr ? kLikeLlama : *known;
  RefuseForeign(&fields);
  ParseSizes(known, &fields, &shape);
  const Heads heads = ParseHeadDims(known, shape.hidden, &fields);
  const std::vector<std::int64_t> windows = LayerWindows(family, shape.layers, &fields);
  if (!fields.ok()) return fields.error();
  shape.groups = Grouped(windows, heads, &fields);
  shape.experts = ParseExperts(shape, &fields);
  const bool bias = fields.OptionalBool("attention_bias").value_or(false);
  const bool qk_norm = HasQkNorm(family, &fields);
  if (!fields.ok()) return fields.error();
  shape.not_run = "its attention keeps keys and values by head";
  AddNotes(root, known != nullptr, &shape);
  const Result<Parameters> parameters = CountHeads(family, shape, bias, qk_norm);
  if (!parameters.ok()) return Error{fmt::format("{}: {}", where, parameters.error().message)};
  shape.parameters = *parameters;
  return shape;
}

}  // namespace mla::plan
