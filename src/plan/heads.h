// Configs of models whose attention keeps keys and values by head: Llama, Mistral, Qwen, Gemma, GLM, gpt-oss, OLMo and
// any other that says num_attention_heads, num_key_value_heads and head_dim.
#ifndef MLA_PLAN_HEADS_H_
#define MLA_PLAN_HEADS_H_

#include <cstdint>
#include <string_view>

#include "contract/fields.h"
#include "io/json.h"
#include "mla/result.h"
#include "plan/shape.h"

namespace mla::plan {

// Where a sliding_window holds, when no layer_types say.
enum class WindowRule : std::uint8_t {
  kUnknown,    // refused
  kNever,      // the family's code has none
  kAll,        // every layer
  kFromLayer,  // with use_sliding_window, layers from max_window_layers on
  kAlternate,  // every second layer, the first one too
  kPattern,    // all but each sliding_window_pattern-th
};

enum class BiasRule : std::uint8_t {
  kNone,
  kField,           // attention_bias: of query, key, value and output
  kFieldNoOutput,   // attention_bias: of query, key and value
  kAlwaysNoOutput,  // query, key and value, whatever the config says
};

enum class NormRule : std::uint8_t { kNone, kHead, kRow, kField };  // of queries and keys; kField: use_qk_norm

// What a model_type says by itself. Sources: Hugging Face's modelling code of each.
struct HeadsFamily {
  std::string_view model_type;
  WindowRule window = WindowRule::kUnknown;
  std::int64_t pattern = 0;  // of kPattern, where the config has none
  BiasRule bias = BiasRule::kField;
  NormRule qk_norm = NormRule::kNone;
  std::int64_t norms = 2;        // of a layer, each [hidden]
  bool kv_heads_follow = false;  // num_key_value_heads: num_attention_heads where it is left out
  bool tied = false;             // tie_word_embeddings where it is left out
  bool gated_query = false;      // q_proj is twice as wide: a gate for the output
  bool shared_gate = false;      // a row [1, hidden] weighs the shared expert
  bool expert_biases = false;    // of the router and of each expert's projections
  bool sinks = false;            // one learned logit a head
  bool linear = false;           // full_attention_interval or layer_types may name linear layers
  bool router_bias = false;      // e_score_correction_bias
};

// nullptr where the model_type is not in the table: its parameters are then those of Llama's form.
const HeadsFamily* FindHeadsFamily(std::string_view model_type);

// The shape of such a config; `where` opens messages.
Result<Shape> ParseHeads(const io::JsonValue& root, std::string_view where);

// Each layer's window, [layers]: 0 where it has none, kLinearLayer where its attention is linear. Records its faults.
inline constexpr std::int64_t kLinearLayer = -1;
std::vector<std::int64_t> LayerWindows(const HeadsFamily& family, std::int64_t layers, contract::Fields* fields);

// The parameters of such a model: biases and norms of the family's own code included.
Result<Parameters> CountHeads(const HeadsFamily& family, const Shape& shape, bool attention_bias, bool qk_norm);

}  // namespace mla::plan

#endif  // MLA_PLAN_HEADS_H_
