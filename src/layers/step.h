// What one step of the transformer is given, and the memory it works in.
#ifndef MLA_LAYERS_STEP_H_
#define MLA_LAYERS_STEP_H_

#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "contract/config.h"
#include "mla/attention.h"
#include "mla/cache.h"
#include "mla/memory.h"
#include "ops/gemm.h"

namespace mla::layers {

// The rows of one step, in any mix of sequences: row i is token ids[i] at positions[i], stored in slots[i]. Sequences
// name their rows by range; every row belongs to exactly one.
struct Batch {
  std::span<const std::int32_t> ids;        // [rows], in [0, vocab)
  std::span<const std::int32_t> positions;  // [rows]
  std::span<const std::int64_t> slots;      // [rows], page * page_tokens + token
  std::span<const AttentionSequence> sequences;

  std::int64_t rows() const { return static_cast<std::int64_t>(ids.size()); }
};

struct StepLimits {
  std::int64_t max_rows = 0;  // of a batch
  std::int64_t max_keys = 0;  // of a sequence
  int workers = 1;
  std::int64_t expand_bytes = std::int64_t{64} << 20;
  std::int64_t keep_bytes = 0;
  HugePages huge_pages = HugePages::kAuto;
  bool mtp = false;      // the first MTP layer runs too
  bool profile = false;  // steps are measured
};

// Memory of a step, sized once. Letters as in weights/weights.h; T is max_rows, K experts a token.
struct Workspace {
  float* x = nullptr;                    // [T, hidden] the residual stream
  float* normed = nullptr;               // [T, hidden]
  float* mtp_in = nullptr;               // [T, 2 hidden]: normed embedding, normed hidden state; null without MTP
  float* q_a_kv_a = nullptr;             // [T, Q + R + P], or [T, H (N+P) + R + P]
  float* q = nullptr;                    // [T, H (N+P)]
  float* attended = nullptr;             // [T, H V]
  float* activated = nullptr;            // [T * max(I, (K + shared experts) * I_moe)]: silu(gate) * up
  float* slot_out = nullptr;             // [T * K, hidden]: one row for each (token, chosen expert)
  float* router_logits = nullptr;        // [T, E]
  float* router_scratch = nullptr;       // [RouteScratch] a worker
  std::int32_t* expert = nullptr;        // [T, K] chosen, best first
  float* expert_weight = nullptr;        // [T, K]
  std::int32_t* sorted_token = nullptr;  // [T * K] token of each (token, slot), grouped by expert
  std::int32_t* sorted_slot = nullptr;   // [T * K] token * K + slot
  std::int32_t* expert_begin = nullptr;  // [E + 1] where each expert's group begins
  ops::GemmProblem* products = nullptr;  // [E + 1]
  ops::GemmMemory gemm;                  // inputs of the largest product, or of all experts together

  ops::GemmContext Gemm(Executor& executor, const ops::OpKernels& kernels, ops::GemmCounts* counts = nullptr) const {
    return {executor, kernels, gemm, counts};
  }
};

// Lays the workspace out; with a counting carver, tells its size.
void PlaceWorkspace(const contract::ModelConfig& config, const StepLimits& limits, Carver* carver, Workspace* out);

}  // namespace mla::layers

#endif  // MLA_LAYERS_STEP_H_
