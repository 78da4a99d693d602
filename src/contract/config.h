// config.json -> a validated, plain ModelConfig. Everything downstream trusts it.
#ifndef MLA_CONTRACT_CONFIG_H_
#define MLA_CONTRACT_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mla/result.h"
#include "mla/rope.h"

namespace mla::contract {

// How the router scores experts, from its logits.
enum class ScoringFunc : std::uint8_t { kSoftmax, kSigmoid };
// How experts are picked from the scores:
//   greedy                the best, groups or not
//   group_limited_greedy  the best within the topk_group groups whose best expert scores highest (DeepSeek-V2 report,
//                         section 2.2.2)
//   noaux_tc              the same with scores corrected by a bias, and groups scored by the sum of their two best; the
//                         bias never weighs a result (DeepSeek-V3 report, section 2.1.2)
enum class TopkMethod : std::uint8_t { kGreedy, kGroupLimitedGreedy, kNoauxTc };

// The checkpoint's own words.
const char* ScoringFuncName(ScoringFunc scoring);
const char* TopkMethodName(TopkMethod method);

struct MoeConfig {
  std::int64_t n_routed_experts = 0;
  std::int64_t num_experts_per_tok = 0;
  std::int64_t n_shared_experts = 0;  // 0: none
  std::int64_t moe_intermediate_size = 0;
  std::int64_t n_group = 1;
  std::int64_t topk_group = 1;
  double routed_scaling_factor = 1.0;
  bool norm_topk_prob = false;
  ScoringFunc scoring_func = ScoringFunc::kSigmoid;
  TopkMethod topk_method = TopkMethod::kNoauxTc;
};

// Products kept as F8_E4M3 with one scale for each block (contract/fp8.h).
struct Fp8Config {
  std::int64_t block_rows = 0;  // weight_block_size, [out, in]
  std::int64_t block_columns = 0;
  bool power_of_two_scales = false;  // scale_fmt ue8m0
};

// Names are the checkpoint's own words. Dims are positive unless said; products of any two fit in int64.
struct ModelConfig {
  std::string model_type;  // one of the table in contract/families.cc
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_nextn_predict_layers = 0;  // MTP layers in the checkpoint, 0 or more
  std::int64_t num_attention_heads = 0;       // H
  std::optional<std::int64_t> q_lora_rank;    // empty: one q_proj
  std::int64_t kv_lora_rank = 0;              // R
  std::int64_t qk_nope_head_dim = 0;          // N
  std::int64_t qk_rope_head_dim = 0;          // P, even
  std::int64_t v_head_dim = 0;                // V
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;     // of layer norms and the final norm
  double latent_norm_eps = 1e-6;  // of q_a_layernorm and kv_a_layernorm: DeepSeek's own code builds them with its
                                  // default, whatever rms_norm_eps says
  RopeSpec rope;
  std::optional<MoeConfig> moe;  // empty: every layer is dense
  std::int64_t first_k_dense_replace = 0;
  std::int64_t moe_layer_freq = 1;
  std::vector<bool> sparse_layers;  // mlp_layer_types, [num_hidden_layers]; empty: the two fields above decide
  bool tie_word_embeddings = false;
  std::optional<Fp8Config> fp8;  // quantization_config; empty: every tensor is F32, F16 or BF16
  // MiniCPM's scales, 1 elsewhere: embeddings are multiplied by scale_emb, what each half of a layer adds to the
  // residual by scale_depth / sqrt(num_hidden_layers), logits by dim_model_base / hidden_size.
  double embedding_scale = 1.0;
  double residual_scale = 1.0;
  double logit_scale = 1.0;
  std::optional<std::int64_t> bos_token_id;
  std::vector<std::int64_t> eos_token_ids;

  // Whether layer i has experts; MTP layers (i >= num_hidden_layers) follow the same rule, or are as the last layer of
  // a list.
  bool IsMoeLayer(std::int64_t layer) const {
    if (!moe.has_value()) return false;
    if (!sparse_layers.empty()) {
      return layer < num_hidden_layers ? sparse_layers[static_cast<std::size_t>(layer)] : sparse_layers.back();
    }
    return layer >= first_k_dense_replace && layer % moe_layer_freq == 0;
  }
};

// Fails, with the field, what it may be and what it is, on: an unknown model_type, rope type, scoring_func,
// topk_method, activation or other value; a missing, non-positive, huge (dims past 2^24, positions and vocabulary past
// 2^31), NaN or wrongly typed field; dims that do not fit together; a field that is neither known nor on the list of
// harmless ones. `where` opens the message.
Result<ModelConfig> ParseConfig(std::string_view json_text, std::string_view where);

// Larger files are no config.
inline constexpr std::int64_t kMaxConfigBytes = std::int64_t{16} << 20;
// The text of DIR/config.json, or of the file itself where path is one; `where` names it in messages.
struct ConfigFile {
  std::string text;
  std::string where;
};
Result<ConfigFile> ReadConfigFile(const std::string& path);

// Reads DIR/config.json, or the file itself where path is one.
Result<ModelConfig> LoadConfig(const std::string& path);

// SoftmaxScale of the config's heads (mla/rope.h).
double SoftmaxScale(const ModelConfig& config);

}  // namespace mla::contract

#endif  // MLA_CONTRACT_CONFIG_H_
