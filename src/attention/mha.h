// The MHA form: latents expanded to every head's keys and values, in pieces of bounded workspace.
#ifndef MLA_ATTENTION_MHA_H_
#define MLA_ATTENTION_MHA_H_

#include <cstdint>
#include <span>

#include "attention/kept.h"
#include "attention/scratch.h"
#include "base/buffer.h"
#include "mla/attention.h"
#include "ops/gemm.h"

namespace mla::attention {

// A piece is a range of keys for a group of heads: whole segments, so that a row's state within a segment never crosses
// pieces and the bits are those of one shot.
struct MhaWorkspace {
  std::int64_t bytes = 0;     // of `expanded`
  std::int64_t max_keys = 0;  // of a piece
  // Per head of the group: k_nope [keys, N], then v [keys, V rounded up to 16], in fp32; or, where kernels take bf16,
  // k_nope [keys, whole steps], then v as kernels read it (Bf16Keys::values), for keys in whole tiles.
  std::byte* expanded = nullptr;
  float* latent = nullptr;               // [max_keys, R]
  float* rope = nullptr;                 // [max_keys, P rounded up to 16]
  char* rope_bf16 = nullptr;             // [max_keys in whole tiles, P in whole steps]
  float* products = nullptr;             // fp32 products on their way to bf16: of kRoundedKeys keys and some heads
  std::int64_t product_heads = 0;        // so many
  ops::GemmProblem* problems = nullptr;  // [2 H]
  States total;                          // [max_rows * H]
};

void PlaceMha(const MlaAttention::Options& options, Carver* carver, MhaWorkspace* out);

// Runs every sequence of form kMha; see MlaAttention::Run.
void RunMha(const StepContext& step, std::span<const AttentionSequence> sequences, const float* q, float* out,
            float* lse, const MhaWorkspace& workspace, KeptSegments* kept, AttentionCounters* counters);

}  // namespace mla::attention

#endif  // MLA_ATTENTION_MHA_H_
