// Packed weights of random numbers, made in memory.
#ifndef MLA_BENCH_RANDOM_WEIGHTS_H_
#define MLA_BENCH_RANDOM_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/buffer.h"
#include "mla/dtypes.h"
#include "mla/executor.h"
#include "ops/packed.h"

namespace mla::bench {

// A way to keep weights that the benches know.
struct WeightFormat {
  const char* name;  // as a flag gives it
  ops::PackedFormat format;
  DType source;  // what it is packed from
};
std::span<const WeightFormat> WeightFormats();
// The one of that name.
std::optional<WeightFormat> FindWeightFormat(std::string_view name);

// A matrix [n, k] kept so, without memory.
ops::PackedMatrix ShapeOf(const WeightFormat& format, std::int64_t n, std::int64_t k);

// Bytes of memory that FillWeights draws a matrix [n, k] into.
std::int64_t SourceBytes(const WeightFormat& format, std::int64_t n, std::int64_t k);

// Fills `w` with normal numbers of variance 1 / k, drawn into `source` [SourceBytes] and packed, by all threads.
void FillWeights(const WeightFormat& format, std::byte* source, const ops::PackedMatrix& w, Executor& executor);
// The same bytes again, elsewhere.
void CopyWeights(const ops::PackedMatrix& from, std::byte* to, Executor& executor);

// n normal numbers of variance 1.
void FillNormal(float* out, std::int64_t n, std::uint64_t key, Executor& executor);

}  // namespace mla::bench

#endif  // MLA_BENCH_RANDOM_WEIGHTS_H_
