#include "layers/transformer.h"

#include <utility>

#include "base/cpu_info.h"
#include "layers/mla_layer.h"
#include "layers/mlp.h"

namespace mla::layers {
namespace {

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
  return options;
}

std::int64_t StepBytes(const contract::ModelConfig& config, const StepLimits& limits) {
  Carver carver;
  Workspace ws;
  PlaceWorkspace(config, limits, &carver, &ws);
  return carver.used();
}

}  // namespace

Transformer::Memory Transformer::Planned(const contract::ModelConfig& config, const StepLimits& limits) {
  return {StepBytes(config, limits) + MlaAttention::WorkspaceBytes(AttentionOptions(config, limits, "")),
          RopeTable::Bytes(config.rope, limits.max_keys)};
}

Result<std::unique_ptr<Transformer>> Transformer::Create(const contract::ModelConfig& config,
                                                         const weights::ModelWeights& weights, const StepLimits& limits,
                                                         const std::string& kernels) {
  MLA_ASSIGN_OR_RETURN(MlaAttention attention, MlaAttention::Create(AttentionOptions(config, limits, kernels)));
  // The attention has tested the tables of its instruction set, products and rows included: one choice for all.
  MLA_ASSIGN_OR_RETURN(const Isa isa, SelectIsa(DetectCpu(), attention.kernels()));
  MLA_ASSIGN_OR_RETURN(RopeTable rope, RopeTable::Create(config.rope, limits.max_keys));
  MLA_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(StepBytes(config, limits), "step workspace"));
  return std::unique_ptr<Transformer>(new Transformer(config, weights, ops::KernelsFor(isa), std::move(attention),
                                                      std::move(rope), std::move(buffer), limits));
}

Transformer::Transformer(const contract::ModelConfig& config, const weights::ModelWeights& weights,
                         const ops::OpKernels& kernels, MlaAttention attention, RopeTable rope, Buffer buffer,
                         const StepLimits& limits)
    : config_(config),
      weights_(weights),
      kernels_(kernels),
      attention_(std::move(attention)),
      rope_(std::move(rope)),
      buffer_(std::move(buffer)) {
  Carver carver(buffer_);
  PlaceWorkspace(config, limits, &carver, &ws_);
}

Transformer::Memory Transformer::memory() const { return {buffer_.bytes() + attention_.bytes(), rope_.bytes()}; }

const float* Transformer::Forward(const Batch& batch, const LatentCache& cache, Executor& executor) {
  const std::int64_t rows = batch.rows();
  const std::int64_t hidden = config_.hidden_size;
  const auto scale = static_cast<float>(config_.embedding_scale);
  ParallelFor(executor, rows, [&](std::int64_t row, int /*worker*/) {
    float* x = ws_.x + row * hidden;
    weights_.embed.Lookup(batch.ids[static_cast<std::size_t>(row)], x);
    for (std::int64_t i = 0; i < hidden; ++i) x[i] *= scale;
  });
  const MlaContext mla{config_, kernels_, rope_, attention_, executor, ws_};
  const MlpContext mlp{config_, kernels_, executor, ws_};
  for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
    RunMlaLayer(mla, weights_.layers[i], cache.Layer(static_cast<std::int64_t>(i)), batch);
    RunMlp(mlp, weights_.layers[i], rows);
  }
  ParallelFor(executor, rows, [&](std::int64_t row, int /*worker*/) {
    kernels_.rms_norm(ws_.x + row * hidden, weights_.norm, static_cast<float>(config_.rms_norm_eps),
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
  ops::Gemm(executor, kernels_, p);
}

}  // namespace mla::layers
