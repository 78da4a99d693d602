#include "layers/transformer.h"

#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/cpu_info.h"
#include "layers/mla_layer.h"
#include "layers/mlp.h"

namespace mla::layers {
namespace {

std::int64_t StepBytes(const contract::ModelConfig& config, const StepLimits& limits) {
  Carver carver;
  Workspace ws;
  PlaceWorkspace(config, limits, &carver, &ws);
  return carver.used();
}

}  // namespace

MlaAttention::Options AttentionOptions(const contract::ModelConfig& config, const StepLimits& limits,
                                       const std::string& kernels) {
  MlaAttention::Options options;
  options.dims = weights::DimsOf(config);
  options.softmax_scale = contract::SoftmaxScale(config);
  options.max_rows = limits.max_rows;
  options.max_keys = limits.max_keys;
  options.workers = limits.workers;
  options.expand_bytes = limits.expand_bytes;
  options.keep_bytes = limits.keep_bytes;
  options.kernels = kernels;
  options.huge_pages = limits.huge_pages;
  options.profile = limits.profile;
  return options;
}

Transformer::Memory Transformer::Planned(const contract::ModelConfig& config, const StepLimits& limits) {
  return {StepBytes(config, limits) + MlaAttention::WorkspaceBytes(AttentionOptions(config, limits, "")),
          RopeTable::Bytes(config.rope, limits.max_keys)};
}

Result<std::unique_ptr<Transformer>> Transformer::Create(const contract::ModelConfig& config,
                                                         const weights::ModelWeights& weights, const StepLimits& limits,
                                                         const std::string& kernels, const Parts& parts) {
  MLA_ASSIGN_OR_RETURN(MlaAttention attention, MlaAttention::Create(AttentionOptions(config, limits, kernels)));
  // The attention has tested the tables of its instruction set, products and rows included: one choice for all.
  MLA_ASSIGN_OR_RETURN(const Isa isa, SelectIsa(DetectCpu(), attention.kernels()));
  Parts whole = parts;
  if (whole.kernels == nullptr) whole.kernels = &ops::KernelsFor(isa);
  if (!whole.rope) {
    MLA_ASSIGN_OR_RETURN(RopeTable rope, RopeTable::Create(config.rope, limits.max_keys, limits.huge_pages));
    whole.rope = std::make_shared<const RopeTable>(std::move(rope));
  }
  if (!whole.route) whole.route = RouteByOps;
  MLA_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(StepBytes(config, limits), "step workspace", limits.huge_pages));
  return std::unique_ptr<Transformer>(
      new Transformer(config, weights, std::move(attention), std::move(whole), std::move(buffer), limits));
}

Transformer::Transformer(const contract::ModelConfig& config, const weights::ModelWeights& weights,
                         MlaAttention attention, Parts parts, Buffer buffer, const StepLimits& limits)
    : config_(config),
      weights_(weights),
      attention_(std::move(attention)),
      parts_(std::move(parts)),
      buffer_(std::move(buffer)) {
  if (!parts_.attend) {
    parts_.attend = [this](const CacheLayerView& cache, const KvBWeights& kv_b,
                           std::span<const AttentionSequence> sequences, const float* q, float* out, float* lse,
                           Executor& executor) { attention_.Run(cache, kv_b, sequences, q, out, lse, executor); };
  }
  Carver carver(buffer_);
  PlaceWorkspace(config, limits, &carver, &ws_);
  if (!limits.profile) return;
  measured_ = std::make_unique<StepMeter>(limits.workers);
  measured_->products.loaded = {weights.arena.data(), static_cast<std::size_t>(weights.arena.bytes())};
}

void Transformer::FirstTouch(Executor& executor) {
  mla::FirstTouch(buffer_, executor);
  attention_.FirstTouch(executor);
}

Transformer::Memory Transformer::memory() const { return {buffer_.bytes() + attention_.bytes(), parts_.rope->bytes()}; }

StepProfile Transformer::profile() const {
  MLA_CHECK(measured_ != nullptr);
  return measured_->Profile(attention_.profile());
}

void Transformer::ResetProfile() {
  MLA_CHECK(measured_ != nullptr);
  measured_->Reset();
  attention_.ResetProfile();
}

Executor& Transformer::Watched(Executor& executor) const {
  if (!measured_) return executor;
  measured_->meter.Watch(&executor);
  return measured_->meter;
}

void Transformer::Look(Stage stage, std::int64_t layer, const Batch& batch) const {
  if (parts_.observe) parts_.observe(stage, layer, ws_, batch);
}

