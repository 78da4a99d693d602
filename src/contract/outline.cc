#include "contract/outline.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

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
  bool lists_attention_layers = false;  // linear_attn_config.full_attn_layers, counted from 1
};

constexpr RopeScaling kYarn[] = {RopeScaling::kYarn};

// Sources: each model's published configuration and modelling code.
const Outlined kOutlined[] = {
    {.family = {.model_type = "deepseek_v32", .rope_scalings = kYarn},
     .blocker = "a sparse-attention indexer picks its keys"},  // V3.2
    {.family = {.model_type = "glm_moe_dsa", .rope_scalings = kYarn},
     .blocker = "a sparse-attention indexer picks its keys"},  // GLM-5
    {.family = {.model_type = "longcat_flash", .rope_scalings = kYarn},
     .blocker = "its layers have two attentions, scaled latents and experts that do nothing",
     .layers_field = "num_layers",
     .attentions_per_layer = 2},
    {.family = {.model_type = "mistral4",
                .rope_scalings = kYarn,
                .more_rope_fields = kMistral4Rope},  // Mistral-Small-4
     .blocker = "its queries are scaled by position"},
    {.family = {.model_type = "kimi_linear", .rope_scalings = kYarn},
     .blocker = "most of its layers are linear attention",
     .lists_attention_layers = true},
};

// The rows above, and families that can be run when nothing else keeps them from it.
std::optional<Outlined> FindOutlined(std::string_view model_type) {
  for (const Outlined& outlined : kOutlined) {
    if (outlined.family.model_type == model_type) return outlined;
  }
  const Family* family = FindFamily(model_type);
  return family == nullptr ? std::nullopt : std::optional(Outlined{.family = *family, .blocker = ""});
}

// Weights of a kind that is not read, empty where there are none.
std::string Quantisation(const io::JsonValue& root) {
  const io::JsonValue* object = root.Find("quantization_config");
  const io::JsonValue* method = object == nullptr ? nullptr : object->Find("quant_method");
  if (method == nullptr || !method->is_string() || method->string() == "fp8") return {};
  return fmt::format("its weights are quantised by {}", method->Describe());
}

// Attentions that keep latents.
std::int64_t LatentLayers(const Outlined& outlined, const io::JsonValue& root, Fields* fields) {
  const std::int64_t layers = fields->Int(outlined.layers_field, 1, kMaxDim);
  if (!outlined.lists_attention_layers) return layers * outlined.attentions_per_layer;
  const io::JsonValue* linear = root.Find("linear_attn_config");
  const io::JsonValue* full = linear == nullptr ? nullptr : linear->Find("full_attn_layers");
  const auto is_layer = [&](const io::JsonValue& id) {
    return id.is_int() && id.integer() >= 1 && id.integer() <= layers;
  };
  if (full == nullptr || !full->is_array() || static_cast<std::int64_t>(full->items().size()) > layers ||
      !std::all_of(full->items().begin(), full->items().end(), is_layer)) {
    fields->Fail("linear_attn_config.full_attn_layers", fmt::format("a list of layers from 1 to {}", layers),
                 Describe(full));
    return 0;
  }
  return static_cast<std::int64_t>(full->items().size());
}

// The attention of one text model.
Result<Outline> ParseText(const io::JsonValue& root, std::string_view where, std::vector<std::string> blockers) {
  Fields fields(root, where);
  const io::JsonValue* type = fields.Take("model_type");
  const std::optional<Outlined> outlined =
      FindOutlined(type != nullptr && type->is_string() ? std::string_view(type->string()) : "");
  if (!outlined) {
    fields.Fail("model_type", "one whose attention is known", Describe(type));
    return fields.error();
  }
  blockers.insert(blockers.begin(), std::string(outlined->blocker));
  blockers.push_back(Quantisation(root));
  std::erase(blockers, "");
  Outline o;
  o.model_type = outlined->family.model_type;
  o.blocker = fmt::format("{}", fmt::join(blockers, "; "));
  if (o.blocker.empty()) {
    return Error{fmt::format("{}: a config of a family that can be run, {}", where, Describe(type))};
  }
  o.latent_layers = LatentLayers(*outlined, root, &fields);
  o.num_attention_heads = fields.Int("num_attention_heads", 1, kMaxHeads);
  o.q_lora_rank = fields.OptionalInt("q_lora_rank", 1, kMaxDim);
  o.kv_lora_rank = fields.Int("kv_lora_rank", 1, kMaxDim);
  o.qk_nope_head_dim = fields.Int("qk_nope_head_dim", 1, kMaxDim);
  o.qk_rope_head_dim = fields.Int("qk_rope_head_dim", 0, kMaxDim);
  o.v_head_dim = fields.Int("v_head_dim", 1, kMaxDim);
  o.max_position_embeddings = fields.OptionalInt("max_position_embeddings", 1, kMaxPositions).value_or(1);
  o.rope = ParseRope(&fields, outlined->family,
                     {.rope_dim = o.qk_rope_head_dim,
                      .head_dim = o.qk_nope_head_dim + o.qk_rope_head_dim,
                      .max_positions = o.max_position_embeddings});
  if (!fields.ok()) return fields.error();
  return o;
}

}  // namespace

double Outline::softmax_scale() const { return mla::SoftmaxScale(qk_nope_head_dim + qk_rope_head_dim, rope); }

Result<Outline> ParseOutline(std::string_view json_text, std::string_view where) {
  MLA_ASSIGN_OR_RETURN(const io::JsonValue root, io::ParseJson(json_text, where));
  if (!root.is_object()) return Error{fmt::format("{}: expected an object, found {}", where, root.Describe())};
  const io::JsonValue* text = root.Find("text_config");
  if (text == nullptr || !text->is_object()) return ParseText(root, where, {});
  return ParseText(*text, fmt::format("{}: text_config", where),
                   {"its text model is a part of one that also sees", Quantisation(root)});
}

Result<Outline> LoadOutline(const std::string& path) {
  MLA_ASSIGN_OR_RETURN(const ConfigFile file, ReadConfigFile(path));
  return ParseOutline(file.text, file.where);
}

}  // namespace mla::contract
