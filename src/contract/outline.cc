#include "contract/outline.h"

#include <fmt/format.h>

#include "contract/config_parts.h"
#include "contract/families.h"
#include "contract/fields.h"
#include "io/json.h"

namespace mla::contract {
namespace {

constexpr std::string_view kMistral4Rope[] = {"llama_4_scaling_beta", "max_position_embeddings"};

struct Outlined {
  Family family;
  std::string_view blocker;
  std::string_view layers_field = "num_hidden_layers";
  std::int64_t attentions_per_layer = 1;
};

// Sources: each model's published configuration and modelling code.
const Outlined kOutlined[] = {
    {.family = {.model_type = "deepseek_v32"}, .blocker = "a sparse-attention indexer picks its keys"},  // V3.2
    {.family = {.model_type = "glm_moe_dsa"}, .blocker = "a sparse-attention indexer picks its keys"},   // GLM-5
    {.family = {.model_type = "longcat_flash"},
     .blocker = "its layers have two attentions, scaled latents and experts that do nothing",
     .layers_field = "num_layers",
     .attentions_per_layer = 2},
    {.family = {.model_type = "mistral4", .more_rope_fields = kMistral4Rope},  // Mistral-Small-4
     .blocker = "its queries are scaled by position"},
    {.family = {.model_type = "kimi_linear"}, .blocker = "most of its layers are linear attention"},
};

const Outlined* FindOutlined(std::string_view model_type) {
  for (const Outlined& outlined : kOutlined) {
    if (outlined.family.model_type == model_type) return &outlined;
  }
  return nullptr;
}

// Weights of a kind that is not read, empty where there are none.
std::string Quantisation(const io::JsonValue& root) {
  const io::JsonValue* object = root.Find("quantization_config");
  const io::JsonValue* method = object == nullptr ? nullptr : object->Find("quant_method");
  if (method == nullptr || !method->is_string() || method->string == "fp8") return {};
  return fmt::format("its weights are quantised by {}", method->Describe());
}

// Kimi-Linear lists which of its layers, counted from 1, are not linear.
std::optional<std::int64_t> FullAttentionLayers(const io::JsonValue& root) {
  const io::JsonValue* linear = root.Find("linear_attn_config");
  const io::JsonValue* full = linear == nullptr ? nullptr : linear->Find("full_attn_layers");
  if (full == nullptr || !full->is_array()) return std::nullopt;
  return static_cast<std::int64_t>(full->items.size());
}

// The attention of one text model.
Result<Outline> ParseText(const io::JsonValue& root, std::string_view where, std::string_view outer_blocker) {
  Fields fields(root, where);
  const io::JsonValue* type = fields.Take("model_type");
  const std::string_view name = type != nullptr && type->is_string() ? std::string_view(type->string) : "";
  const Outlined* outlined = FindOutlined(name);
  const Family* family = outlined != nullptr ? &outlined->family : FindFamily(name);
  if (family == nullptr) {
    fields.Fail("model_type", "one whose attention is known", Describe(type));
    return fields.error();
  }
  Outline o;
  o.model_type = name;
  o.blocker = outer_blocker;
  for (const std::string& reason :
       {outlined != nullptr ? std::string(outlined->blocker) : std::string(), Quantisation(root)}) {
    if (!reason.empty()) o.blocker += (o.blocker.empty() ? "" : "; ") + reason;
  }
  if (o.blocker.empty()) {
    return Error{fmt::format("{}: a config of a family that can be run, {}", where, Describe(type))};
  }
  const std::int64_t layers =
      fields.Int(outlined != nullptr ? outlined->layers_field : "num_hidden_layers", 1, kMaxDim);
  o.latent_layers =
      FullAttentionLayers(root).value_or(layers * (outlined != nullptr ? outlined->attentions_per_layer : 1));
  o.num_attention_heads = fields.Int("num_attention_heads", 1, kMaxHeads);
  o.q_lora_rank = fields.OptionalInt("q_lora_rank", 1, kMaxDim);
  o.kv_lora_rank = fields.Int("kv_lora_rank", 1, kMaxDim);
  o.qk_nope_head_dim = fields.Int("qk_nope_head_dim", 1, kMaxDim);
  o.qk_rope_head_dim = fields.Int("qk_rope_head_dim", 0, kMaxDim);
  o.v_head_dim = fields.Int("v_head_dim", 1, kMaxDim);
  o.max_position_embeddings = fields.OptionalInt("max_position_embeddings", 1, kMaxPositions).value_or(1);
  o.rope = ParseRope(&fields, *family,
                     {.rope_dim = o.qk_rope_head_dim,
                      .head_dim = o.qk_nope_head_dim + o.qk_rope_head_dim,
                      .max_positions = o.max_position_embeddings});
  if (!fields.ok()) return fields.error();
  return o;
}

}  // namespace

double Outline::softmax_scale() const { return SoftmaxScale(qk_nope_head_dim + qk_rope_head_dim, rope); }

Result<Outline> ParseOutline(std::string_view json_text, std::string_view where) {
  MLA_ASSIGN_OR_RETURN(const io::JsonValue root, io::ParseJson(json_text, where));
  if (!root.is_object()) return Error{fmt::format("{}: expected an object, found {}", where, root.Describe())};
  const io::JsonValue* text = root.Find("text_config");
  if (text == nullptr || !text->is_object()) return ParseText(root, where, "");
  return ParseText(*text, fmt::format("{}: text_config", where), "its text model is a part of one that also sees");
}

Result<Outline> LoadOutline(const std::string& path) {
  MLA_ASSIGN_OR_RETURN(const ConfigFile file, ReadConfigFile(path));
  return ParseOutline(file.text, file.where);
}

}  // namespace mla::contract
