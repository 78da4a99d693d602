// Pieces of ParseConfig. Each records its first fault in `fields` and then returns something harmless.
#ifndef MLA_CONTRACT_CONFIG_PARTS_H_
#define MLA_CONTRACT_CONFIG_PARTS_H_

#include <cstdint>

#include "contract/config.h"
#include "contract/fields.h"

namespace mla::contract {

inline constexpr std::int64_t kMaxDim = std::int64_t{1} << 24;
inline constexpr std::int64_t kMaxPositions = std::int64_t{1} << 31;  // and vocabulary
inline constexpr std::int64_t kMaxHeads = std::int64_t{1} << 16;
inline constexpr std::int64_t kMaxTensors = std::int64_t{1} << 20;  // DeepSeek-V3 has 2^16.5
// So low that padding to sixteen lanes, four bytes each and a second copy still fit in 63 bits.
inline constexpr std::int64_t kMaxParameters = std::int64_t{1} << 50;

// rope_theta, rope_scaling, rope_parameters and rope_interleave, for `rope_dim` channels.
RopeSpec ParseRope(Fields* fields, std::int64_t rope_dim);

// The fields of experts, and which layers have them.
void ParseMoe(Fields* fields, ModelConfig* config);

// quantization_config: fp8 in blocks, or nothing. Other methods are refused by name.
void ParseQuantization(Fields* fields, ModelConfig* config);

// Holds the number of tensors and of parameters to kMaxTensors and kMaxParameters: dims that are each in range may
// still describe something that no machine could list.
void CheckTotals(Fields* fields, const ModelConfig& config);

}  // namespace mla::contract

#endif  // MLA_CONTRACT_CONFIG_PARTS_H_
