// The weight matrices of a model, as products see them.
#ifndef MLA_BENCH_SHAPES_H_
#define MLA_BENCH_SHAPES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "contract/config.h"

namespace mla::bench {

// y [M, n] = x [M, k] W^T.
struct WeightShape {
  std::string name;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

// Rows of lm_head that are enough to know its speed; a vocabulary's would take gigabytes.
inline constexpr std::int64_t kHeadRows = 32768;

// The products of a dense layer and the head: q_a with kv_a (or q with kv_a), q_b where there is one, o, gate with up,
// down, lm_head (its first kHeadRows rows at most, and named so). Experts are the MoE bench's.
std::vector<WeightShape> ProjectionShapes(const contract::ModelConfig& config);

}  // namespace mla::bench

#endif  // MLA_BENCH_SHAPES_H_
