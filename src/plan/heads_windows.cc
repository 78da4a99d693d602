#include <fmt/format.h>

#include "contract/config_parts.h"
#include "plan/heads.h"

namespace mla::plan {
namespace {

using contract::kMaxPositions;

// The window of a kind of layer that layer_types names.
std::int64_t WindowOf(std::string_view kind, std::size_t index, bool linear, contract::Fields* fields) {
  if (kind == "full_attention") return 0;
  if (kind == "sliding_attention") return fields->Int("sliding_window", 1, kMaxPositions);
  if (kind == "chunked_attention") return fields->Int("attention_chunk_size", 1, kMaxPositions);
  if (kind == "linear_attention" && linear) return kLinearLayer;
  fields->Fail(fmt::format("layer_types[{}]", index),
               linear ? "full_attention, sliding_attention, chunked_attention or linear_attention"
                      : "full_attention, sliding_attention or chunked_attention",
               fmt::format("\"{}\"", kind.substr(0, 40)));
  return 0;
}

std::vector<std::int64_t> FromTypes(const io::JsonValue& types, bool linear, std::int64_t layers,
                                    contract::Fields* fields) {
  if (!types.is_array() || static_cast<std::int64_t>(types.items().size()) != layers) {
    fields->Fail("layer_types", fmt::format("a list of num_hidden_layers = {} words", layers), types.Describe());
    return {};
  }
  std::vector<std::int64_t> windows;
  for (const io::JsonValue& type : types.items()) {
    windows.push_back(WindowOf(type.string(), windows.size(), linear, fields));
  }
  return windows;
}

// Which layers a window holds in, by the family's rule.
bool IsWindowed(const HeadsFamily& family, std::int64_t layer, std::int64_t pattern, std::int64_t first) {
  switch (family.window) {
    case WindowRule::kUnknown:
    case WindowRule::kNever: return false;
    case WindowRule::kAll: return true;
    case WindowRule::kFromLayer: return layer >= first;
    case WindowRule::kAlternate: return layer % 2 == 0;
    case WindowRule::kPattern: return (layer + 1) % pattern != 0;
  }
  return false;
}

std::vector<std::int64_t> ByInterval(std::int64_t layers, contract::Fields* fields) {
  const std::int64_t interval = fields->Int("full_attention_interval", 1, contract::kMaxDim);
  std::vector<std::int64_t> windows;
  for (std::int64_t i = 0; i < layers; ++i) windows.push_back((i + 1) % interval == 0 ? 0 : kLinearLayer);
  return windows;
}

}  // namespace

std::vector<std::int64_t> LayerWindows(const HeadsFamily& family, std::int64_t layers, contract::Fields* fields) {
  if (const io::JsonValue* types = fields->TakeValue("layer_types")) {
    return FromTypes(*types, family.linear, layers, fields);
  }
  if (family.linear) return ByInterval(layers, fields);
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), 0);
  const bool off =
      family.window == WindowRule::kFromLayer && !fields->OptionalBool("use_sliding_window").value_or(false);
  if (family.window == WindowRule::kNever || off || fields->TakeValue("sliding_window") == nullptr) return windows;
  const std::int64_t window = fields->Int("sliding_window", 1, kMaxPositions);
  if (family.window == WindowRule::kUnknown) {
    fields->Fail("layer_types", "a list beside sliding_window, of the layers that it holds in", "nothing");
    return windows;
  }
  const std::int64_t first =
      family.window == WindowRule::kFromLayer ? fields->Int("max_window_layers", 0, contract::kMaxDim) : 0;
  const std::int64_t pattern = fields->OptionalInt("sliding_window_pattern", 1, contract::kMaxDim)
                                   .value_or(std::max<std::int64_t>(1, family.pattern));
  for (std::int64_t i = 0; i < layers; ++i) {
    if (IsWindowed(family, i, pattern, first)) windows[static_cast<std::size_t>(i)] = window;
  }
  return windows;
}

}  // namespace mla::plan
