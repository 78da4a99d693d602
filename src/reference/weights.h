// The model's tensors widened to float64, under the checkpoint's own names.
#ifndef MLA_REFERENCE_WEIGHTS_H_
#define MLA_REFERENCE_WEIGHTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "contract/config.h"
#include "io/checkpoint.h"
#include "mla/result.h"
#include "reference/tensor_reader.h"
#include "reference/vector_math.h"

namespace mla::reference {

// H heads; N, P, V = qk_nope_head_dim, qk_rope_head_dim, v_head_dim; R = kv_lora_rank.
struct AttentionWeights {
  Matrix q_proj;                       // [H (N+P), hidden], where q_lora_rank is null; else empty
  Matrix q_a_proj;                     // [q_lora, hidden]: W^DQ
  std::vector<double> q_a_layernorm;   // [q_lora]
  Matrix q_b_proj;                     // [H (N+P), q_lora], of each head N rows of W^UQ, then P of W^QR
  Matrix kv_a_proj_with_mqa;           // [R+P, hidden]: W^DKV, then W^KR
  std::vector<double> kv_a_layernorm;  // [R]
  Matrix kv_b_proj;                    // [H (N+V), R], of each head N rows of W^UK, then V of W^UV
  Matrix o_proj;                       // [hidden, H V]: W^O
};

struct MlpWeights {
  Matrix gate_proj;  // [inner, hidden]
  Matrix up_proj;    // [inner, hidden]
  Matrix down_proj;  // [hidden, inner]
};

struct MoeWeights {
  Matrix gate;                                  // [experts, hidden]: the centroids e_i
  std::vector<double> e_score_correction_bias;  // [experts]; empty unless noaux_tc
  std::vector<MlpWeights> experts;
  std::optional<MlpWeights> shared_experts;  // all shared experts side by side, as one
};

struct LayerWeights {
  std::vector<double> input_layernorm;  // [hidden]
  AttentionWeights self_attn;
  std::vector<double> post_attention_layernorm;  // [hidden]
  MlpWeights mlp;                                // of a dense layer
  std::optional<MoeWeights> moe;                 // of a layer with experts
};

struct MtpWeights {
  Matrix embed_tokens;        // [vocab, hidden], or empty: the main one serves
  std::vector<double> enorm;  // [hidden]
  std::vector<double> hnorm;  // [hidden]
  Matrix eh_proj;             // [hidden, 2 hidden]: M_1
  LayerWeights layer;         // TRM_1
  std::vector<double> norm;   // [hidden]: shared_head.norm
  Matrix head;                // [vocab, hidden]: shared_head.head, or empty: the main one serves
};

struct ModelWeights {
  Matrix embed_tokens;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  std::vector<double> norm;  // [hidden]
  Matrix lm_head;            // [vocab, hidden], or empty: embed_tokens serves
  std::optional<MtpWeights> mtp;
};

// Precondition: contract::RequireTensors has passed. Fp8 becomes its value times its block's scale, exactly. Fails
// where memory for 8 bytes a parameter can't be had, and on codes and scales of fp8 that are no usable numbers.
Result<ModelWeights> LoadWeights(const contract::ModelConfig& config, const io::Checkpoint& checkpoint);

// One layer of the main model by itself, for checkpoints whose float64 does not fit: its routed experts stay unread.
// Precondition: contract::RequireTensors has passed, and fp8 holds usable numbers. Throws std::bad_alloc.
LayerWeights LoadLayer(const TensorReader& reader, std::int64_t layer);
// One routed expert of it.
MlpWeights LoadExpert(const TensorReader& reader, std::int64_t layer, std::int64_t expert);

}  // namespace mla::reference

#endif  // MLA_REFERENCE_WEIGHTS_H_
