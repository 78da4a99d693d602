#include "plan/heads.h"

namespace mla::plan {
namespace {

constexpr HeadsFamily kFamilies[] = {
    {.model_type = "llama", .window = WindowRule::kNever, .kv_heads_follow = true},
    {.model_type = "mistral", .window = WindowRule::kAll, .bias = BiasRule::kNone},
    {.model_type = "mixtral", .window = WindowRule::kAll, .bias = BiasRule::kNone},
    {.model_type = "qwen2", .window = WindowRule::kFromLayer, .bias = BiasRule::kAlwaysNoOutput},
    {.model_type = "qwen2_moe",
     .window = WindowRule::kFromLayer,
     .bias = BiasRule::kAlwaysNoOutput,
     .shared_gate = true},
    {.model_type = "qwen3", .window = WindowRule::kFromLayer, .qk_norm = NormRule::kHead},
    {.model_type = "qwen3_moe", .window = WindowRule::kFromLayer, .qk_norm = NormRule::kHead},
    {.model_type = "qwen3_next",
     .window = WindowRule::kNever,
     .qk_norm = NormRule::kHead,
     .gated_query = true,
     .shared_gate = true,
     .linear = true},
    {.model_type = "gemma", .window = WindowRule::kNever, .tied = true},
    {.model_type = "gemma2", .window = WindowRule::kAlternate, .norms = 4, .tied = true},
    {.model_type = "gemma3_text",
     .window = WindowRule::kPattern,
     .pattern = 6,
     .qk_norm = NormRule::kHead,
     .norms = 4,
     .tied = true},
    {.model_type = "glm", .window = WindowRule::kNever, .bias = BiasRule::kFieldNoOutput},
    {.model_type = "glm4", .window = WindowRule::kNever, .bias = BiasRule::kFieldNoOutput, .norms = 4},
    {.model_type = "glm4_moe",
     .window = WindowRule::kNever,
     .bias = BiasRule::kFieldNoOutput,
     .qk_norm = NormRule::kField,
     .router_bias = true},
    {.model_type = "gpt_oss", .window = WindowRule::kAlternate, .expert_biases = true, .sinks = true},
    {.model_type = "olmo", .window = WindowRule::kNever, .norms = 0, .kv_heads_follow = true},
    {.model_type = "olmo2", .window = WindowRule::kNever, .qk_norm = NormRule::kRow, .kv_heads_follow = true},
    {.model_type = "olmo3",
     .window = WindowRule::kPattern,
     .pattern = 4,
     .qk_norm = NormRule::kRow,
     .kv_heads_follow = true},
    {.model_type = "phi3", .window = WindowRule::kAll, .bias = BiasRule::kNone, .kv_heads_follow = true},
};

}  // namespace

const HeadsFamily* FindHeadsFamily(std::string_view model_type) {
  for (const HeadsFamily& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

}  // namespace mla::plan
