#include "plan/exact.h"
#include "plan/heads.h"

namespace mla::plan {
namespace {

struct AttentionCount {
  Exact query;
  Exact key_value;
  Exact output;
  Exact norms;
};

bool HasBias(BiasRule rule, bool field) {
  return rule == BiasRule::kAlwaysNoOutput || (rule != BiasRule::kNone && field);
}

// Of one layer of keys and values.
AttentionCount OfHeads(const HeadsFamily& family, const Shape& shape, const LayerGroup& g, bool bias_field,
                       bool qk_norm) {
  const bool bias = HasBias(family.bias, bias_field);
  const Exact inputs = Exact(shape.hidden) + (bias ? 1 : 0);
  const Exact queries = Exact(g.heads) * g.key_dim;
  const Exact keys = Exact(g.kv_heads) * g.key_dim;
  AttentionCount c;
  c.query = inputs * queries * (family.gated_query ? 2 : 1) + (family.sinks ? g.heads : 0);
  c.key_value = inputs * (keys + Exact(g.kv_heads) * g.value_dim);
  c.output = Exact(g.heads) * g.value_dim * shape.hidden;
  if (family.bias == BiasRule::kField && bias) c.output += shape.hidden;
  if (qk_norm) c.norms = family.qk_norm == NormRule::kRow ? queries + keys : Exact(2) * g.key_dim;
  return c;
}

// Of one gated delta-rule layer (Qwen3-Next): query, key, value and gate; decay and step; the convolution; the norm.
AttentionCount OfLinear(const Shape& shape, const LayerGroup& g) {
  const Exact keys = Exact(g.kv_heads) * g.key_dim;
  const Exact values = Exact(g.heads) * g.value_dim;
  AttentionCount c;
  c.query = Exact(shape.hidden) * keys;
  c.key_value = Exact(shape.hidden) * (keys + values * 2 + Exact(2) * g.heads) + (keys * 2 + values) * g.taps +
                Exact(2) * g.heads;
  c.output = values * shape.hidden;
  c.norms = g.value_dim;
  return c;
}

Exact ExpertsOf(const HeadsFamily& family, const Shape& shape) {
  const ExpertShape& e = shape.experts;
  Exact one = Exact(3) * shape.hidden * e.width;
  if (family.expert_biases) one += Exact(2) * e.width + shape.hidden;
  return one * e.experts * e.layers;
}

Exact RouterOf(const HeadsFamily& family, const Shape& shape) {
  const ExpertShape& e = shape.experts;
  Exact router = Exact(e.experts) * (Exact(shape.hidden) + (family.expert_biases || family.router_bias ? 1 : 0));
  if (family.shared_gate && e.shared_width > 0) router += shape.hidden;
  return router * e.layers;
}

}  // namespace

Result<Parameters> CountHeads(const HeadsFamily& family, const Shape& shape, bool attention_bias, bool qk_norm) {
  Exact query;
  Exact key_value;
  Exact output;
  Exact norms = Exact(shape.layers) * family.norms * shape.hidden + (family.norms > 0 ? shape.hidden : 0);
  for (const LayerGroup& g : shape.groups) {
    const AttentionCount one =
        g.kind == AttentionKind::kLinear ? OfLinear(shape, g) : OfHeads(family, shape, g, attention_bias, qk_norm);
    query += one.query * g.layers;
    key_value += one.key_value * g.layers;
    output += one.output * g.layers;
    norms += one.norms * g.layers;
  }
  const Exact table = Exact(shape.vocab) * shape.hidden;
  const ExpertShape& e = shape.experts;
  Parameters p;
  Exact sum;
  const auto set = [&](Part part, Exact n) {
    sum += n;
    p[part] = sum.fits() ? n.value() : 0;
  };
  set(Part::kEmbedding, table);
  set(Part::kQuery, query);
  set(Part::kKeyValue, key_value);
  set(Part::kOutput, output);
  set(Part::kNorms, norms);
  set(Part::kDense, Exact(3) * shape.hidden * shape.dense_width * (shape.layers - e.layers));
  set(Part::kRouter, RouterOf(family, shape));
  set(Part::kExperts, ExpertsOf(family, shape));
  set(Part::kShared, Exact(3) * shape.hidden * e.shared_width * e.layers);
  set(Part::kHead, shape.tied ? Exact(0) : table);
  MLA_ASSIGN_OR_RETURN(const std::int64_t ignored, sum.Get("parameters"));
  static_cast<void>(ignored);
  return p;
}

}  // namespace mla::plan
