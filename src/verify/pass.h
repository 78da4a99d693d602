// One sequence through the production transformer, watched.
#ifndef MLA_VERIFY_PASS_H_
#define MLA_VERIFY_PASS_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "mla/attention.h"
#include "mla/result.h"
#include "verify/bounds.h"
#include "verify/subject.h"

namespace mla::verify {

// Positions up to `end`, from where the last run ended, have this form.
struct FormRun {
  std::int64_t end;
  Form form;
};

// How a sequence is run.
struct Pass {
  std::span<const std::int32_t> ids;
  std::vector<FormRun> forms;     // the last reaches the end
  std::int64_t chunk = 0;         // rows of a step; 0: all
  std::int64_t decode_from = -1;  // rows from here on go one a step; -1: none
  std::int64_t page_tokens = 64;
  std::uint64_t shuffle = 0;        // seed of the pages' order; 0: in order
  std::int64_t first_position = 0;  // of the first row, for rope alone: it sees no more keys for it
  std::int64_t context = 0;         // that is served (RopeSpec), at least first_position + rows; 0: those
  bool logits = false;              // of every row, to the result
  bool trace = false;
  // Receives every row's logits [vocab] in order, instead.
  std::function<void(std::int64_t row, std::span<const float> logits)> sink;
};

// What production had of a layer, [T, width] each, as doubles (exact).
struct LayerTrace {
  Matrix entered;        // hidden
  Matrix normed;         // hidden
  Matrix q_a_kv_a;       // [q_a | latent | k_pe], or [q | latent | k_pe] where there is no q_lora_rank; normed, rotated
  Matrix q;              // H (N+P)
  Matrix stored;         // R + P, read back from the cache
  Matrix attended;       // H V
  Matrix added;          // hidden, with the attention's part
  Matrix mlp_normed;     // hidden
  Matrix router_logits;  // E
  Matrix expert_weight;  // K
  std::vector<std::int32_t> expert;  // [T, K]
  Matrix done;                       // hidden
};

struct PassResult {
  std::vector<LayerTrace> layers;  // all, where traced
  Matrix final_normed;             // [T, hidden]
  Matrix logits;                   // [T, vocab], where asked for
};

// Runs it. Slots that hold no row are NaN, and page ids past a sequence's own are none. Fails where memory can't be
// had.
Result<PassResult> RunPass(const Subject& subject, const Pass& pass);

}  // namespace mla::verify

#endif  // MLA_VERIFY_PASS_H_
