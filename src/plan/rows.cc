#include "plan/rows.h"

#include <algorithm>

#include "mla/cache.h"

namespace mla::plan {
namespace {

constexpr RowFormat kFormats[] = {
    {.name = "bf16", .bits = 16, .rope_bits = 16, .engine_dtype = DType::kBF16},
    {.name = "f32", .bits = 32, .rope_bits = 32, .engine_dtype = DType::kF32},
    {.name = "fp8", .bits = 8, .rope_bits = 16, .scale_group = 128},
    {.name = "int8", .bits = 8, .rope_bits = 16, .scale_group = 128},
    {.name = "int4", .bits = 4, .rope_bits = 16, .scale_group = 128},
};

CacheLayout Layout(std::int64_t page_tokens) {
  CacheLayout layout;
  layout.page_tokens = page_tokens;
  return layout;
}

}  // namespace

const RowFormat* FindRowFormat(std::string_view name) {
  for (const RowFormat& format : kFormats) {
    if (format.name == name) return &format;
  }
  return nullptr;
}

Exact RowBytes(const LayerGroup& g, const RowFormat& format) {
  if (g.kind == AttentionKind::kLinear) return 0;
  if (g.kind == AttentionKind::kLatent) {
    const MlaDims& d = g.latent;
    if (format.engine_dtype) {
      return MakeLatentLayout(d.kv_lora_rank, d.qk_rope_head_dim, 1, *format.engine_dtype).row_bytes;
    }
    Exact bytes =
        CeilDiv(Exact(d.kv_lora_rank) * format.bits, 8) + CeilDiv(Exact(d.qk_rope_head_dim) * format.rope_bits, 8);
    if (format.scale_group > 0) bytes += CeilDiv(Exact(d.kv_lora_rank), format.scale_group) * 4;
    return bytes;
  }
  const Exact bytes = CeilDiv(Exact(g.kv_heads) * (Exact(g.key_dim) + g.value_dim) * format.bits, 8);
  return format.engine_dtype && bytes.fits() ? Exact(CacheLayout::Stride(bytes.value())) : bytes;
}

Exact StateBytes(const LayerGroup& g) {
  if (g.kind != AttentionKind::kLinear) return 0;
  const Exact keys = Exact(g.kv_heads) * g.key_dim;
  const Exact values = Exact(g.heads) * g.value_dim;
  return values * g.key_dim * 4 + (keys * 2 + values) * (g.taps - 1) * 2;
}

std::int64_t PagesOf(std::int64_t tokens, std::int64_t page_tokens, std::int64_t window) {
  const CacheLayout layout = Layout(page_tokens);
  const std::int64_t pages = layout.PagesFor(tokens);
  // A window may begin at a page's last token.
  return window == 0 ? pages : std::min(pages, layout.PagesFor(window + page_tokens - 1));
}

}  // namespace mla::plan
