// What both forms of the attention share: a call's context, a worker's own memory, and the steps on it.
#ifndef MLA_ATTENTION_SCRATCH_H_
#define MLA_ATTENTION_SCRATCH_H_

#include <cstdint>

#include "attention/kernels.h"
#include "base/buffer.h"
#include "mla/attention.h"
#include "mla/executor.h"
#include "ops/gemm.h"

namespace mla::attention {

// Query rows that a worker takes at a time: a tile's load and transposition are shared by so many rows.
inline constexpr std::int64_t kMaxBlockRows = 128;

constexpr std::int64_t RoundUp(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

// What attention in products of bf16 works in.
struct Bf16Scratch {
  char* queries = nullptr;      // [kMaxBlockRows / 16] tiles of the MHA form's packed queries
  char* rows = nullptr;         // [kBlockKeys] cache rows of whole steps
  char* values = nullptr;       // a block's values, interleaved
  char* kernel = nullptr;       // kBf16Scratch
  const char** runs[2] = {};    // [kBlockKeys / 16]
  const char** next = nullptr;  // [kBlockKeys / 16]
};

struct Scratch {
  float* rows = nullptr;  // [64, ld_rows]: a tile's cache rows, widened: [latent | rope]
  std::int64_t ld_rows = 0;
  float* keys = nullptr;            // [max(R, N) + P, 64]: transposed
  float* scores = nullptr;          // [kMaxBlockRows, 64]
  std::int32_t* visible = nullptr;  // [kMaxBlockRows]
  States segment;                   // [kMaxBlockRows] states of the segment at hand
  Bf16Scratch bf16;
};

struct CallMeter;

// What both forms need of a call: the model's dims, its kernels, and what the caller brought.
struct StepContext {
  const MlaDims& dims;
  float scale;
  const AttentionKernels& kernels;
  const ops::OpKernels& ops;
  const CacheLayerView& cache;
  const KvBWeights::Impl& weights;
  Executor& executor;
  Scratch* scratch;  // [workers]
  ops::GemmMemory gemm_memory;
  CallMeter* measured = nullptr;           // what the call is measured by, or null: then nobody measures
  ops::GemmCounts* gemm_counts = nullptr;  // its part

  ops::GemmContext gemm() const { return {executor, ops, gemm_memory, gemm_counts}; }
};

void PlaceScratch(const MlaDims& dims, Carver* carver, Scratch* out);

// States of `rows` rows, each with room for value_dim rounded up to 16, and an odd number of cache lines apart: tiles
// of 16 rows would otherwise meet in few sets of the first cache.
void PlaceStates(std::int64_t rows, std::int64_t value_dim, Carver* carver, States* out);

// The states from row `row` on.
States Offset(const States& states, std::int64_t row);

// Makes states empty: max -inf, sum and values 0.
void Clear(const States& states, std::int64_t rows);

// log-sum-exp of a state: max + ln(sum), -inf where empty.
float LogSumExp(const States& states, std::int64_t row);

// The stored row of a sequence's position.
const std::byte* RowAt(const CacheLayerView& cache, std::span<const std::int32_t> pages, std::int64_t position);

// Widens the rows of positions [first, first + count) of a sequence to `latent` (rows ld_latent apart) and `rope` (rows
// ld_rope apart).
void LoadRows(const AttentionKernels& kernels, const CacheLayerView& cache, std::span<const std::int32_t> pages,
              std::int64_t first, std::int64_t count, float* latent, std::int64_t ld_latent, float* rope,
              std::int64_t ld_rope);

}  // namespace mla::attention

#endif  // MLA_ATTENTION_SCRATCH_H_
