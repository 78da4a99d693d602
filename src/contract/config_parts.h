// Pieces of ParseConfig. Each records its first fault in `fields` and then returns something harmless.
#ifndef MLA_CONTRACT_CONFIG_PARTS_H_
#define MLA_CONTRACT_CONFIG_PARTS_H_

#include <cstdint>
#include <string>

#include "contract/config.h"
#include "contract/families.h"
#include "contract/fields.h"

namespace mla::contract {

inline constexpr std::int64_t kMaxDim = std::int64_t{1} << 24;
inline constexpr std::int64_t kMaxPositions = std::int64_t{1} << 31;  // and vocabulary
inline constexpr std::int64_t kMaxHeads = std::int64_t{1} << 16;
inline constexpr std::int64_t kMaxTensors = std::int64_t{1} << 20;  // DeepSeek-V3 has 2^16.5
// So low that padding to sixteen lanes, four bytes each and a second copy still fit in 63 bits.
inline constexpr std::int64_t kMaxParameters = std::int64_t{1} << 50;

// What rope's fields are held against: P, N + P, max_position_embeddings.
struct RopeDims {
  std::int64_t rope_dim = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_positions = 0;
};

// rope_theta, rope_scaling, rope_parameters, rope_interleave and mla_use_nope.
RopeSpec ParseRope(Fields* fields, const Family& family, const RopeDims& dims);

// The fields of experts, and which layers have them.
void ParseMoe(Fields* fields, const Family& family, ModelConfig* config);

// quantization_config: fp8 in blocks, or nothing. Other methods are refused by name.
void ParseQuantization(Fields* fields, ModelConfig* config);

// Holds the number of tensors and of parameters to kMaxTensors and kMaxParameters: dims that are each in range may
// still describe something that no machine could list.
void CheckTotals(Fields* fields, const ModelConfig& config);

}  // namespace mla::contract

#endif  // MLA_CONTRACT_CONFIG_PARTS_H_
