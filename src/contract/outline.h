// Models of the MLA kind that this version can't run: what their configs say of attention. Enough to show the softmax
// scale, and to count the bytes of a cache.
#ifndef MLA_CONTRACT_OUTLINE_H_
#define MLA_CONTRACT_OUTLINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "mla/result.h"
#include "mla/rope.h"

namespace mla::contract {

// Names are those of ModelConfig, whatever the family's own words are.
struct Outline {
  std::string model_type;
  std::string blocker;                   // why it can't be run
  std::int64_t latent_layers = 0;        // attentions that keep a latent cache
  std::int64_t num_attention_heads = 0;  // H
  std::optional<std::int64_t> q_lora_rank;
  std::int64_t kv_lora_rank = 0;      // R
  std::int64_t qk_nope_head_dim = 0;  // N
  std::int64_t qk_rope_head_dim = 0;  // P
  std::int64_t v_head_dim = 0;        // V
  std::int64_t max_position_embeddings = 1;
  RopeSpec rope;

  double softmax_scale() const;
  // Of one token's latents, R + P channels over all layers; an indexer's or linear attention's memory comes on top.
  std::int64_t latent_bytes_bf16() const { return 2 * latent_layers * (kv_lora_rank + qk_rope_head_dim); }
};

// Fails where the model is of no family that is known, where nothing but a fault of its config keeps it from being run
// (ParseConfig tells which), and where a field of attention is missing or out of its range. Fields of other parts are
// not looked at.
Result<Outline> ParseOutline(std::string_view json_text, std::string_view where);
// Of DIR/config.json, or of the file itself.
Result<Outline> LoadOutline(const std::string& path);

}  // namespace mla::contract

#endif  // MLA_CONTRACT_OUTLINE_H_
