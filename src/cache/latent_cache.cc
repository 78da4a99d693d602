#include <algorithm>
#include <cstring>

#include "base/buffer.h"
#include "base/check.h"
#include "mla/cache.h"

namespace mla {

CacheLayout MakeLatentLayout(std::int64_t kv_lora_rank, std::int64_t qk_rope_head_dim, std::int64_t layers, DType dtype,
                             std::int64_t page_tokens) {
  MLA_CHECK(dtype == DType::kBF16 || dtype == DType::kF32);
  MLA_CHECK_LT(0, kv_lora_rank);
  MLA_CHECK_LE(0, qk_rope_head_dim);
  MLA_CHECK_LT(0, layers);
  MLA_CHECK_LT(0, page_tokens);
  CacheLayout layout;
  layout.page_tokens = page_tokens;
  layout.layers = layers;
  const auto width = static_cast<std::int64_t>(DTypeBytes(dtype));
  layout.segments.push_back({"latent", kv_lora_rank, dtype, 0});
  layout.segments.push_back({"rope", qk_rope_head_dim, dtype, kv_lora_rank * width});
  const std::int64_t used = (kv_lora_rank + qk_rope_head_dim) * width;
  layout.row_bytes = CacheLayout::Stride(used);
  return layout;
}

struct LatentCache::Impl {
  CacheLayout layout;
  std::int64_t pages = 0;
  Buffer storage;
};

LatentCache::LatentCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LatentCache::LatentCache(LatentCache&&) noexcept = default;
LatentCache& LatentCache::operator=(LatentCache&&) noexcept = default;
LatentCache::~LatentCache() = default;

Result<LatentCache> LatentCache::Create(const CacheLayout& layout, std::int64_t pages, HugePages huge_pages) {
  auto impl = std::make_unique<Impl>();
  impl->layout = layout;
  impl->pages = pages;
  MLA_ASSIGN_OR_RETURN(impl->storage, Buffer::Allocate(layout.StorageBytes(pages), "latent cache", huge_pages));
  return LatentCache(std::move(impl));
}

const CacheLayout& LatentCache::layout() const { return impl_->layout; }
std::int64_t LatentCache::pages() const { return impl_->pages; }
std::int64_t LatentCache::bytes() const { return impl_->storage.bytes(); }

void LatentCache::FirstTouch(std::int64_t pages, Executor& executor) {
  const std::int64_t page_bytes = impl_->layout.page_bytes();
  const std::int64_t touched = std::min(pages, impl_->pages);
  for (std::int64_t layer = 0; layer < impl_->layout.layers; ++layer) {
    mla::FirstTouch(impl_->storage.data() + layer * impl_->pages * page_bytes, touched * page_bytes, executor);
  }
}

void LatentCache::CopyRows(std::int32_t from, std::int32_t to, std::int64_t tokens) {
  MLA_CHECK(from != to && std::max(from, to) < impl_->pages && std::min(from, to) >= 0);
  MLA_CHECK_LE(tokens, impl_->layout.page_tokens);
  const auto bytes = static_cast<std::size_t>(tokens * impl_->layout.row_bytes);
  for (std::int64_t layer = 0; layer < impl_->layout.layers; ++layer) {
    const CacheLayerView view = Layer(layer);
    std::memcpy(view.Row(to * view.page_tokens), view.Row(from * view.page_tokens), bytes);
  }
}

CacheLayerView LatentCache::Layer(std::int64_t layer) const {
  const CacheLayout& layout = impl_->layout;
  MLA_CHECK(layer >= 0 && layer < layout.layers);
  const CacheSegment& latent = layout.segments[0];
  const CacheSegment& rope = layout.segments[1];
  CacheLayerView view;
  view.data = impl_->storage.data() + layer * impl_->pages * layout.page_bytes();
  view.row_bytes = layout.row_bytes;
  view.page_tokens = layout.page_tokens;
  view.pages = impl_->pages;
  view.dtype = latent.dtype;
  view.latent_elements = latent.elements;
  view.rope_elements = rope.elements;
  view.rope_offset = rope.offset;
  return view;
}

namespace {

void WriteSegment(DType dtype, std::byte* to, const float* from, std::int64_t n) {
  if (dtype == DType::kF32) {
    if (n > 0) std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
    return;
  }
  auto* bits = reinterpret_cast<Bf16Bits*>(to);
  for (std::int64_t i = 0; i < n; ++i) bits[i] = Bf16FromFloat(from[i]);
}

void ReadSegment(DType dtype, const std::byte* from, float* to, std::int64_t n) {
  if (dtype == DType::kF32) {
    if (n > 0) std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
    return;
  }
  const auto* bits = reinterpret_cast<const Bf16Bits*>(from);
  for (std::int64_t i = 0; i < n; ++i) to[i] = FloatFromBf16(bits[i]);
}

}  // namespace

void WriteCacheRow(const CacheLayerView& layer, std::int64_t slot, const float* latent, const float* rope) {
  MLA_DCHECK_LT(slot, layer.pages * layer.page_tokens);
  std::byte* row = layer.Row(slot);
  WriteSegment(layer.dtype, row, latent, layer.latent_elements);
  WriteSegment(layer.dtype, row + layer.rope_offset, rope, layer.rope_elements);
}

void ReadCacheRow(const CacheLayerView& layer, std::int64_t slot, float* latent, float* rope) {
  MLA_DCHECK_LT(slot, layer.pages * layer.page_tokens);
  const std::byte* row = layer.Row(slot);
  ReadSegment(layer.dtype, row, latent, layer.latent_elements);
  ReadSegment(layer.dtype, row + layer.rope_offset, rope, layer.rope_elements);
}

}  // namespace mla
