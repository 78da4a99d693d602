// The stages of one layer, each from production's own input to it, against the oracle: a fault shows where it is made,
// and no error grows on the way.
#ifndef MLA_VERIFY_LAYER_PROOF_H_
#define MLA_VERIFY_LAYER_PROOF_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reference/tensor_reader.h"
#include "reference/weights.h"
#include "verify/attention_oracle.h"
#include "verify/bounds.h"
#include "verify/pass.h"
#include "verify/scope.h"
#include "verify/subject.h"

namespace mla::verify {

// One layer's exact weights and where it stands.
struct LayerUnderProof {
  const Subject& subject;
  const Scope& scope;
  std::int64_t index;
  reference::LayerWeights weights;  // routed experts unread
  bool bf16_inputs;                 // Bf16Inputs(subject)
  bool bf16_attention;              // Bf16Attention(subject)

  // Of the product whose weights have this name, without ".weight". Not the router's: it is kept in fp32.
  ProductRule Rule(const std::string& name) const { return {WeightUnit(subject, name), bf16_inputs}; }
};

// A pass's trace of the layer, and the positions that it was run at.
struct Traced {
  const LayerTrace& trace;
  std::int64_t first_position = 0;
  std::int64_t context = 0;  // that longrope's factors follow from
};

// Rows `rows` of a matrix.
Matrix Pick(const Matrix& from, std::span<const std::int64_t> rows);

// Level 1. Null tallies are left out.
struct ProjectionTallies {
  Tally* normed = nullptr;
  Tally* q_latent = nullptr;
  Tally* q_nope = nullptr;
  Tally* q_pe = nullptr;
  Tally* latent = nullptr;
  Tally* k_pe = nullptr;
  Tally* stored = nullptr;
};
void ProveProjection(const LayerUnderProof& layer, const Traced& traced, std::span<const std::int64_t> rows,
                     const ProjectionTallies& tallies);

// Level 2. Each of some rows' scores with single keys, and those keys' values: a sequence of one key has them as its
// log-sum-exp and its output. Fails where memory can't be had.
struct PairTallies {
  Tally* scores;
  Tally* values;
};
Status ProvePairs(const LayerUnderProof& layer, const LayerTrace& trace, Form form, const PairTallies& tallies);

// The attention's output of `rows` over all the keys that each sees.
void ProveAttention(const LayerUnderProof& layer, const LayerTrace& trace, std::span<const FormRun> forms,
                    std::span<const std::int64_t> rows, Tally* tally);

// Level 6, within a layer: o_proj, router, choice and weights of experts, feed-forward.
struct FeedForwardTallies {
  Tally* attention_added;
  Tally* normed;
  Tally* router;
  Tally* choice;
  Tally* weights;
  Tally* feed_forward;
};
void ProveFeedForward(const LayerUnderProof& layer, const LayerTrace& trace, std::span<const std::int64_t> rows,
                      const FeedForwardTallies& tallies);

}  // namespace mla::verify

#endif  // MLA_VERIFY_LAYER_PROOF_H_
