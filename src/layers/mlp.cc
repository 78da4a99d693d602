#include "layers/mlp.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "ops/routing.h"

namespace mla::layers {
namespace {

// x += residual_scale * down(silu(gate(normed)) * up(normed)), over all rows.
void RunDense(const MlpContext& context, const weights::Mlp& mlp, std::int64_t rows) {
  const Workspace& ws = context.ws;
  const std::int64_t hidden = context.config.hidden_size;
  const std::int64_t i = mlp.intermediate_size;
  ops::GemmProblem gate_up{ws.normed, hidden, ws.activated, i, rows, mlp.gate_up};
  gate_up.swiglu = i;
  ops::Gemm(context.gemm(), gate_up);
  ops::GemmProblem down{ws.activated, i, ws.x, hidden, rows, mlp.down};
  down.add = true;
  down.scale = static_cast<float>(context.config.residual_scale);
  ops::Gemm(context.gemm(), down);
}

ops::TopK MethodOf(contract::TopkMethod method) {
  switch (method) {
    case contract::TopkMethod::kGreedy: return ops::TopK::kGreedy;
    case contract::TopkMethod::kGroupLimitedGreedy: return ops::TopK::kGroupLimited;
    case contract::TopkMethod::kNoauxTc: return ops::TopK::kNoauxTc;
  }
  MLA_CHECK(false);
}

ops::RouterSpec SpecOf(const contract::MoeConfig& m) {
  ops::RouterSpec spec;
  spec.experts = m.n_routed_experts;
  spec.top_k = m.num_experts_per_tok;
  spec.scoring = m.scoring_func == contract::ScoringFunc::kSoftmax ? ops::Scoring::kSoftmax : ops::Scoring::kSigmoid;
  spec.method = MethodOf(m.topk_method);
  spec.groups = m.n_group;
  spec.topk_group = m.topk_group;
  spec.norm_topk_prob = m.norm_topk_prob;
  spec.routed_scaling_factor = m.routed_scaling_factor;
  return spec;
}

// Chooses experts for every row, then sorts (token, slot) by expert, tokens in order within each.
void Route(const MlpContext& context, const weights::Moe& moe, std::int64_t layer, const Batch& batch) {
  const Workspace& ws = context.ws;
  const contract::MoeConfig& m = *context.config.moe;
  const std::int64_t e = m.n_routed_experts;
  const std::int64_t k = m.num_experts_per_tok;
  const std::int64_t rows = batch.rows();
  const ops::RouterSpec spec = SpecOf(m);
  ops::Gemm(context.gemm(),
            ops::GemmProblem{ws.normed, context.config.hidden_size, ws.router_logits, e, rows, moe.router});
  ParallelFor(context.executor, rows, [&](std::int64_t row, int worker) {
    context.route({layer, batch.positions[static_cast<std::size_t>(row)], spec, ws.router_logits + row * e, moe.bias,
                   ws.router_scratch + worker * ops::RouteScratch(e, m.n_group), ws.expert + row * k,
                   ws.expert_weight + row * k});
  });
  std::fill_n(ws.expert_begin, e + 1, 0);
  for (std::int64_t i = 0; i < rows * k; ++i) ++ws.expert_begin[ws.expert[i] + 1];
  for (std::int64_t x = 0; x < e; ++x) ws.expert_begin[x + 1] += ws.expert_begin[x];
  for (std::int64_t i = 0; i < rows * k; ++i) {
    const std::int32_t at = ws.expert_begin[ws.expert[i]]++;
    ws.sorted_token[at] = static_cast<std::int32_t>(i / k);
    ws.sorted_slot[at] = static_cast<std::int32_t>(i);
  }
  // Each begin has moved to the next one's place: move them back.
  for (std::int64_t x = e; x > 0; --x) ws.expert_begin[x] = ws.expert_begin[x - 1];
  ws.expert_begin[0] = 0;
}

// The chosen experts' results, each (token, slot) to its own row of slot_out. Every expert's weights are read once.
void RunExperts(const MlpContext& context, const weights::Moe& moe) {
  const Workspace& ws = context.ws;
  const contract::MoeConfig& m = *context.config.moe;
  const std::int64_t hidden = context.config.hidden_size;
  const std::int64_t i = m.moe_intermediate_size;
  std::size_t products = 0;
  for (std::int64_t e = 0; e < m.n_routed_experts; ++e) {
    const std::int64_t begin = ws.expert_begin[e];
    const std::int64_t count = ws.expert_begin[e + 1] - begin;
    if (count == 0) continue;
    ops::GemmProblem& p = ws.products[products++];
    p = ops::GemmProblem{ws.normed, hidden, ws.activated + begin * i,
                         i,         count,  moe.experts[static_cast<std::size_t>(e)].gate_up};
    p.x_rows = ws.sorted_token + begin;
    p.swiglu = i;
  }
  ops::Gemm(context.gemm(), std::span<const ops::GemmProblem>(ws.products, products));
  products = 0;
  for (std::int64_t e = 0; e < m.n_routed_experts; ++e) {
    const std::int64_t begin = ws.expert_begin[e];
    const std::int64_t count = ws.expert_begin[e + 1] - begin;
    if (count == 0) continue;
    ops::GemmProblem& p = ws.products[products++];
    p = ops::GemmProblem{
        ws.activated + begin * i, i, ws.slot_out, hidden, count, moe.experts[static_cast<std::size_t>(e)].down};
    p.y_rows = ws.sorted_slot + begin;
  }
  ops::Gemm(context.gemm(), std::span<const ops::GemmProblem>(ws.products, products));
}

void RunMoe(const MlpContext& context, const weights::Moe& moe, std::int64_t layer, const Batch& batch) {
  const Workspace& ws = context.ws;
  const std::int64_t hidden = context.config.hidden_size;
  const std::int64_t k = context.config.moe->num_experts_per_tok;
  const std::int64_t rows = batch.rows();
  Route(context, moe, layer, batch);
  RunExperts(context, moe);
  if (moe.shared) RunDense(context, *moe.shared, rows);
  const auto scale = static_cast<float>(context.config.residual_scale);
  ParallelFor(context.executor, rows, [&](std::int64_t row, int /*worker*/) {
    for (std::int64_t slot = row * k; slot < (row + 1) * k; ++slot) {
      context.kernels.add_scaled(ws.slot_out + slot * hidden, scale * ws.expert_weight[slot], ws.x + row * hidden,
                                 hidden);
    }
  });
}

}  // namespace

void RunMlp(const MlpContext& context, const weights::Layer& layer, std::int64_t index, const Batch& batch) {
  const Workspace& ws = context.ws;
  const std::int64_t hidden = context.config.hidden_size;
  const std::int64_t rows = batch.rows();
  ParallelFor(context.executor, rows, [&](std::int64_t row, int /*worker*/) {
    context.kernels.rms_norm(ws.x + row * hidden, layer.post_attention_norm,
                             static_cast<float>(context.config.rms_norm_eps), ws.normed + row * hidden, hidden);
  });
  if (layer.moe) {
    RunMoe(context, *layer.moe, index, batch);
  } else {
    RunDense(context, *layer.dense, rows);
  }
}

}  // namespace mla::layers
