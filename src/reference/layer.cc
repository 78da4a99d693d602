#include "reference/layer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "reference/routing.h"

namespace mla::reference {
namespace {

// Queries of all heads, [T, H (N+P)]: DeepSeek-V3 equations 6 to 9. Both parts of a head come from one product, whose
// rows are [W^UQ of the head; W^QR of the head]. With bf16 inputs q_nope is rounded, as before its product with w_kc in
// the absorbed form, which rounds more than the explicit one; with attention in bf16 all of a query is. `x` is rounded
// already.
Matrix Queries(const contract::ModelConfig& config, const AttentionWeights& w, std::span<const RopeAngles> angles,
               const Matrix& x, Rounding* rounding) {
  Matrix q;
  if (config.q_lora_rank.has_value()) {
    const Matrix c_q = RmsNormRows(Product(x, w.q_a_proj, rounding), w.q_a_layernorm, config.latent_norm_eps);
    q = Product(Inputs(c_q, rounding), w.q_b_proj, rounding);
  } else {
    q = Product(x, w.q_proj, rounding);
  }
  const std::int64_t head_dim = config.qk_nope_head_dim + config.qk_rope_head_dim;
  for (std::int64_t t = 0; t < q.rows; ++t) {
    for (std::int64_t h = 0; h < config.num_attention_heads; ++h) {
      Rotate(config.rope.layout, angles[static_cast<std::size_t>(t)],
             q.row(t) + h * head_dim + config.qk_nope_head_dim);
      if (rounding == nullptr) continue;
      const bool nope = rounding->bf16_inputs() || rounding->bf16_attention();
      double* head = q.row(t) + h * head_dim;
      for (std::int64_t i = 0; i < head_dim; ++i) {
        if (i < config.qk_nope_head_dim ? nope : rounding->bf16_attention()) head[i] = rounding->ToBf16(head[i]);
      }
    }
  }
  return q;
}

// Keys and values of the rows, appended to the cache: DeepSeek-V3 equations 1 to 5. c_kv is normed (the paper says so
// in its section 4.2, "additional RMSNorm layers after the compressed latent vectors"), k_pe is not; k_pe is rotated
// once and shared by all heads. `x` is rounded already.
void AppendKeysAndValues(const contract::ModelConfig& config, const AttentionWeights& w,
                         std::span<const RopeAngles> angles, const Matrix& x, LayerCache& cache, Rounding* rounding) {
  const std::int64_t n = config.qk_nope_head_dim;
  const std::int64_t v = config.v_head_dim;
  Matrix compressed = Product(x, w.kv_a_proj_with_mqa, rounding);  // [T, R+P]
  Matrix c_kv = Zeros(x.rows, config.kv_lora_rank);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    RmsNorm(compressed.row(t), w.kv_a_layernorm, config.latent_norm_eps, c_kv.row(t));
    Rotate(config.rope.layout, angles[static_cast<std::size_t>(t)], compressed.row(t) + config.kv_lora_rank);
    if (rounding == nullptr) continue;
    if (rounding->bf16_cache()) {
      for (std::int64_t i = 0; i < c_kv.cols; ++i) c_kv.row(t)[i] = rounding->ToBf16(c_kv.row(t)[i]);
      for (std::int64_t i = config.kv_lora_rank; i < compressed.cols; ++i) {
        compressed.row(t)[i] = rounding->ToBf16(compressed.row(t)[i]);
      }
    }
    cache.latents.insert(cache.latents.end(), c_kv.row(t), c_kv.row(t) + c_kv.cols);
  }
  Matrix expanded = Product(c_kv, w.kv_b_proj, rounding);  // [T, H (N+V)]
  if (rounding != nullptr && rounding->bf16_attention()) {
    for (double& value : expanded.values) value = rounding->ToBf16(value);
  }
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

// One row of one head: its query [N+P], and the positions that it sees.
struct HeadRow {
  const contract::ModelConfig& config;
  const AttentionWeights& w;
  const LayerCache& cache;
  std::int64_t head;
  const double* q;
  std::int64_t visible;
};

// q_nope w_kc, [R].
std::vector<double> AbsorbedQuery(const HeadRow& row) {
  const auto& c = row.config;
  std::vector<double> absorbed(static_cast<std::size_t>(c.kv_lora_rank));
  for (std::int64_t i = 0; i < c.qk_nope_head_dim; ++i) {
    AddScaled(row.q[i], row.w.kv_b_proj.row(row.head * (c.qk_nope_head_dim + c.v_head_dim) + i), absorbed.data(),
              c.kv_lora_rank);
  }
  return absorbed;
}

// What fp32 does to a row's scores, in the form in which it does more: the root of (terms * sum of squares) of each
// sum. Explicit: q k over N+P. Absorbed: (q w_kc) c over R, q_pe k_pe over P.
std::vector<double> ScoreErrors(const HeadRow& row) {
  const auto& c = row.config;
  const std::int64_t n = c.qk_nope_head_dim;
  const std::int64_t p = c.qk_rope_head_dim;
  const std::int64_t r = c.kv_lora_rank;
  const std::vector<double> absorbed = AbsorbedQuery(row);
  const double* keys = row.cache.keys[static_cast<std::size_t>(row.head)].data();
  std::vector<double> errors;
  for (std::int64_t j = 0; j < row.visible; ++j) {
    const double* key = keys + j * (n + p);
    const double whole = DotWithSquares(row.q, key, n + p).squares;
    const double rope = DotWithSquares(row.q + n, key + n, p).squares;
    const double latent = DotWithSquares(absorbed.data(), row.cache.latents.data() + j * r, r).squares;
    const double squares = std::max(static_cast<double>(n + p) * whole, static_cast<double>(r + p) * (latent + rope));
    errors.push_back(std::sqrt(squares));
  }
  return errors;
}

// The same for its output [V]: sums over keys, and of the output latent over R.
std::vector<double> ValueErrors(const HeadRow& row, const std::vector<double>& weight) {
  const auto& c = row.config;
  const std::int64_t n = c.qk_nope_head_dim;
  const std::int64_t v = c.v_head_dim;
  const std::int64_t r = c.kv_lora_rank;
  std::vector<double> latent(static_cast<std::size_t>(r));
  std::vector<double> squares(static_cast<std::size_t>(v));
  const double* values = row.cache.values[static_cast<std::size_t>(row.head)].data();
  for (std::int64_t j = 0; j < row.visible; ++j) {
    const double p = weight[static_cast<std::size_t>(j)];
    AddScaled(p, row.cache.latents.data() + j * r, latent.data(), r);
    for (std::int64_t i = 0; i < v; ++i) squares[static_cast<std::size_t>(i)] += std::pow(p * values[j * v + i], 2);
  }
  for (std::int64_t i = 0; i < v; ++i) {
    double& sum = squares[static_cast<std::size_t>(i)];
    const double* w_vc = row.w.kv_b_proj.row(row.head * (n + v) + n + i);
    sum = std::sqrt(static_cast<double>(row.visible) * sum +
                    static_cast<double>(r) * DotWithSquares(w_vc, latent.data(), r).squares);
  }
  return squares;
}

// x -> what rounding each of its numbers adds to it.
void Roundings(std::vector<double>& x, Rounding* rounding) {
  for (double& value : x) value = rounding->ToBf16(value) - value;
}

// What the absorbed form's rounding of the output latent, before its product with w_vc, adds to the output [V].
void AddLatentRounding(const HeadRow& row, const std::vector<double>& weight, Rounding* rounding, double* out) {
  const auto& c = row.config;
  const std::int64_t r = c.kv_lora_rank;
  std::vector<double> latent(static_cast<std::size_t>(r));
  for (std::int64_t j = 0; j < row.visible; ++j) {
    AddScaled(weight[static_cast<std::size_t>(j)], row.cache.latents.data() + j * r, latent.data(), r);
  }
  Roundings(latent, rounding);
  const std::int64_t first = row.head * (c.qk_nope_head_dim + c.v_head_dim) + c.qk_nope_head_dim;
  for (std::int64_t i = 0; i < c.v_head_dim; ++i) out[i] += Dot(row.w.kv_b_proj.row(first + i), latent.data(), r);
}

// What its rounding of q~ = q_nope w_kc adds to the scores.
void AddQueryRounding(const HeadRow& row, double scale, Rounding* rounding, std::vector<double>& scores) {
  const auto& c = row.config;
  const std::int64_t r = c.kv_lora_rank;
  std::vector<double> absorbed = AbsorbedQuery(row);
  Roundings(absorbed, rounding);
  for (std::size_t j = 0; j < scores.size(); ++j) {
    scores[j] += scale * Dot(absorbed.data(), row.cache.latents.data() + static_cast<std::int64_t>(j) * r, r);
  }
}

// Rounds weights that are summed already, each relative to the largest. (Production's is the largest so far, which
// moves them within their binades alone.)
void RoundWeights(std::vector<double>& weight, Rounding* rounding) {
  const double largest = *std::max_element(weight.begin(), weight.end());
  for (double& w : weight) w = rounding->ToBf16(w / largest) * largest;
}

// softmax(scale q k) v of one row and head, to out [V]. Attention in bf16 rounds what either form rounds.
void AttendRow(const HeadRow& row, double scale, Rounding* rounding, double* out) {
  const std::int64_t head_dim = row.config.qk_nope_head_dim + row.config.qk_rope_head_dim;
  const std::int64_t v = row.config.v_head_dim;
  const double* keys = row.cache.keys[static_cast<std::size_t>(row.head)].data();
  const double* values = row.cache.values[static_cast<std::size_t>(row.head)].data();
  std::vector<double> weight(static_cast<std::size_t>(row.visible));
  for (std::int64_t j = 0; j < row.visible; ++j) {
    weight[static_cast<std::size_t>(j)] = scale * Dot(row.q, keys + j * head_dim, head_dim);
  }
  const bool errs = rounding != nullptr && rounding->f32_errors();
  if (errs) {
    const std::vector<double> errors = ScoreErrors(row);
    for (std::size_t j = 0; j < weight.size(); ++j) weight[j] = rounding->WithError(weight[j], scale * errors[j]);
  }
  const bool bf16 = rounding != nullptr && rounding->bf16_attention();
  if (bf16) AddQueryRounding(row, scale, rounding, weight);
  Softmax(weight);
  if (bf16) RoundWeights(weight, rounding);
  for (std::int64_t j = 0; j < row.visible; ++j) AddScaled(weight[static_cast<std::size_t>(j)], values + j * v, out, v);
  if (rounding != nullptr && rounding->bf16_inputs()) AddLatentRounding(row, weight, rounding, out);
  if (!errs) return;
  const std::vector<double> errors = ValueErrors(row, weight);
  for (std::int64_t i = 0; i < v; ++i) out[i] = rounding->WithError(out[i], errors[static_cast<std::size_t>(i)]);
}

// DeepSeek-V3 equations 10 and 11.
Matrix Attention(const contract::ModelConfig& config, const AttentionWeights& w, std::span<const RopeAngles> angles,
                 const Matrix& x, LayerCache& cache, Rounding* rounding) {
  const std::int64_t head_dim = config.qk_nope_head_dim + config.qk_rope_head_dim;
  const std::int64_t v = config.v_head_dim;
  const double scale = AttentionScale(config);
  const Matrix input = Inputs(x, rounding);
  const Matrix q = Queries(config, w, angles, input, rounding);
  AppendKeysAndValues(config, w, angles, input, cache, rounding);
  const std::int64_t length = static_cast<std::int64_t>(cache.values[0].size()) / v;
  Matrix heads = Zeros(x.rows, config.num_attention_heads * v);
  for (std::int64_t h = 0; h < config.num_attention_heads; ++h) {
    for (std::int64_t t = 0; t < x.rows; ++t) {
      const std::int64_t visible = length - x.rows + t + 1;  // itself and all before it
      const HeadRow row{config, w, cache, h, q.row(t) + h * head_dim, visible};
      AttendRow(row, scale, rounding, heads.row(t) + h * v);
    }
  }
  return Product(Inputs(std::move(heads), rounding), w.o_proj, rounding);
}

// SwiGLU: down(silu(gate x) * up x). `x` is rounded already.
Matrix Mlp(const MlpWeights& w, const Matrix& x, Rounding* rounding) {
  Matrix inner = Product(x, w.gate_proj, rounding);
  const Matrix up = Product(x, w.up_proj, rounding);
  for (std::size_t i = 0; i < inner.values.size(); ++i) inner.values[i] = Silu(inner.values[i]) * up.values[i];
  return Product(Inputs(std::move(inner), rounding), w.down_proj, rounding);
}

// DeepSeek-V3 equations 12 to 16, without the residual u_t.
Matrix Moe(const contract::MoeConfig& config, const MoeWeights& w, const Matrix& x, const LayerOptions& options) {
  Rounding* rounding = options.rounding;
  const Matrix input = Inputs(x, rounding);
  Matrix out = w.shared_experts.has_value() ? Mlp(*w.shared_experts, input, rounding) : Zeros(x.rows, x.cols);
  // The router's weights are kept in fp32, and take x as it is.
  const Matrix gate = Product(x, w.gate, rounding);
  // Rows by expert, so that each expert is read once. A token's experts are then added in ascending order.
  std::vector<std::vector<std::pair<std::int64_t, double>>> visits(static_cast<std::size_t>(config.n_routed_experts));
  if (options.chosen != nullptr) options.chosen->clear();
  for (std::int64_t t = 0; t < x.rows; ++t) {
    const auto scores = GateScores({gate.row(t), static_cast<std::size_t>(gate.cols)}, config);
    const Routing routing = options.forced != nullptr
                                ? WeighExperts(scores, (*options.forced)[static_cast<std::size_t>(t)], config)
                                : Route(scores, w.e_score_correction_bias, config);
    for (std::size_t slot = 0; slot < routing.experts.size(); ++slot) {
      visits[static_cast<std::size_t>(routing.experts[slot])].emplace_back(t, routing.weights[slot]);
    }
    if (options.chosen != nullptr) options.chosen->push_back(routing.experts);
  }
  for (std::size_t e = 0; e < visits.size(); ++e) {
    if (visits[e].empty()) continue;
    const MlpWeights& expert = w.experts.empty() ? options.expert(static_cast<std::int64_t>(e)) : w.experts[e];
    for (const auto& [t, weight] : visits[e]) {
      const Matrix token{1, x.cols, std::vector<double>(input.row(t), input.row(t) + x.cols)};
      AddScaled(weight, Mlp(expert, token, rounding).row(0), out.row(t), x.cols);
    }
  }
  return out;
}

// The residual stream is kept in fp32: one rounding.
void Add(double scale, const Matrix& addend, Matrix& sum, Rounding* rounding) {
  for (std::size_t i = 0; i < sum.values.size(); ++i) {
    sum.values[i] += scale * addend.values[i];
    if (rounding != nullptr && rounding->f32_errors())
      sum.values[i] = rounding->WithError(sum.values[i], sum.values[i]);
  }
}

}  // namespace

LayerCache EmptyCache(const contract::ModelConfig& config) {
  const auto heads = static_cast<std::size_t>(config.num_attention_heads);
  return {std::vector<std::vector<double>>(heads), std::vector<std::vector<double>>(heads), {}};
}

Matrix NormRows(const Matrix& x, std::span<const double> weight, double eps, Rounding* rounding) {
  Matrix out = RmsNormRows(x, weight, eps);
  if (rounding == nullptr || !rounding->f32_errors()) return out;
  const double size = std::sqrt(static_cast<double>(x.cols)) / 2;
  for (std::int64_t t = 0; t < out.rows; ++t) {
    const double factor = rounding->WithError(1, size);
    for (std::int64_t i = 0; i < out.cols; ++i) out.row(t)[i] *= factor;
  }
  return out;
}

Matrix LayerForward(const contract::ModelConfig& config, const LayerWeights& weights,
                    std::span<const RopeAngles> angles, const Matrix& x, LayerCache& cache,
                    const LayerOptions& options) {
  Rounding* rounding = options.rounding;
  Matrix stream = x;
  const Matrix input = NormRows(x, weights.input_layernorm, config.rms_norm_eps, rounding);
  Add(config.residual_scale, Attention(config, weights.self_attn, angles, input, cache, rounding), stream, rounding);
  const Matrix normed = NormRows(stream, weights.post_attention_layernorm, config.rms_norm_eps, rounding);
  Add(config.residual_scale,
      weights.moe.has_value() ? Moe(*config.moe, *weights.moe, normed, options)
                              : Mlp(weights.mlp, Inputs(normed, rounding), rounding),
      stream, rounding);
  return stream;
}

}  // namespace mla::reference
