// Attention in products of bf16, a segment at a time: what both forms share. For caches in bf16, with kernels that have
// them (AttentionKernels::bf16).
#ifndef MLA_ATTENTION_BF16_BLOCK_H_
#define MLA_ATTENTION_BF16_BLOCK_H_

#include <cstdint>
#include <span>

#include "attention/kernels.h"
#include "attention/scratch.h"
#include "mla/attention.h"

namespace mla::attention {

// Whether a call computes so.
inline bool UsesBf16(const StepContext& step) {
  return step.kernels.bf16 != nullptr && step.cache.dtype == DType::kBF16;
}

// n elements in whole steps of k.
constexpr std::int64_t Bf16Steps(std::int64_t n) { return (n + kBf16Step - 1) / kBf16Step; }
// Bytes of a tile of 16 packed queries of two parts.
constexpr std::int64_t QueryTileBytes(std::int64_t n0, std::int64_t n1) {
  return (Bf16Steps(n0) + Bf16Steps(n1)) * kBf16TileBytes;
}

// Where blocks of keys come from.
class KeySource {
 public:
  // Keys [first, first + count) of the sequence; first is a multiple of kBlockKeys, count 1 to kBlockKeys. What it
  // points to lives until the next call. Where values are the keys' own first part, none are interleaved `by_key`.
  virtual Bf16Keys Block(std::int64_t first, std::int64_t count, bool by_key) = 0;

 protected:
  ~KeySource() = default;
};

// Cache rows as keys, their latents as values: the absorbed form's.
class CachedKeys final : public KeySource {
 public:
  // keys: of the sequence, as far as the call goes. `scratch` is one worker's.
  CachedKeys(const StepContext& step, std::span<const std::int32_t> pages, std::int64_t keys,
             const Bf16Scratch& scratch);
  Bf16Keys Block(std::int64_t first, std::int64_t count, bool by_key) override;

 private:
  const char* Row(std::int64_t position) const;
  void Point(std::int64_t first, std::int64_t count, Bf16Keys* keys) const;
  void Copy(std::int64_t first, std::int64_t count, Bf16Keys* keys) const;
  void LookAhead(std::int64_t first, Bf16Keys* keys) const;

  const StepContext& step_;
  std::span<const std::int32_t> pages_;
  std::int64_t keys_;
  const Bf16Scratch& scratch_;
  bool runs_;    // sixteen keys of a page lie one after another
  bool direct_;  // ... in whole steps: kernels may read them where they lie
};

// A block of rows: row i stands at position first_position + (begin + i) / rows_per_position.
struct Bf16Rows {
  const char* q;  // packed
  std::int64_t count;
  std::int64_t first_position;
  std::int64_t begin;
  std::int64_t rows_per_position;

  std::int64_t PositionOf(std::int64_t i) const { return first_position + (begin + i) / rows_per_position; }
};

// Runs the rows over keys [begin, end) of one segment, from empty, into `state`, whose acc need not be cleared.
// `begin` is a multiple of kSegmentKeys; end is past begin, and not past the last row's own position + 1. A row that
// sees a value which is no number, or infinite, becomes NaN; one that does not see it doesn't notice.
void RunBf16Segment(const StepContext& step, const Bf16Rows& rows, std::int64_t begin, std::int64_t end,
                    std::int64_t value_dim, KeySource* source, const Scratch& scratch, const States& state);

}  // namespace mla::attention

#endif  // MLA_ATTENTION_BF16_BLOCK_H_
