// What products of weights cost that come from memory, over the rows that they meet: with a table's attention, all
// that a plan needs to tell a step's time on a machine.
#ifndef MLA_BENCH_TUNE_PRODUCTS_H_
#define MLA_BENCH_TUNE_PRODUCTS_H_

#include <cstdint>
#include <vector>

#include "base/cpu_info.h"
#include "mla/attention.h"
#include "mla/executor.h"
#include "mla/result.h"

namespace mla::bench {

struct TunedProducts {
  std::int64_t n = 0;  // y [rows, n] = x [rows, k] W^T
  std::int64_t k = 0;
  std::vector<std::int64_t> rows;  // ascending
  std::vector<double> seconds;     // of one product: the least of three passes' tenth percentiles
  double read_bytes = 0;           // a second, of the same weights without a product
};

// Bytes that MeasureProducts allocates at most.
std::int64_t TunedProductsBytes(WeightDType weights, int workers);

// Products of a matrix [4096, 2048] in bf16 or f32 with 1 to 512 rows, over copies of it that are 256
// MiB together; fewer where `seconds` is below 1, which copying would outlast. Takes about `seconds` besides. Fails
// where memory can't be had. Precondition: the machine has `isa`.
Result<TunedProducts> MeasureProducts(WeightDType weights, Isa isa, Executor& executor, double seconds);

}  // namespace mla::bench

#endif  // MLA_BENCH_TUNE_PRODUCTS_H_
