// The absorbed form: cache rows as keys and values of all heads.
#ifndef MLA_ATTENTION_ABSORBED_H_
#define MLA_ATTENTION_ABSORBED_H_

#include <cstdint>
#include <span>

#include "attention/absorbed_plan.h"
#include "attention/kernels.h"
#include "attention/scratch.h"
#include "base/buffer.h"
#include "mla/attention.h"
#include "mla/executor.h"
#include "ops/gemm.h"

namespace mla::attention {

// What one pass of the absorbed form works in. Sized by PlaceAbsorbed, for planning and for use.
struct AbsorbedWorkspace {
  std::int64_t pass_rows = 0;            // rows of a pass
  std::int64_t partial_states = 0;       // states of (segment, row, head) that a pass may keep apart
  Part* parts = nullptr;                 // [pass_rows]
  std::int32_t* row_ids = nullptr;       // [pass_rows] a pass's rows in q and out
  float* query = nullptr;                // [pass_rows, H, R + P]: q~, then q_pe
  char* packed = nullptr;                // the same in tiles of 16 states, each part's from a tile of its own
  ops::GemmProblem* products = nullptr;  // [H]
  States total;                          // [pass_rows * H] states; acc is the output latent
  States partial;                        // [partial_states]
};

void PlaceAbsorbed(const MlaAttention::Options& options, Carver* carver, AbsorbedWorkspace* out);

// Runs every sequence of form kAbsorbed; see MlaAttention::Run.
void RunAbsorbed(const StepContext& step, std::span<const AttentionSequence> sequences, const float* q, float* out,
                 float* lse, const AbsorbedWorkspace& workspace);

}  // namespace mla::attention

#endif  // MLA_ATTENTION_ABSORBED_H_
