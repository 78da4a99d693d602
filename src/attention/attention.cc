#include "mla/attention.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "attention/absorbed.h"
#include "attention/choose.h"
#include "attention/kept.h"
#include "attention/kv_b.h"
#include "attention/mha.h"
#include "attention/profile.h"
#include "base/clock.h"
#include "base/cpu_info.h"

namespace mla {
namespace attention {
namespace {

struct Workspace {
  AbsorbedWorkspace absorbed;
  MhaWorkspace mha;
  KeptSegments kept;
  std::vector<Scratch> scratch;
  ops::GemmMemory gemm;
};

// Of a pass's heads, absorbed, and of a piece's latents.
std::int64_t InputBytes(const MlaAttention::Options& options, const Workspace& ws) {
  const MlaDims& d = options.dims;
  const std::int64_t head = ops::PackedInputBytes(ws.absorbed.pass_rows, std::max(d.qk_nope_head_dim, d.kv_lora_rank));
  return std::max(d.num_attention_heads * head, ops::PackedInputBytes(ws.mha.max_keys, d.kv_lora_rank));
}

// The one layout that both planning and Create follow.
void PlaceAll(const MlaAttention::Options& options, Carver* carver, Workspace* out) {
  PlaceAbsorbed(options, carver, &out->absorbed);
  PlaceMha(options, carver, &out->mha);
  out->kept.Place(options, carver);
  out->scratch.resize(static_cast<std::size_t>(options.workers));
  for (Scratch& scratch : out->scratch) PlaceScratch(options.dims, carver, &scratch);
  out->gemm = ops::GemmMemory::Place(options.workers, InputBytes(options, *out), carver);
}

}  // namespace
}  // namespace attention

struct MlaAttention::Impl {
  Options options;
  attention::KernelChoice choice;
  Buffer buffer;
  attention::Workspace workspace;
  AttentionCounters counters;
  std::unique_ptr<attention::CallMeter> measured;  // null: nobody measures

