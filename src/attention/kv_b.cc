#include "attention/kv_b.h"

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/fp8.h"

namespace mla {
namespace {

ops::PackedFormat FormatOf(WeightDType keep) {
  return keep == WeightDType::kF32 ? ops::PackedFormat::kF32 : ops::PackedFormat::kBF16;
}

void Place(ops::PackedFormat format, std::int64_t n, std::int64_t k, std::int64_t count, Carver* carver,
           std::vector<ops::PackedMatrix>* out) {
  ops::PackedMatrix m{format, n, k, nullptr};
  // Panels are whole cache lines, so that heads can lie side by side. Planning takes one step, however many heads.
  static_assert(ops::PackedBytes(ops::PackedFormat::kBF16, 1, 1) % Carver::kAlignment == 0);
  std::byte* data = carver->Take<std::byte>(count * m.bytes());
  if (out == nullptr) return;
  for (std::int64_t h = 0; h < count; ++h) {
    m.data = data + h * m.bytes();
    out->push_back(m);
  }
}

// The one place that knows where the parts lie, for planning and packing.
void PlaceAll(const MlaDims& dims, WeightDType keep, Carver* carver, KvBWeights::Impl* impl) {
  const ops::PackedFormat format = FormatOf(keep);
  const std::int64_t h = dims.num_attention_heads;
  Place(format, dims.kv_lora_rank, dims.qk_nope_head_dim, h, carver, impl ? &impl->absorb : nullptr);
  Place(format, dims.qk_nope_head_dim, dims.kv_lora_rank, h, carver, impl ? &impl->expand : nullptr);
  Place(format, dims.v_head_dim, dims.kv_lora_rank, h, carver, impl ? &impl->value : nullptr);
}

void PackAll(const ops::MatrixSource& source, const ops::PackedMatrix& out) {
  ops::PackPanels(source, 0, out.n, out, 0, ops::Panels(out.n));
}

std::int64_t Blocks(std::int64_t elements, std::int64_t block) { return (elements + block - 1) / block; }

// What Pack can't use of dtypes, scales and codes.
Status CheckValues(const MlaDims& dims, DType dtype, const std::byte* kv_b_proj, const BlockScales& scales) {
  if (dtype == DType::kF8E8M0) return Error{"kv_b_proj: expected F32, F16, BF16 or F8_E4M3, found F8_E8M0"};
  if (dtype != DType::kF8E4M3) {
    if (scales.data == nullptr) return {};
    return Error{fmt::format("kv_b_proj: expected scales for F8_E4M3 alone, found some for {}", DTypeName(dtype))};
  }
  if (scales.data == nullptr || scales.block_rows < 1 || scales.block_columns < 1) {
    return Error{"kv_b_proj: expected scales for F8_E4M3, in blocks of at least 1 x 1, found none"};
  }
  if (scales.dtype == DType::kF16 || scales.dtype == DType::kF8E4M3) {
    return Error{fmt::format("kv_b_proj scales: expected F32, BF16 or F8_E8M0, found {}", DTypeName(scales.dtype))};
  }
  const std::int64_t rows = dims.num_attention_heads * (dims.qk_nope_head_dim + dims.v_head_dim);
  const std::int64_t grid_columns = Blocks(dims.kv_lora_rank, scales.block_columns);
  const std::optional<std::string> fault =
      ScaleFault(scales.dtype, scales.data, Blocks(rows, scales.block_rows) * grid_columns, grid_columns, false);
  if (fault) return Error{fmt::format("kv_b_proj scales: {}", *fault)};
  return {};
}

}  // namespace

KvBWeights::KvBWeights(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KvBWeights::KvBWeights(KvBWeights&&) noexcept = default;
KvBWeights& KvBWeights::operator=(KvBWeights&&) noexcept = default;
KvBWeights::~KvBWeights() = default;

std::int64_t KvBWeights::bytes() const { return impl_->storage.bytes(); }

std::int64_t KvBWeights::Bytes(const MlaDims& dims, WeightDType keep) {
  Carver carver;
  PlaceAll(dims, keep, &carver, nullptr);
  return carver.used();
}

Result<KvBWeights> KvBWeights::Pack(const MlaDims& dims, DType dtype, const std::byte* kv_b_proj, WeightDType keep,
                                    Executor& executor, const BlockScales& scales, HugePages huge_pages) {
  MLA_RETURN_IF_ERROR(CheckValues(dims, dtype, kv_b_proj, scales));
  auto impl = std::make_unique<Impl>();
  MLA_ASSIGN_OR_RETURN(impl->storage, Buffer::Allocate(Bytes(dims, keep), "kv_b weights", huge_pages));
  Carver carver(impl->storage);
  PlaceAll(dims, keep, &carver, impl.get());
  const ops::MatrixSource whole = ops::MatrixSource::Dense(dtype, kv_b_proj, dims.kv_lora_rank, scales);
  const std::int64_t head_rows = dims.qk_nope_head_dim + dims.v_head_dim;
  // Head h's rows of kv_b_proj [H (N+V), R]: first w_kc [N, R], then w_vc [V, R].
  std::atomic<bool> nan = false;
  ParallelFor(executor, dims.num_attention_heads, [&](std::int64_t h, int /*worker*/) {
    if (dtype == DType::kF8E4M3 &&
        HasNanE4M3(kv_b_proj + h * head_rows * dims.kv_lora_rank, head_rows * dims.kv_lora_rank)) {
      nan = true;
    }
    const ops::MatrixSource w_kc = whole.FromRow(h * head_rows);
    const ops::MatrixSource w_vc = w_kc.FromRow(dims.qk_nope_head_dim);
    const auto head = static_cast<std::size_t>(h);
    PackAll(w_kc.Transposed(), impl->absorb[head]);
    PackAll(w_kc, impl->expand[head]);
    PackAll(w_vc, impl->value[head]);
  });
  if (nan) return Error{"kv_b_proj: expected numbers, found a NaN of F8_E4M3 (0x7f or 0xff)"};
  return KvBWeights(std::move(impl));
}

}  // namespace mla
