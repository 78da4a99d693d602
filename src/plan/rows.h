// Bytes of cached rows: of the engine's own formats by its layout, of others by what is known of them.
#ifndef MLA_PLAN_ROWS_H_
#define MLA_PLAN_ROWS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "mla/dtypes.h"
#include "plan/exact.h"
#include "plan/shape.h"

namespace mla::plan {

// How a row is kept.
struct RowFormat {
  std::string_view name;
  std::int64_t bits = 16;                  // of an element of a latent, a key or a value
  std::int64_t rope_bits = 16;             // of a latent row's rotated channels
  std::int64_t scale_group = 0;            // channels of a latent that share an fp32 scale; 0: no scales
  std::optional<DType> engine_dtype = {};  // of the formats that the engine allocates, by CacheLayout's stride
};

// bf16, f32: the engine's. fp8: FlashMLA's row for latents (E4M3, an fp32 scale for each 128 channels, rope in bf16, no
// padding: 656 bytes at DeepSeek-V3's dims); keys and values as E4M3 without scales of their own. int8, int4: with fp32
// scales for each 128 channels of a latent, rope in bf16.
const RowFormat* FindRowFormat(std::string_view name);

// Bytes from one token's row to the next in one layer; 0 for linear attention.
Exact RowBytes(const LayerGroup& group, const RowFormat& format);
// Bytes of a linear layer's state for one sequence: fp32 matrices [value heads, key, value], and the convolution's last
// inputs in bf16. 0 for other kinds.
Exact StateBytes(const LayerGroup& group);

// Pages of one layer that a sequence of so many tokens needs: whole ones; within a window, as many as it may touch.
// Preconditions: tokens >= 0, page_tokens > 0.
std::int64_t PagesOf(std::int64_t tokens, std::int64_t page_tokens, std::int64_t window);

}  // namespace mla::plan

#endif  // MLA_PLAN_ROWS_H_
