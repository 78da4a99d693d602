#include "attention/kv_b.h"

#include <utility>

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
                                    Executor& executor) {
  auto impl = std::make_unique<Impl>();
  MLA_ASSIGN_OR_RETURN(impl->storage, Buffer::Allocate(Bytes(dims, keep), "kv_b weights"));
  Carver carver(impl->storage);
  PlaceAll(dims, keep, &carver, impl.get());
  const std::int64_t r = dims.kv_lora_rank;
  const std::int64_t head_rows = dims.qk_nope_head_dim + dims.v_head_dim;
  const auto width = static_cast<std::int64_t>(DTypeBytes(dtype));
  // Head h's rows of kv_b_proj [H (N+V), R]: first w_kc [N, R], then w_vc [V, R].
  ParallelFor(executor, dims.num_attention_heads, [&](std::int64_t h, int /*worker*/) {
    const std::byte* w_kc = kv_b_proj + h * head_rows * r * width;
    const std::byte* w_vc = w_kc + dims.qk_nope_head_dim * r * width;
    const auto head = static_cast<std::size_t>(h);
    PackAll({dtype, w_kc, 1, r}, impl->absorb[head]);
    PackAll({dtype, w_kc, r, 1}, impl->expand[head]);
    PackAll({dtype, w_vc, r, 1}, impl->value[head]);
  });
  return KvBWeights(std::move(impl));
}

}  // namespace mla
