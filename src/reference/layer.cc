#include "reference/layer.h"

#include <algorithm>

#include "reference/routing.h"

namespace mla::reference {
namespace {

// Queries of all heads, [T, H (N+P)]: DeepSeek-V3 equations 6 to 9. Both parts of a head come from one product, whose
// rows are [W^UQ of the head; W^QR of the head].
Matrix Queries(const contract::ModelConfig& config, const AttentionWeights& w, std::span<const RopeAngles> angles,
               const Matrix& x) {
  Matrix q;
  if (config.q_lora_rank.has_value()) {
    const Matrix c_q = RmsNormRows(Product(x, w.q_a_proj), w.q_a_layernorm, config.latent_norm_eps);
    q = Product(c_q, w.q_b_proj);
  } else {
    q = Product(x, w.q_proj);
  }
  const std::int64_t head_dim = config.qk_nope_head_dim + config.qk_rope_head_dim;
  for (std::int64_t t = 0; t < q.rows; ++t) {
    for (std::int64_t h = 0; h < config.num_attention_heads; ++h) {
      Rotate(config.rope.layout, angles[static_cast<std::size_t>(t)],
             q.row(t) + h * head_dim + config.qk_nope_head_dim);
    }
  }
  return q;
}

// Keys and values of the rows, appended to the cache: DeepSeek-V3 equations 1 to 5. c_kv is normed (the paper says so
// in its section 4.2, "additional RMSNorm layers after the compressed latent vectors"), k_pe is not; k_pe is rotated
// once and shared by all heads.
void AppendKeysAndValues(const contract::ModelConfig& config, const AttentionWeights& w,
                         std::span<const RopeAngles> angles, const Matrix& x, LayerCache& cache) {
  const std::int64_t n = config.qk_nope_head_dim;
  const std::int64_t v = config.v_head_dim;
  Matrix compressed = Product(x, w.kv_a_proj_with_mqa);  // [T, R+P]
  Matrix c_kv = Zeros(x.rows, config.kv_lora_rank);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    RmsNorm(compressed.row(t), w.kv_a_layernorm, config.latent_norm_eps, c_kv.row(t));
    Rotate(config.rope.layout, angles[static_cast<std::size_t>(t)], compressed.row(t) + config.kv_lora_rank);
  }
  const Matrix expanded = Product(c_kv, w.kv_b_proj);  // [T, H (N+V)]
  for (std::int64_t t = 0; t < x.rows; ++t) {
    const double* k_pe = compressed.row(t) + config.kv_lora_rank;
    for (std::int64_t h = 0; h < config.num_attention_heads; ++h) {
      const double* head = expanded.row(t) + h * (n + v);
      auto& keys = cache.keys[static_cast<std::size_t>(h)];
      auto& values = cache.values[static_cast<std::size_t>(h)];
      keys.insert(keys.end(), head, head + n);
      keys.insert(keys.end(), k_pe, k_pe + config.qk_rope_head_dim);
      values.insert(values.end(), head + n, head + n + v);
    }
  }
}

// DeepSeek-V3 equations 10 and 11.
Matrix Attention(const contract::ModelConfig& config, const AttentionWeights& w, std::span<const RopeAngles> angles,
                 const Matrix& x, LayerCache& cache) {
  const std::int64_t head_dim = config.qk_nope_head_dim + config.qk_rope_head_dim;
  const std::int64_t v = config.v_head_dim;
  const double scale = AttentionScale(config);
  const Matrix q = Queries(config, w, angles, x);
  AppendKeysAndValues(config, w, angles, x, cache);
  const std::int64_t length = static_cast<std::int64_t>(cache.values[0].size()) / v;
  Matrix heads = Zeros(x.rows, config.num_attention_heads * v);
  for (std::int64_t h = 0; h < config.num_attention_heads; ++h) {
    const double* keys = cache.keys[static_cast<std::size_t>(h)].data();
    const double* values = cache.values[static_cast<std::size_t>(h)].data();
    for (std::int64_t t = 0; t < x.rows; ++t) {
      const std::int64_t visible = length - x.rows + t + 1;  // itself and all before it
      std::vector<double> weight(static_cast<std::size_t>(visible));
      for (std::int64_t j = 0; j < visible; ++j) {
        weight[static_cast<std::size_t>(j)] = scale * Dot(q.row(t) + h * head_dim, keys + j * head_dim, head_dim);
      }
      Softmax(weight);
      for (std::int64_t j = 0; j < visible; ++j) {
        AddScaled(weight[static_cast<std::size_t>(j)], values + j * v, heads.row(t) + h * v, v);
      }
    }
  }
  return Product(heads, w.o_proj);
}

// SwiGLU: down(silu(gate x) * up x).
Matrix Mlp(const MlpWeights& w, const Matrix& x) {
  Matrix inner = Product(x, w.gate_proj);
  const Matrix up = Product(x, w.up_proj);
  for (std::size_t i = 0; i < inner.values.size(); ++i) inner.values[i] = Silu(inner.values[i]) * up.values[i];
  return Product(inner, w.down_proj);
}

// DeepSeek-V3 equations 12 to 16, without the residual u_t.
Matrix Moe(const contract::MoeConfig& config, const MoeWeights& w, const Matrix& x) {
  Matrix out = w.shared_experts.has_value() ? Mlp(*w.shared_experts, x) : Zeros(x.rows, x.cols);
  const Matrix gate = Product(x, w.gate);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    const auto scores = GateScores({gate.row(t), static_cast<std::size_t>(gate.cols)}, config);
    const Routing routing = Route(scores, w.e_score_correction_bias, config);
    const Matrix token{1, x.cols, std::vector<double>(x.row(t), x.row(t) + x.cols)};
    for (std::size_t slot = 0; slot < routing.experts.size(); ++slot) {
      const Matrix expert = Mlp(w.experts[static_cast<std::size_t>(routing.experts[slot])], token);
      AddScaled(routing.weights[slot], expert.row(0), out.row(t), x.cols);
    }
  }
  return out;
}

void Add(double scale, const Matrix& addend, Matrix& sum) {
  for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += scale * addend.values[i];
}

}  // namespace

LayerCache EmptyCache(const contract::ModelConfig& config) {
  const auto heads = static_cast<std::size_t>(config.num_attention_heads);
  return {std::vector<std::vector<double>>(heads), std::vector<std::vector<double>>(heads)};
}

Matrix LayerForward(const contract::ModelConfig& config, const LayerWeights& weights,
                    std::span<const RopeAngles> angles, const Matrix& x, LayerCache& cache) {
  Matrix stream = x;
  const Matrix input = RmsNormRows(x, weights.input_layernorm, config.rms_norm_eps);
  Add(config.residual_scale, Attention(config, weights.self_attn, angles, input, cache), stream);
  const Matrix normed = RmsNormRows(stream, weights.post_attention_layernorm, config.rms_norm_eps);
  Add(config.residual_scale,
      weights.moe.has_value() ? Moe(*config.moe, *weights.moe, normed) : Mlp(weights.mlp, normed), stream);
  return stream;
}

}  // namespace mla::reference