void Transformer::RunLayer(const weights::Layer& layer, std::int64_t index, const Batch& batch,
                           const LatentCache& cache, Executor& executor) {
  const MlaContext mla{config_, *parts_.kernels, *parts_.rope, parts_.attend, executor, ws_, measured_.get()};
  const MlpContext mlp{config_, *parts_.kernels, parts_.route, executor, ws_, measured_.get()};
  const CacheLayerView rows = cache.Layer(index);
  Look(Stage::kEntered, index, batch);
  ProjectAndStore(mla, layer, rows, batch);
  Look(Stage::kProjected, index, batch);
  Attend(mla, layer, rows, batch);
  Look(Stage::kAttended, index, batch);
  AddAttention(mla, layer, batch.rows());
  Look(Stage::kAttentionAdded, index, batch);
  RunMlp(mlp, layer, index, batch);
  Look(Stage::kDone, index, batch);
}

// ws.x -> ws.normed.
void Transformer::NormRows(const float* weight, std::int64_t rows, Executor& executor) const {
  const StepScope scope(measured_.get(), StepPhase::kFinalNorm);
  const std::int64_t hidden = config_.hidden_size;
  ParallelFor(executor, rows, [&](std::int64_t row, int /*worker*/) {
    parts_.kernels->rms_norm(ws_.x + row * hidden, weight, static_cast<float>(config_.rms_norm_eps),
                             ws_.normed + row * hidden, hidden);
  });
}

void Transformer::Embed(const Batch& batch, Executor& executor) const {
  const StepScope scope(measured_.get(), StepPhase::kEmbed);
  const std::int64_t hidden = config_.hidden_size;
  const auto scale = static_cast<float>(config_.embedding_scale);
  ParallelFor(executor, batch.rows(), [&](std::int64_t row, int /*worker*/) {
    float* x = ws_.x + row * hidden;
    weights_.embed.Lookup(batch.ids[static_cast<std::size_t>(row)], x);
    for (std::int64_t i = 0; i < hidden; ++i) x[i] *= scale;
  });
}

const float* Transformer::Forward(const Batch& batch, const LatentCache& cache, Executor& callers) {
  Executor& executor = Watched(callers);
  Embed(batch, executor);
  for (std::int64_t i = 0; i < std::ssize(weights_.layers); ++i) {
    RunLayer(weights_.layers[static_cast<std::size_t>(i)], i, batch, cache, executor);
  }
  NormRows(weights_.norm, batch.rows(), executor);
  return ws_.normed;
}

const float* Transformer::ForwardMtp(const Batch& batch, std::span<const std::int32_t> from, const LatentCache& cache,
                                     Executor& callers) {
  Executor& executor = Watched(callers);
  MLA_CHECK(ws_.mtp_in != nullptr && !weights_.mtp.empty());
  const weights::Mtp& mtp = weights_.mtp.front();
  const weights::Embedding& embed = mtp.embed ? *mtp.embed : weights_.embed;
  const std::int64_t rows = batch.rows();
  const std::int64_t hidden = config_.hidden_size;
  const auto eps = static_cast<float>(config_.rms_norm_eps);
  const auto scale = static_cast<float>(config_.embedding_scale);
  ParallelFor(executor, rows, [&](std::int64_t row, int /*worker*/) {
    float* pair = ws_.mtp_in + row * 2 * hidden;
    embed.Lookup(batch.ids[static_cast<std::size_t>(row)], pair);
    for (std::int64_t i = 0; i < hidden; ++i) pair[i] *= scale;
    parts_.kernels->rms_norm(pair, mtp.enorm, eps, pair, hidden);
    parts_.kernels->rms_norm(ws_.normed + from[static_cast<std::size_t>(row)] * hidden, mtp.hnorm, eps, pair + hidden,
                             hidden);
  });
  ops::Gemm(ws_.Gemm(executor, *parts_.kernels, CountsOf(measured_.get())),
            ops::GemmProblem{ws_.mtp_in, 2 * hidden, ws_.x, hidden, rows, mtp.eh_proj});
  const AttentionCounters before = attention_.counters();
  RunLayer(mtp.layer, config_.num_hidden_layers, batch, cache, executor);
  attention_.ResetCounters(before);  // they are of the model's own layers
  NormRows(mtp.norm, rows, executor);
  return ws_.normed;
}

void Transformer::Logits(std::span<const std::int32_t> rows, float* logits, Executor& executor) const {
  RunHead(weights_.lm_head, rows, logits, executor);
}

void Transformer::MtpLogits(std::span<const std::int32_t> rows, float* logits, Executor& executor) const {
  const weights::Mtp& mtp = weights_.mtp.front();
  RunHead(mtp.head ? *mtp.head : weights_.lm_head, rows, logits, executor);
}

void Transformer::RunHead(const ops::PackedMatrix& head, std::span<const std::int32_t> rows, float* logits,
                          Executor& executor) const {
  const StepScope scope(measured_.get(), StepPhase::kLogits);
  ops::GemmProblem p{
      ws_.normed, config_.hidden_size, logits, config_.vocab_size, static_cast<std::int64_t>(rows.size()), head};
  p.x_rows = rows.data();
  p.scale = static_cast<float>(config_.logit_scale);
  ops::Gemm(ws_.Gemm(Watched(executor), *parts_.kernels, CountsOf(measured_.get())), p);
}

}  // namespace mla::layers
