#include <string>

#include <fmt/format.h>

#include "contract/config_parts.h"
#include "io/quote.h"

namespace mla::contract {
namespace {

// [rows, columns] of a block.
void ParseBlock(Fields* fields, Fp8Config* fp8) {
  const io::JsonValue* value = fields->Take("weight_block_size");
  const auto is_size = [](const io::JsonValue& size) {
    return size.is_int() && size.integer() >= 1 && size.integer() <= kMaxDim;
  };
  if (value == nullptr || !value->is_array() || value->items().size() != 2 || !is_size(value->items()[0]) ||
      !is_size(value->items()[1])) {
    std::string found = Describe(value);
    if (value != nullptr && value->is_array() && value->items().size() == 2) {
      found = fmt::format("[{}, {}]", value->items()[0].Describe(), value->items()[1].Describe());
    }
    fields->Fail("weight_block_size",
                 fmt::format("[rows, columns] from 1 to {} (fp8 with a scale for each block)", kMaxDim), found);
    return;
  }
  fp8->block_rows = value->items()[0].integer();
  fp8->block_columns = value->items()[1].integer();
}

// Names of modules that were left as they are. Each tensor says its own type, so that nothing follows from them.
void CheckNames(Fields* fields, std::string_view name) {
  const io::JsonValue* value = fields->TakeValue(name);
  if (value == nullptr) return;
  bool names = value->is_array();
  for (const io::JsonValue& item : value->items()) names = names && item.is_string();
  if (!names) fields->Fail(name, "a list of names, or null", value->Describe());
}

}  // namespace

void ParseQuantization(Fields* top, ModelConfig* config) {
  const io::JsonValue* object = top->TakeValue("quantization_config");
  if (object == nullptr) return;
  if (!object->is_object()) return top->Fail("quantization_config", "an object or null", object->Describe());
  Fields fields = top->Inner("quantization_config", *object);
  Fp8Config fp8;
  fields.Word("quant_method", {"fp8"});
  // Both spell E4M3 without infinities. Where the word is missing, the tensors say it.
  fields.OptionalWord("fmt", {"e4m3", "float8_e4m3fn"});
  // A static one comes with scales of activations, which this engine does not round.
  fields.OptionalWord("activation_scheme", {"dynamic"});
  ParseBlock(&fields, &fp8);
  fp8.power_of_two_scales = fields.OptionalWord("scale_fmt", {"ue8m0", "float"}) == "ue8m0";
  for (const char* name : {"modules_to_not_convert", "modules_to_convert", "ignored_layers"}) {
    CheckNames(&fields, name);
  }
  fields.OptionalBool("dequantize");  // what Hugging Face's loader should do with them
  fields.OptionalWord("expert_dtype", {"fp8"});
  if (const auto unknown = fields.FirstUnknown()) {
    fields.FailText(
        fmt::format("quantization_config: expected no field {} with fp8, found one", io::Quoted(*unknown, 80)));
  }
  if (fields.ok()) config->fp8 = fp8;
  top->Adopt(fields);
}

}  // namespace mla::contract
