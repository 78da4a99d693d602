// Configs and checkpoints of any shape, made up: random weights of the right sizes and scales, the same on every run.
#ifndef MLA_TESTS_TESTING_TINY_CHECKPOINT_H_
#define MLA_TESTS_TESTING_TINY_CHECKPOINT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "mla/dtypes.h"
#include "mla/rope.h"

namespace mla::testing {

// A small deepseek_v3 model with every part of a large one: q_lora, groups, a shared expert, a dense first layer, yarn.
// The defaults agree with each other; a test changes what it is about.
struct TinyOptions {
  std::int64_t vocab_size = 96;
  std::int64_t hidden_size = 64;
  std::int64_t intermediate_size = 96;
  std::int64_t num_hidden_layers = 3;
  std::int64_t num_nextn_predict_layers = 0;
  std::int64_t num_attention_heads = 4;          // H
  std::optional<std::int64_t> q_lora_rank = 48;  // empty: null
  std::int64_t kv_lora_rank = 32;                // R
  std::int64_t qk_nope_head_dim = 16;            // N
  std::int64_t qk_rope_head_dim = 8;             // P
  std::int64_t v_head_dim = 16;                  // V
  std::int64_t max_position_embeddings = 4096;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;

  std::optional<std::int64_t> n_routed_experts = 8;  // empty: null, every layer dense
  std::int64_t num_experts_per_tok = 2;
  std::int64_t n_shared_experts = 1;
  std::int64_t moe_intermediate_size = 32;
  std::int64_t n_group = 4;
  std::int64_t topk_group = 2;
  double routed_scaling_factor = 2.5;
  bool norm_topk_prob = true;
  std::int64_t first_k_dense_replace = 1;
  std::int64_t moe_layer_freq = 1;

  bool rope_interleave = true;
  double rope_theta = 10000;
  RopeScaling rope_scaling = RopeScaling::kYarn;  // kNone: null, and the fields below don't count
  double rope_factor = 4;
  std::int64_t original_max_position_embeddings = 1024;
  double beta_fast = 32;
  double beta_slow = 1;
  double mscale = 1.0;
  double mscale_all_dim = 1.0;

  std::int64_t bos_token_id = 0;
  std::int64_t eos_token_id = 1;
};

// The text of a config.json that ParseConfig accepts, where the options describe a possible model.
std::string TinyConfigJson(const TinyOptions& options = {});

// Writes DIR/config.json and a checkpoint of every required tensor of that config (any that ParseConfig accepts): one
// model.safetensors, or `shards` files and their index. DIR is made where it is not there. Weights depend on the seed
// and the tensor's name alone: products about normal with standard deviation 1/sqrt(fan-in), norms 1 + 0.1 normal, the
// router's bias 0.05 normal and always F32. Needs memory for a few megabytes, whatever the model's size. Aborts with
// the reason where something fails.
void WriteTinyCheckpoint(const std::string& dir, const std::string& config_json, std::uint64_t seed,
                         DType dtype = DType::kBF16, int shards = 1);

}  // namespace mla::testing

#endif  // MLA_TESTS_TESTING_TINY_CHECKPOINT_H_
