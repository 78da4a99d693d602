// What an attention works on, of random numbers: what matters is that they are not zeros.
#ifndef MLA_BENCH_RANDOM_ATTENTION_H_
#define MLA_BENCH_RANDOM_ATTENTION_H_

#include <cstdint>

#include "mla/attention.h"
#include "mla/cache.h"
#include "mla/executor.h"
#include "mla/result.h"

namespace mla::bench {

// Elements of kv_b_proj: H (N + V) R.
std::int64_t KvBElements(const MlaDims& dims);

// Normal numbers of variance 1 / R, drawn into `drawn` [KvBElements] and packed. Fails where memory can't be had.
Result<KvBWeights> RandomKvB(const MlaDims& dims, WeightDType keep, float* drawn, Executor& executor);

// Every row of a layer: 1,024 rows of normal numbers, drawn once and used again and again.
void FillCacheRows(const CacheLayerView& layer, Executor& executor);

}  // namespace mla::bench

#endif  // MLA_BENCH_RANDOM_ATTENTION_H_
