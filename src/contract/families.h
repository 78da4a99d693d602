// What a model_type says by itself, beside the fields of its config. Everything else comes from the fields.
#ifndef MLA_CONTRACT_FAMILIES_H_
#define MLA_CONTRACT_FAMILIES_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "contract/config.h"
#include "mla/rope.h"

namespace mla::contract {

struct Family {
  std::string_view model_type = {};
  // The routing that the family's own code has built in; empty where that code branches on a field, which then must be
  // there.
  std::optional<ScoringFunc> scoring_func = {};
  std::optional<TopkMethod> topk_method = {};
  bool experts = true;  // false: its code has dense layers alone
  // Rope types that its code has, beside "default".
  std::span<const RopeScaling> rope_scalings = {};
  // What its configuration class fills in where a config leaves the field out.
  RopeLayout rope_layout = RopeLayout::kInterleaved;  // of rope_interleave
  std::optional<double> rope_theta = {};
  bool tie_word_embeddings = false;
  bool v_head_dim_follows = false;  // v_head_dim: hidden_size / num_attention_heads
  bool mlp_layer_types = false;     // without them and first_k_dense_replace: the first layer is dense
  // It reads scale_emb, scale_depth and dim_model_base.
  bool minicpm_scales = false;
  // Its published code drops routed_scaling_factor where it normalises the weights.
  bool norm_drops_scale = false;
  // Of rope_parameters, beside its rope type's own.
  std::span<const std::string_view> more_rope_fields = {};
};

std::span<const Family> Families();
// nullptr where there is none.
const Family* FindFamily(std::string_view model_type);
// "\"deepseek_v2\", \"deepseek_v3\", ...".
std::string FamilyList();

}  // namespace mla::contract

#endif  // MLA_CONTRACT_FAMILIES_H_
