// Bytes of a rank's weights by part.
#ifndef MLA_PLAN_WEIGHT_BYTES_H_
#define MLA_PLAN_WEIGHT_BYTES_H_

#include <vector>

#include "plan/memory.h"

namespace mla::plan {

// Of models that the engine runs: what it allocates for a config that is a rank's share. Of others: parameters times
// the type's width, in fp8 with an fp32 scale for each block of 128 x 128; empty where they are not known.
Result<std::vector<WeightBytes>> WeightsOfRank(const Subject& subject, const MemoryOptions& options);

// Bytes of one parameter of a product, for the traffic of steps.
std::int64_t BytesOfParameter(const Shape& shape, WeightDType weights);

}  // namespace mla::plan

#endif  // MLA_PLAN_WEIGHT_BYTES_H_
