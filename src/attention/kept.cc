#include "attention/kept.h"

#include <algorithm>

#include "attention/mha_pieces.h"

namespace mla::attention {
namespace {

std::int64_t RopeBytes(const MlaDims& d, bool bf16) {
  const auto float_bytes = static_cast<std::int64_t>(sizeof(float));
  return kSegmentKeys * (bf16 ? RopeStride(d) : RoundUp(d.qk_rope_head_dim, 16) * float_bytes);
}

}  // namespace

std::int64_t KeptSegments::SegmentBytes(const MlaDims& d, bool bf16) {
  return RopeBytes(d, bf16) + d.num_attention_heads * ExpandedBytes(d, kSegmentKeys, bf16);
}

void KeptSegments::Place(const MlaAttention::Options& options, Carver* carver) {
  // For either way: the kernels and the cache decide later.
  const auto [least, most] = std::minmax({SegmentBytes(options.dims, true), SegmentBytes(options.dims, false)});
  most_ = options.keep_bytes >= most ? options.keep_bytes / least : 0;
  bytes_ = most_ > 0 ? std::max(most_ * least, options.keep_bytes / most * most) : 0;
  memory_ = carver->Take<std::byte>(bytes_);
  all_ = carver->Take<KeptSegment>(most_);
  buckets_ = carver->Take<KeptBucket>(most_);
}

void KeptSegments::Begin(const MlaDims& dims, bool bf16) {
  const Layout layout = bf16 ? Layout::kBf16 : Layout::kFp32;
  if (layout_ == layout) return;
  layout_ = layout;
  const std::int64_t segment_bytes = SegmentBytes(dims, bf16);
  count_ = std::min(most_, bytes_ / segment_bytes);
  std::fill_n(buckets_, most_, KeptBucket{});
  free_ = nullptr;
  used_ = 0;
  for (std::int64_t i = count_ - 1; i >= 0; --i) {
    all_[i] = KeptSegment{};
    all_[i].rope = memory_ + i * segment_bytes;
    all_[i].heads = all_[i].rope + RopeBytes(dims, bf16);
    all_[i].next = free_;
    free_ = &all_[i];
  }
}

KeptSegment** KeptSegments::First(const KeptOwner& owner, std::int64_t segment) {
  // Knuth's multiplicative hashing (The Art of Computer Programming, volume 3, section 6.4): the upper bits count.
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
  std::uint64_t hash = owner.sequence * kGolden;
  hash = (hash ^ reinterpret_cast<std::uintptr_t>(owner.layer)) * kGolden;
  hash = (hash ^ static_cast<std::uint64_t>(segment)) * kGolden;
  return &buckets_[(hash >> 32) % static_cast<std::uint64_t>(most_)].first;
}

KeptSegment* KeptSegments::Find(const KeptOwner& owner, std::int64_t segment) {
  if (used_ == 0 || owner.sequence == 0) return nullptr;
  KeptSegment* at = *First(owner, segment);
  while (at != nullptr && !(at->owner == owner && at->segment == segment)) at = at->next;
  return at;
}

KeptSegment* KeptSegments::Take(const KeptOwner& owner, std::int64_t segment) {
  if (free_ == nullptr || owner.sequence == 0) return nullptr;
  KeptSegment* const taken = free_;
  free_ = taken->next;
  ++used_;
  taken->owner = owner;
  taken->segment = segment;
  taken->keys = 0;
  KeptSegment** const first = First(owner, segment);
  taken->next = *first;
  *first = taken;
  return taken;
}

void KeptSegments::Free(KeptSegment* kept) {
  KeptSegment** link = First(kept->owner, kept->segment);
  while (*link != kept) link = &(*link)->next;
  *link = kept->next;
  kept->owner = {};
  kept->next = free_;
  free_ = kept;
  --used_;
}

void KeptSegments::DropFrom(const KeptOwner& owner, std::int64_t segment) {
  for (KeptSegment* at = Find(owner, segment); at != nullptr; at = Find(owner, ++segment)) Free(at);
}

void KeptSegments::Forget(std::uint64_t sequence) {
  for (std::int64_t i = 0; i < count_ && used_ > 0; ++i) {
    if (all_[i].owner.sequence == sequence && sequence != 0) Free(&all_[i]);
  }
}

}  // namespace mla::attention