  attention::StepContext Context(const CacheLayerView& cache, const KvBWeights& weights, Executor& executor);
};

attention::StepContext MlaAttention::Impl::Context(const CacheLayerView& cache, const KvBWeights& weights,
                                                   Executor& executor) {
  if (measured) {
    measured->meter.Watch(&executor);
    measured->products.loaded = {weights.impl().storage.data(), static_cast<std::size_t>(weights.bytes())};
  }
  return {options.dims,
          static_cast<float>(options.softmax_scale),
          *choice.kernels.attention,
          *choice.kernels.ops,
          cache,
          weights.impl(),
          measured ? measured->meter : executor,
          workspace.scratch.data(),
          workspace.gemm,
          measured.get(),
          measured ? &measured->products : nullptr};
}

MlaAttention::MlaAttention(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MlaAttention::MlaAttention(MlaAttention&&) noexcept = default;
MlaAttention& MlaAttention::operator=(MlaAttention&&) noexcept = default;
MlaAttention::~MlaAttention() = default;

std::int64_t MlaAttention::WorkspaceBytes(const Options& options) {
  Carver carver;
  attention::Workspace workspace;
  PlaceAll(options, &carver, &workspace);
  return carver.used();
}

std::int64_t MlaAttention::KeptSegmentBytes(const MlaDims& dims) {
  using attention::KeptSegments;
  return std::max(KeptSegments::SegmentBytes(dims, true), KeptSegments::SegmentBytes(dims, false));
}

Result<MlaAttention> MlaAttention::Create(const Options& options) {
  const CpuInfo cpu = DetectCpu();
  if (const Result<Isa> known = SelectIsa(cpu, options.kernels); !known.ok()) return known.error();
  return attention::CreateAttention(options, attention::MachineKernels(cpu));
}

Result<MlaAttention> attention::CreateAttention(const MlaAttention::Options& options, std::span<const KernelSet> sets) {
  const MlaDims& d = options.dims;
  MLA_CHECK(d.num_attention_heads > 0 && d.qk_nope_head_dim > 0 && d.v_head_dim > 0 && d.kv_lora_rank > 0);
  MLA_CHECK(d.qk_rope_head_dim >= 0 && options.max_rows > 0 && options.max_keys > 0 && options.workers > 0);
  auto impl = std::make_unique<MlaAttention::Impl>();
  impl->options = options;
  MLA_ASSIGN_OR_RETURN(
      impl->buffer, Buffer::Allocate(MlaAttention::WorkspaceBytes(options), "attention workspace", options.huge_pages));
  Carver carver(impl->buffer);
  PlaceAll(options, &carver, &impl->workspace);
  if (options.profile) impl->measured = std::make_unique<CallMeter>(options.workers);
  MLA_ASSIGN_OR_RETURN(impl->choice, ChooseKernels(sets, options.kernels, impl->workspace.gemm.scratch));
  return MlaAttention(std::move(impl));
}

void MlaAttention::Run(const CacheLayerView& cache, const KvBWeights& weights,
                       std::span<const AttentionSequence> sequences, const float* q, float* out, float* lse,
                       Executor& executor) {
  Impl& impl = *impl_;
  MLA_CHECK_LE(executor.workers(), impl.options.workers);
  MLA_CHECK_EQ(cache.latent_elements, impl.options.dims.kv_lora_rank);
  MLA_CHECK_EQ(cache.rope_elements, impl.options.dims.qk_rope_head_dim);
  std::int64_t mha_rows = 0;
  std::int64_t absorbed_rows = 0;
  for (const AttentionSequence& s : sequences) {
    MLA_CHECK_LE(0, s.rows);
    MLA_CHECK_LE(s.rows, s.keys);
    MLA_CHECK_LE(s.keys, static_cast<std::int64_t>(s.pages.size()) * cache.page_tokens);
    MLA_CHECK_LE(s.keys, impl.options.max_keys);
    (s.form == Form::kMha ? mha_rows : absorbed_rows) += s.rows;
  }
  MLA_CHECK_LE(mha_rows + absorbed_rows, impl.options.max_rows);
  const attention::StepContext step = impl.Context(cache, weights, executor);
  const auto begin = Clock::now();
  if (absorbed_rows > 0) RunAbsorbed(step, sequences, q, out, lse, impl.workspace.absorbed);
  const double absorbed_seconds = absorbed_rows > 0 ? Since(begin) : 0;
  if (mha_rows > 0) {
    RunMha(step, sequences, q, out, lse, impl.workspace.mha, &impl.workspace.kept, &impl.counters);
  }
  impl.counters.absorbed_seconds += absorbed_seconds;
  if (mha_rows > 0) impl.counters.mha_seconds += Since(begin) - absorbed_seconds;
  impl.counters.absorbed_rows += absorbed_rows;
  impl.counters.mha_rows += mha_rows;
  if (impl.measured) attention::CountCall(step, sequences, Since(begin));
}

void MlaAttention::Forget(std::uint64_t sequence) { impl_->workspace.kept.Forget(sequence); }
const AttentionCounters& MlaAttention::counters() const { return impl_->counters; }
void MlaAttention::ResetCounters(const AttentionCounters& to) { impl_->counters = to; }
const AttentionProfile& MlaAttention::profile() const {
  MLA_CHECK(impl_->measured != nullptr);
  return impl_->measured->profile;
}
void MlaAttention::ResetProfile() {
  MLA_CHECK(impl_->measured != nullptr);
  impl_->measured->profile = {};
  impl_->measured->products = {};
}
void MlaAttention::FirstTouch(Executor& executor) { mla::FirstTouch(impl_->buffer, executor); }
const char* MlaAttention::kernels() const { return IsaName(impl_->choice.kernels.isa); }
const std::vector<RejectedKernels>& MlaAttention::rejected_kernels() const { return impl_->choice.rejected; }
std::int64_t MlaAttention::bytes() const { return impl_->buffer.bytes(); }

}  // namespace mla
