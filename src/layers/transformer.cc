#include "layers/transformer.h"

#include <iterator>
#include <utility>

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
  options.kernels = kernels;
  options.huge_pages = limits.huge_pages;
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
}

void Transformer::FirstTouch(Executor& executor) {
  mla::FirstTouch(buffer_, executor);
  attention_.FirstTouch(executor);
}

Transformer::Memory Transformer::memory() const { return {buffer_.bytes() + attention_.bytes(), parts_.rope->bytes()}; }

void Transformer::Look(Stage stage, std::int64_t layer, const Batch& batch) const {
  if (parts_.observe) parts_.observe(stage, layer, ws_, batch);
}

const float* Transformer::Forward(const Batch& batch, const LatentCache& cache, Executor& executor) {
  const std::int64_t rows = batch.rows();
  const std::int64_t hidden = config_.hidden_size;
  const auto scale = static_cast<float>(config_.embedding_scale);
  ParallelFor(executor, rows, [&](std::int64_t row, int /*worker*/) {
    float* x = ws_.x + row * hidden;
    weights_.embed.Lookup(batch.ids[static_cast<std::size_t>(row)], x);
    for (std::int64_t i = 0; i < hidden; ++i) x[i] *= scale;
  });
  const MlaContext mla{config_, *parts_.kernels, *parts_.rope, parts_.attend, executor, ws_};
  const MlpContext mlp{config_, *parts_.kernels, parts_.route, executor, ws_};
  for (std::int64_t i = 0; i < std::ssize(weights_.layers); ++i) {
    const weights::Layer& layer = weights_.layers[static_cast<std::size_t>(i)];
    const CacheLayerView rows_of_layer = cache.Layer(i);
    Look(Stage::kEntered, i, batch);
    ProjectAndStore(mla, layer, rows_of_layer, batch);
    Look(Stage::kProjected, i, batch);
    Attend(mla, layer, rows_of_layer, batch);
    Look(Stage::kAttended, i, batch);
    AddAttention(mla, layer, rows);
    Look(Stage::kAttentionAdded, i, batch);
    RunMlp(mlp, layer, i, batch);
    Look(Stage::kDone, i, batch);
  }
  ParallelFor(executor, rows, [&](std::int64_t row, int /*worker*/) {
    parts_.kernels->rms_norm(ws_.x + row * hidden, weights_.norm, static_cast<float>(config_.rms_norm_eps),
                             ws_.normed + row * hidden, hidden);
  });
  return ws_.normed;
}

void Transformer::Logits(std::span<const std::int32_t> rows, float* logits, Executor& executor) const {
  ops::GemmProblem p{
      ws_.normed,      config_.hidden_size, logits, config_.vocab_size, static_cast<std::int64_t>(rows.size()),
      weights_.lm_head};
  p.x_rows = rows.data();
  p.scale = static_cast<float>(config_.logit_scale);
  ops::Gemm(ws_.Gemm(executor, *parts_.kernels), p);
}

}  // namespace mla::layers
