#include "layers/mlp.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "ops/routing.h"

namespace mla::layers {
namespace {

// The two products of an MLP over `rows` rows of normed: silu(gate) * up to `activated` [rows, I], then down of it. The
// caller says which rows, and where down's go.
ops::GemmProblem FirstProduct(const MlpContext& context, const weights::Mlp& mlp, std::int64_t rows, float* activated) {
  const std::int64_t i = mlp.intermediate_size;
  ops::GemmProblem p{context.ws.normed, context.config.hidden_size, activated, i, rows, mlp.gate_up};
  p.swiglu = i;
  return p;
}

ops::GemmProblem SecondProduct(const MlpContext& context, const weights::Mlp& mlp, std::int64_t rows,
                               const float* activated, float* out) {
  return {activated, mlp.intermediate_size, out, context.config.hidden_size, rows, mlp.down};
}

// x += residual_scale * down(silu(gate(normed)) * up(normed)): the second half.
ops::GemmProblem AddedToResidual(const MlpContext& context, const weights::Mlp& mlp, std::int64_t rows,
                                 const float* activated) {
  ops::GemmProblem p = SecondProduct(context, mlp, rows, activated, context.ws.x);
  p.add = true;
  p.scale = static_cast<float>(context.config.residual_scale);
  return p;
}

void RunDense(const MlpContext& context, const weights::Mlp& mlp, std::int64_t rows) {
  ops::Gemm(context.gemm(), FirstProduct(context, mlp, rows, context.ws.activated));
  ops::Gemm(context.gemm(), AddedToResidual(context, mlp, rows, context.ws.activated));
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

// The shared experts' result onto x; the chosen experts', each (token, slot) to its own row of slot_out. Every expert's
// weights are read once. All MLPs go side by side, so that workers meet twice, whatever the number of experts.
void RunExperts(const MlpContext& context, const weights::Moe& moe, std::int64_t rows) {
  const Workspace& ws = context.ws;
  const std::int64_t width = context.config.moe->moe_intermediate_size;
  const std::int64_t shared_width = moe.shared ? moe.shared->intermediate_size : 0;
  float* activated = ws.activated + rows * shared_width;  // the shared experts' rows come first
  const auto experts = [&](std::size_t products, const auto& product_of) {
    for (std::int64_t e = 0; e < context.config.moe->n_routed_experts; ++e) {
      const std::int64_t begin = ws.expert_begin[e];
      const std::int64_t count = ws.expert_begin[e + 1] - begin;
      if (count == 0) continue;
      ws.products[products++] =
          product_of(moe.experts[static_cast<std::size_t>(e)], begin, count, activated + begin * width);
    }
    ops::Gemm(context.gemm(), std::span<const ops::GemmProblem>(ws.products, products));
  };
  const std::size_t first = moe.shared ? 1 : 0;
  if (moe.shared) ws.products[0] = FirstProduct(context, *moe.shared, rows, ws.activated);
  experts(first, [&](const weights::Mlp& mlp, std::int64_t begin, std::int64_t count, float* out) {
    ops::GemmProblem p = FirstProduct(context, mlp, count, out);
    p.x_rows = ws.sorted_token + begin;
    return p;
  });
  if (moe.shared) ws.products[0] = AddedToResidual(context, *moe.shared, rows, ws.activated);
  experts(first, [&](const weights::Mlp& mlp, std::int64_t begin, std::int64_t count, const float* in) {
    ops::GemmProblem p = SecondProduct(context, mlp, count, in, ws.slot_out);
    p.y_rows = ws.sorted_slot + begin;
    return p;
  });
}

void RunMoe(const MlpContext& context, const weights::Moe& moe, std::int64_t layer, const Batch& batch) {
  const Workspace& ws = context.ws;
  const std::int64_t hidden = context.config.hidden_size;
  const std::int64_t k = context.config.moe->num_experts_per_tok;
  const std::int64_t rows = batch.rows();
  Route(context, moe, layer, batch);
  RunExperts(context, moe, rows);
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
  const StepScope scope(context.measured, StepPhase::kMlp);
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
