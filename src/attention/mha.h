// The MHA form: latents expanded to every head's keys and values, in pieces of bounded workspace.
#ifndef MLA_ATTENTION_MHA_H_
#define MLA_ATTENTION_MHA_H_

#include <cstdint>
#include <span>

#include "attention/scratch.h"
#include "base/buffer.h"
#include "mla/attention.h"
#include "ops/gemm.h"

namespace mla::attention {

// A piece is a range of keys for a group of heads: whole segments, so that a row's state within a segment never crosses
// pieces and the bits are those of one shot.
struct MhaWorkspace {
  std::int64_t floats = 0;               // of `expanded`
  std::int64_t max_keys = 0;             // of a piece
  float* expanded = nullptr;             // per head of the group: k_nope [keys, N], then v [keys, V rounded up to 16]
  float* latent = nullptr;               // [max_keys, R]
  float* rope = nullptr;                 // [max_keys, P rounded up to 16]
  ops::GemmProblem* products = nullptr;  // [2 H]
  States total;                          // [max_rows * H]
};

void PlaceMha(const MlaAttention::Options& options, Carver* carver, MhaWorkspace* out);

// Runs every sequence of form kMha; see MlaAttention::Run.
void RunMha(const StepContext& step, std::span<const AttentionSequence> sequences, const float* q, float* out,
            float* lse, const MhaWorkspace& workspace, AttentionCounters* counters);

}  // namespace mla::attention

#endif  // MLA_ATTENTION_MHA_H_
