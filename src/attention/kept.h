// Expanded keys and values that outlive their call, for the next chunk of the same prompt.
#ifndef MLA_ATTENTION_KEPT_H_
#define MLA_ATTENTION_KEPT_H_

#include <cstddef>
#include <cstdint>

#include "base/buffer.h"
#include "mla/attention.h"

namespace mla::attention {

// Whose expansion: a sequence's (AttentionSequence::kept_as) in the layer whose rows begin there.
struct KeptOwner {
  std::uint64_t sequence = 0;  // 0: nobody's
  const std::byte* layer = nullptr;

  bool operator==(const KeptOwner&) const = default;
};

// A segment of all heads.
struct KeptSegment {
  KeptOwner owner;
  std::int64_t segment = 0;  // of positions from segment * kSegmentKeys on
  std::int64_t keys = 0;     // of them so many are expanded
  std::byte* rope = nullptr;
  std::byte* heads = nullptr;
  KeptSegment* next = nullptr;  // of its bucket, or of those that are free
};

// Those of one hash.
struct KeptBucket {
  KeptSegment* first = nullptr;
};

// Room for as many segments as fit in Options::keep_bytes. First come, first served: a segment is its owner's until
// that is forgotten, so that the prompt at the head of the line keeps what it has, and a later one never takes it away
// only to lose it in turn. Takes no memory of its own. Not thread-safe.
class KeptSegments {
 public:
  // Bytes of a segment, k_pe and all heads, in the layout of kernels that take bf16, or fp32.
  static std::int64_t SegmentBytes(const MlaDims& dims, bool bf16);

  void Place(const MlaAttention::Options& options, Carver* carver);

  // Before a call that computes so: what was kept otherwise is forgotten.
  void Begin(const MlaDims& dims, bool bf16);
  // Null where it is not kept.
  KeptSegment* Find(const KeptOwner& owner, std::int64_t segment);
  // Room for a segment that is not kept, as yet without keys; null where there is none.
  KeptSegment* Take(const KeptOwner& owner, std::int64_t segment);
  // Frees the owner's segments from that one on, up to the first that it does not have.
  void DropFrom(const KeptOwner& owner, std::int64_t segment);
  // Frees all of a sequence's, in every layer.
  void Forget(std::uint64_t sequence);

 private:
  enum class Layout : std::uint8_t { kNone, kFp32, kBf16 };

  KeptSegment** First(const KeptOwner& owner, std::int64_t segment);
  void Free(KeptSegment* kept);

  std::int64_t bytes_ = 0;
  std::int64_t most_ = 0;          // segments that the tables have room for
  std::int64_t count_ = 0;         // ... that fit in this layout
  std::byte* memory_ = nullptr;    // [bytes_]
  KeptSegment* all_ = nullptr;     // [most_]
  KeptBucket* buckets_ = nullptr;  // [most_]
  KeptSegment* free_ = nullptr;
  std::int64_t used_ = 0;
  Layout layout_ = Layout::kNone;  // nothing is laid out before the first call: fresh memory is touched until then
};

}  // namespace mla::attention

#endif  // MLA_ATTENTION_KEPT_H_
