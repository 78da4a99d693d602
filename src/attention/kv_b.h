// kv_b_proj's packed parts, as the two forms read them.
#ifndef MLA_ATTENTION_KV_B_H_
#define MLA_ATTENTION_KV_B_H_

#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "mla/attention.h"
#include "ops/packed.h"

namespace mla {

// One packed matrix a head.
struct KvBWeights::Impl {
  std::vector<ops::PackedMatrix> absorb;  // H of [R, N]: q~ = q_nope w_kc, contracting N
  std::vector<ops::PackedMatrix> expand;  // H of [N, R]: k = w_kc c, contracting R
  std::vector<ops::PackedMatrix> value;   // H of [V, R]: w_vc, for both forms
  Buffer storage;
};

}  // namespace mla

#endif  // MLA_ATTENTION_KV_B_H_
