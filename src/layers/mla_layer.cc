#include "layers/mla_layer.h"

#include <algorithm>

namespace mla::layers {
namespace {

// One row of the cache: norms the latent, rotates k_pe, stores both. The rounded row is what attention reads, for this
// token too.
void StoreRow(const MlaContext& context, const weights::Attention& a, const CacheLayerView& cache, const Batch& batch,
              std::int64_t row, float* kv_a) {
  const contract::ModelConfig& c = context.config;
  float* k_pe = kv_a + c.kv_lora_rank;
  context.kernels.rms_norm(kv_a, a.kv_a_norm, static_cast<float>(c.latent_norm_eps), kv_a, c.kv_lora_rank);
  context.rope.Rotate(k_pe, batch.positions[static_cast<std::size_t>(row)]);
  WriteCacheRow(cache, batch.slots[static_cast<std::size_t>(row)], kv_a, k_pe);
}

// Every head's q_pe of a row.
void RotateQueries(const MlaContext& context, const Batch& batch, std::int64_t row, float* q) {
  const contract::ModelConfig& c = context.config;
  const std::int64_t q_head = c.qk_nope_head_dim + c.qk_rope_head_dim;
  for (std::int64_t head = 0; head < c.num_attention_heads; ++head) {
    context.rope.Rotate(q + head * q_head + c.qk_nope_head_dim, batch.positions[static_cast<std::size_t>(row)]);
  }
}

// ws.x -> ws.normed.
void NormInput(const MlaContext& context, const float* weight, std::int64_t rows) {
  const StepScope scope(context.measured, StepPhase::kInputNorm);
  const std::int64_t hidden = context.config.hidden_size;
  ParallelFor(context.executor, rows, [&](std::int64_t row, int /*worker*/) {
    context.kernels.rms_norm(context.ws.x + row * hidden, weight, static_cast<float>(context.config.rms_norm_eps),
                             context.ws.normed + row * hidden, hidden);
  });
}

// What q_a_kv_a holds: latents and k_pe to the cache, and q_a normed for the next product. Without q_lora_rank the
// queries lie beside the latent already; they move to q so that both cases go on alike.
void StoreRows(const MlaContext& context, const weights::Attention& a, const CacheLayerView& cache, const Batch& batch,
               std::int64_t q_width) {
  const StepScope scope(context.measured, StepPhase::kStore);
  const contract::ModelConfig& c = context.config;
  const std::int64_t q_in = c.q_lora_rank.value_or(q_width);
  ParallelFor(context.executor, batch.rows(), [&](std::int64_t row, int /*worker*/) {
    float* q_a = context.ws.q_a_kv_a + row * a.q_a_kv_a.n;
    float* q = context.ws.q + row * q_width;
    StoreRow(context, a, cache, batch, row, q_a + q_in);
    if (c.q_lora_rank) {
      context.kernels.rms_norm(q_a, a.q_a_norm, static_cast<float>(c.latent_norm_eps), q_a, q_in);
    } else {
      std::copy_n(q_a, q_width, q);
      RotateQueries(context, batch, row, q);
    }
  });
}

void Multiply(const MlaContext& context, StepPhase phase, const ops::GemmProblem& problem) {
  const StepScope scope(context.measured, phase);
  ops::Gemm(context.gemm(), problem);
}

}  // namespace

void ProjectAndStore(const MlaContext& context, const weights::Layer& layer, const CacheLayerView& cache,
                     const Batch& batch) {
  const contract::ModelConfig& c = context.config;
  const Workspace& ws = context.ws;
  const weights::Attention& a = layer.attention;
  const std::int64_t rows = batch.rows();
  const std::int64_t q_width = c.num_attention_heads * (c.qk_nope_head_dim + c.qk_rope_head_dim);
  const std::int64_t a_width = a.q_a_kv_a.n;

  NormInput(context, layer.input_norm, rows);
  Multiply(context, StepPhase::kQaKva, {ws.normed, c.hidden_size, ws.q_a_kv_a, a_width, rows, a.q_a_kv_a});
  StoreRows(context, a, cache, batch, q_width);
  if (!c.q_lora_rank) return;
  Multiply(context, StepPhase::kQb, {ws.q_a_kv_a, a_width, ws.q, q_width, rows, a.q_b});
  const StepScope scope(context.measured, StepPhase::kRotate);
  ParallelFor(context.executor, rows,
              [&](std::int64_t row, int /*worker*/) { RotateQueries(context, batch, row, ws.q + row * q_width); });
}

void Attend(const MlaContext& context, const weights::Layer& layer, const CacheLayerView& cache, const Batch& batch) {
  const StepScope scope(context.measured, StepPhase::kAttention);
  const Workspace& ws = context.ws;
  context.attend(cache, *layer.attention.kv_b, batch.sequences, ws.q, ws.attended, nullptr, context.executor);
}

void AddAttention(const MlaContext& context, const weights::Layer& layer, std::int64_t rows) {
  const contract::ModelConfig& c = context.config;
  const Workspace& ws = context.ws;
  ops::GemmProblem out{ws.attended, c.num_attention_heads * c.v_head_dim, ws.x, c.hidden_size, rows, layer.attention.o};
  out.add = true;
  out.scale = static_cast<float>(c.residual_scale);
  Multiply(context, StepPhase::kOutput, out);
}

}  // namespace mla::layers
