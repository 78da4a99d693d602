// Rope channels as rows of weights. Interleaved, pair i is channels (2i, 2i+1); half-split, (i, i + P/2): the same
// model in the other layout is one whose rope rows are reordered.
#ifndef MLA_CONTRACT_ROPE_ROWS_H_
#define MLA_CONTRACT_ROPE_ROWS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "contract/config.h"
#include "mla/rope.h"

namespace mla::contract {

// The rope rows of a tensor: `blocks` runs of P rows, the first beginning at `first`, `stride` rows from one to the
// next.
struct RopeRows {
  std::int64_t first = 0;
  std::int64_t stride = 0;
  std::int64_t blocks = 0;
  std::int64_t dim = 0;  // P

  // Which row of the tensor becomes row `row` of the same tensor in layout `to`, the other of the two: itself outside
  // the runs. A permutation; applied for one layout and then for the other, the identity.
  std::int64_t Source(std::int64_t row, RopeLayout to) const;
};

// Of q_proj and q_b_proj, the last P of each head's N + P rows; of kv_a_proj_with_mqa, the last P of R + P. In every
// layer, MTP's too. Empty for other tensors, and where P = 0.
std::optional<RopeRows> RopeRowsOf(const ModelConfig& config, std::string_view tensor);

// Why the rope rows of a product in fp8 can't be reordered under its scales: a run that passes from one block to the
// next. "expected ..., found ...", or empty.
std::optional<std::string> RopeBlockFault(const RopeRows& rows, const Fp8Config& fp8);

}  // namespace mla::contract

#endif  // MLA_CONTRACT_ROPE_ROWS_H_
