// A model's weights, packed for products: named fields, shapes beside them. Letters: H heads, N qk_nope_head_dim,
// P qk_rope_head_dim, V v_head_dim, R kv_lora_rank, Q q_lora_rank, I an intermediate size, E routed experts.
#ifndef MLA_WEIGHTS_WEIGHTS_H_
#define MLA_WEIGHTS_WEIGHTS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/buffer.h"
#include "contract/config.h"
#include "io/checkpoint.h"
#include "mla/attention.h"
#include "mla/executor.h"
#include "mla/result.h"
#include "ops/packed.h"

namespace mla::weights {

// Gate and up projections are one product, which ends in silu(gate) * up.
struct Mlp {
  std::int64_t intermediate_size = 0;
  ops::PackedMatrix gate_up;  // [ops::SwigluRows(I), hidden], for ops::GemmProblem::swiglu
  ops::PackedMatrix down;     // [hidden, I]
};

struct Moe {
  ops::PackedMatrix router;     // [E, hidden], always fp32: a rounded router picks other experts
  const float* bias = nullptr;  // [E] e_score_correction_bias; null unless noaux_tc
  std::vector<Mlp> experts;     // E
  std::optional<Mlp> shared;    // n_shared_experts as one MLP
};

struct Attention {
  // The product that reads the layer's input: rows [q_a Q | kv_a R + P], or [q_proj H (N+P) | kv_a R + P].
  ops::PackedMatrix q_a_kv_a;
  const float* q_a_norm = nullptr;   // [Q]; null without q_lora_rank
  ops::PackedMatrix q_b;             // [H (N + P), Q]; empty without q_lora_rank
  const float* kv_a_norm = nullptr;  // [R]
  std::optional<KvBWeights> kv_b;    // w_kc, w_vc; always set
  ops::PackedMatrix o;               // [hidden, H V]
};

struct Layer {
  const float* input_norm = nullptr;           // [hidden]
  const float* post_attention_norm = nullptr;  // [hidden]
  Attention attention;
  std::optional<Mlp> dense;
  std::optional<Moe> moe;  // one of the two
};

// Rows of a table, read one at a time.
struct Embedding {
  WeightDType dtype = WeightDType::kBF16;
  std::int64_t hidden = 0;
  const std::byte* rows = nullptr;  // [vocab, hidden]

  // Row `id` as floats, to out [hidden].
  void Lookup(std::int64_t id, float* out) const;
};

// A multi-token-prediction layer (DeepSeek-V3 report, section 2.2).
struct Mtp {
  const float* enorm = nullptr;  // [hidden], of the next token's embedding
  const float* hnorm = nullptr;  // [hidden], of the hidden state
  ops::PackedMatrix eh_proj;     // [hidden, 2 hidden]: embedding first, then hidden state
  Layer layer;
  const float* norm = nullptr;            // [hidden], shared_head.norm
  std::optional<Embedding> embed;         // empty: the main one serves
  std::optional<ops::PackedMatrix> head;  // empty: the main one serves
};

struct ModelWeights {
  Embedding embed;
  std::vector<Layer> layers;
  const float* norm = nullptr;  // [hidden]
  ops::PackedMatrix lm_head;    // [vocab, hidden]
  std::vector<Mtp> mtp;
  // Of the tensors that were read: name, type, shape, and the first and last 4 KiB of each. It tells checkpoints apart,
  // not every change of a byte.
  std::uint64_t fingerprint = 0;
  Buffer arena;  // holds everything but kv_b

  // Allocated, kv_b included. Equals PlannedBytes.
  std::int64_t bytes() const;
};

// What weights are for.
enum class Part : std::uint8_t {
  kEmbedding,
  kAttention,  // but kv_b
  kKvB,        // both copies of w_kc
  kNorms,      // of layers, and the final one
  kDense,
  kRouter,
  kExperts,
  kShared,
  kHead,
  kMtp,  // layers for multi-token prediction whole
};

struct PartBytes {
  Part part = Part::kEmbedding;
  ops::PackedFormat format = ops::PackedFormat::kF32;
  std::int64_t bytes = 0;
};

// Bytes that Load will allocate, padding included, by part and format, in that order. Without a checkpoint as
// PlannedBytes, which is their sum.
std::vector<PartBytes> PlannedParts(const contract::ModelConfig& config, WeightDType keep,
                                    const io::Checkpoint* checkpoint);

// Bytes that Load will allocate. Without a checkpoint, one of the config alone: products all in fp8 where it says so,
// no optional tensors.
std::int64_t PlannedBytes(const contract::ModelConfig& config, WeightDType keep, const io::Checkpoint* checkpoint);

// Called with tensors' bytes read so far and in all, from the loading thread.
using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

// Packs every tensor once and drops the source's pages as it goes. RequireTensors has passed. Fails where memory can't
// be had.
Result<ModelWeights> Load(const contract::ModelConfig& config, const io::Checkpoint& checkpoint, WeightDType keep,
                          Executor& executor, const Progress& progress, HugePages huge_pages = HugePages::kAuto);

// The attention dims of a config.
MlaDims DimsOf(const contract::ModelConfig& config);

}  // namespace mla::weights

#endif  // MLA_WEIGHTS_WEIGHTS_H_
