#include <fmt/format.h>

#include "contract/families.h"
#include "contract/outline.h"
#include "io/json.h"
#include "plan/heads.h"
#include "plan/shape.h"

namespace mla::plan {
namespace {

bool Has(const io::JsonValue& object, std::string_view name) {
  const io::JsonValue* value = object.Find(name);
  return value != nullptr && !value->is_null();
}

// A model of latents that can't be run: its attention alone.
Shape FromOutline(const contract::Outline& o) {
  Shape shape;
  shape.model_type = o.model_type;
  shape.not_run = o.blocker;
  shape.max_positions = o.max_position_embeddings;
  shape.layers = o.latent_layers;
  LayerGroup g;
  g.kind = AttentionKind::kLatent;
  g.layers = o.latent_layers;
  g.heads = o.num_attention_heads;
  g.kv_heads = 1;
  g.key_dim = o.qk_nope_head_dim + o.qk_rope_head_dim;
  g.value_dim = o.v_head_dim;
  g.latent = {o.num_attention_heads, o.qk_nope_head_dim, o.qk_rope_head_dim, o.v_head_dim, o.kv_lora_rank};
  shape.groups = {g};
  shape.notes = {
      "Only its latent attention is read: weights, an indexer's keys and other layers' states are not counted."};
  return shape;
}

Result<Shape> ParseLatent(std::string_view json_text, std::string_view where) {
  const Result<contract::ModelConfig> config = contract::ParseConfig(json_text, where);
  if (config.ok()) return ShapeOf(*config);
  const Result<contract::Outline> outline = contract::ParseOutline(json_text, where);
  if (outline.ok()) return FromOutline(*outline);
  return config.error();
}

}  // namespace

Result<Shape> ParseShape(std::string_view json_text, std::string_view where) {
  MLA_ASSIGN_OR_RETURN(const io::JsonValue root, io::ParseJson(json_text, where));
  if (!root.is_object()) return Error{fmt::format("{}: expected an object, found {}", where, root.Describe())};
  const io::JsonValue* text = root.Find("text_config");
  const bool nested = text != nullptr && text->is_object();
  const io::JsonValue& model = nested ? *text : root;
  const io::JsonValue* type = model.Find("model_type");
  const bool ours = type != nullptr && type->is_string() && contract::FindFamily(type->string()) != nullptr;
  if (ours || Has(model, "kv_lora_rank")) return ParseLatent(json_text, where);
  MLA_ASSIGN_OR_RETURN(Shape shape,
                       ParseHeads(model, nested ? fmt::format("{}: text_config", where) : std::string(where)));
  if (nested) shape.notes.push_back("The text model of one that also sees; the rest is not counted.");
  return shape;
}

}  // namespace mla::plan
