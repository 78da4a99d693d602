#include "verify/attention_oracle.h"

#include <algorithm>
#include <cmath>

#include "reference/rounding.h"

namespace mla::verify {

using reference::DotSums;
using reference::DotWithSquares;

AttentionOracle::AttentionOracle(const HeadProblem& problem) : problem_(problem), exact_(Expand(*problem.stored)) {
  if (!problem.rule.bf16_inputs) return;
  const Matrix rounded = RoundedExactly(*problem.stored);
  if (rounded.values != problem.stored->values) rounded_ = Expand(rounded);
}

AttentionOracle::Expanded AttentionOracle::Expand(const Matrix& rows) const {
  const MlaDims& d = problem_.dims;
  Expanded out;
  out.k = out.k_error = reference::Zeros(rows.rows, d.qk_nope_head_dim);
  out.v = out.v_error = reference::Zeros(rows.rows, d.v_head_dim);
  const std::int64_t head_rows = d.qk_nope_head_dim + d.v_head_dim;
  const double sum_error = SumError(d.kv_lora_rank);
  for (std::int64_t i = 0; i < head_rows; ++i) {
    const double* w = problem_.kv_b->row(problem_.head * head_rows + i);
    const bool is_key = i < d.qk_nope_head_dim;
    const std::int64_t at = is_key ? i : i - d.qk_nope_head_dim;
    for (std::int64_t j = 0; j < rows.rows; ++j) {
      const DotSums sums = DotWithSquares(w, rows.row(j), d.kv_lora_rank);
      (is_key ? out.k : out.v).row(j)[at] = sums.sum;
      (is_key ? out.k_error : out.v_error).row(j)[at] =
          sum_error * sums.absolute + WeightError(problem_.rule.weight_unit, sums);
    }
  }
  return out;
}

const double* AttentionOracle::ValueWeights(std::int64_t v) const {
  const MlaDims& d = problem_.dims;
  return problem_.kv_b->row(problem_.head * (d.qk_nope_head_dim + d.v_head_dim) + d.qk_nope_head_dim + v);
}

AttentionOracle::Absorbed AttentionOracle::Absorb(const double* q) const {
  const MlaDims& d = problem_.dims;
  const auto r = static_cast<std::size_t>(d.kv_lora_rank);
  Absorbed a{std::vector<double>(r), std::vector<double>(r), std::vector<double>(r), std::vector<double>(r)};
  for (std::int64_t n = 0; n < d.qk_nope_head_dim; ++n) {
    const double* w = problem_.kv_b->row(problem_.head * (d.qk_nope_head_dim + d.v_head_dim) + n);
    for (std::size_t i = 0; i < r; ++i) {
      const double product = q[n] * w[i];
      a.q[i] += product;
      a.absolute[i] += std::abs(product);
      a.squares[i] += product * product;
    }
  }
  const double sum_error = SumError(d.qk_nope_head_dim);
  for (std::size_t i = 0; i < r; ++i) a.error[i] = sum_error * a.absolute[i];
  return a;
}

double AttentionOracle::Score(Form form, const double* q, std::int64_t key) const {
  const MlaDims& d = problem_.dims;
  return reference::Dot(q, Of(form).k.row(key), d.qk_nope_head_dim) +
         reference::Dot(q + d.qk_nope_head_dim, problem_.stored->row(key) + d.kv_lora_rank, d.qk_rope_head_dim);
}

// MHA: q k over N + P, k itself off. Absorbed: q~ c over R + P, q~ itself off, and every weight's rounding in both.
double AttentionOracle::ScoreError(Form form, const double* q, const Absorbed& absorbed, std::int64_t key) const {
  const MlaDims& d = problem_.dims;
  const double* row = problem_.stored->row(key);
  const double rope = DotWithSquares(q + d.qk_nope_head_dim, row + d.kv_lora_rank, d.qk_rope_head_dim).absolute;
  if (form == Form::kMha) {
    const double nope = DotWithSquares(q, Of(form).k.row(key), d.qk_nope_head_dim).absolute;
    const double carried = DotWithSquares(q, Of(form).k_error.row(key), d.qk_nope_head_dim).squares;
    return SumError(d.qk_nope_head_dim + d.qk_rope_head_dim) * (nope + rope) + std::sqrt(carried);
  }
  double latent = 0;
  double carried = 0;
  double weights = 0;
  double weights_absolute = 0;
  for (std::int64_t i = 0; i < d.kv_lora_rank; ++i) {
    const auto at = static_cast<std::size_t>(i);
    latent += std::abs(absorbed.q[at] * row[i]);
    carried += absorbed.error[at] * absorbed.error[at] * row[i] * row[i];
    weights += absorbed.squares[at] * row[i] * row[i];
    weights_absolute += absorbed.absolute[at] * std::abs(row[i]);
  }
  return SumError(d.kv_lora_rank + d.qk_rope_head_dim) * (latent + rope) + std::sqrt(carried) +
         problem_.rule.weight_unit * std::min(weights_absolute, kLambda * std::sqrt(weights));
}

AttentionOracle::OutputLatent AttentionOracle::LatentOf(const Weighted& w) const {
  const auto r = static_cast<std::size_t>(problem_.dims.kv_lora_rank);
  OutputLatent out{std::vector<double>(r), std::vector<double>(r)};
  for (std::size_t j = 0; j < w.p.size(); ++j) {
    const double* row = problem_.stored->row(w.first + static_cast<std::int64_t>(j));
    for (std::size_t i = 0; i < r; ++i) {
      out.value[i] += w.p[j] * row[i];
      out.absolute[i] += std::abs(w.p[j] * row[i]);
    }
  }
  return out;
}

// An element is off as an output is: by sum p_j ds_j (c_j - it), and by what exponentials and sums over keys are.
RoundedInput AttentionOracle::RoundedLatent(const Weighted& w, const OutputLatent& latent) const {
  std::vector<double> error(latent.value.size());
  for (std::size_t j = 0; j < w.p.size(); ++j) {
    const double* row = problem_.stored->row(w.first + static_cast<std::int64_t>(j));
    for (std::size_t i = 0; i < error.size(); ++i) error[i] += w.p[j] * w.ds[j] * std::abs(row[i] - latent.value[i]);
  }
  for (std::size_t i = 0; i < error.size(); ++i) {
    error[i] = w.growth * error[i] + w.relative * latent.absolute[i] + 4 * kU * std::abs(latent.value[i]) + kTiny;
  }
  return RoundInput(latent.value.data(), error.data(), problem_.dims.kv_lora_rank);
}

double AttentionOracle::ValueError(Form form, const Weighted& w, const OutputLatent& latent, std::int64_t v) const {
  const MlaDims& d = problem_.dims;
  if (form == Form::kMha) {
    double carried = 0;
    double absolute = 0;
    for (std::size_t j = 0; j < w.p.size(); ++j) {
      const std::int64_t key = w.first + static_cast<std::int64_t>(j);
      carried += std::pow(w.p[j] * Of(form).v_error.row(key)[v], 2);
      absolute += std::abs(w.p[j] * Of(form).v.row(key)[v]);
    }
    return std::sqrt(carried) + w.relative * absolute;
  }
  const double* w_vc = ValueWeights(v);
  const DotSums sums = DotWithSquares(w_vc, latent.value.data(), d.kv_lora_rank);
  const double carried = DotWithSquares(w_vc, latent.absolute.data(), d.kv_lora_rank).squares;
  return SumError(d.kv_lora_rank) * sums.absolute + WeightError(problem_.rule.weight_unit, sums) +
         w.relative * std::sqrt(carried);
}

AttentionOracle::Bound AttentionOracle::Output(Form form, const Weighted& w, const OutputLatent& latent,
                                               std::int64_t v) const {
  const Matrix& values = Of(form).v;
  double out = 0;
  for (std::size_t j = 0; j < w.p.size(); ++j) out += w.p[j] * values.row(w.first + static_cast<std::int64_t>(j))[v];
  double moved = 0;
  for (std::size_t j = 0; j < w.p.size(); ++j) {
    moved += w.p[j] * w.ds[j] * std::abs(values.row(w.first + static_cast<std::int64_t>(j))[v] - out);
  }
  return {out, moved * w.growth + (w.relative + 4 * kU) * std::abs(out) + ValueError(form, w, latent, v) + kTiny};
}

// Unrounded: every element of the latent is rounded by at most 2^-8 of itself. Followed: errors of the elements whose
// rounding is not known have those of the scores in common, so that they add up.
AttentionOracle::Bound AttentionOracle::Narrower(const Bound& unrounded, const OutputLatent& latent,
                                                 const RoundedInput& rounded, std::int64_t v) const {
  const std::int64_t r = problem_.dims.kv_lora_rank;
  const double* w_vc = ValueWeights(v);
  const DotSums plain = DotWithSquares(w_vc, latent.value.data(), r);
  const double rounding = kUBf16 * std::min(plain.absolute, kLambda * std::sqrt(plain.squares));
  const DotSums sums = DotWithSquares(w_vc, rounded.value.data(), r);
  const double followed =
      SumError(r) * sums.absolute + WeightError(problem_.rule.weight_unit, sums) + rounded.CarriedAtMost(w_vc) + kTiny;
  if (followed < unrounded.error + rounding) return {sums.sum, followed};
  return {unrounded.value, unrounded.error + rounding};
}

// Errors ds_j of the scores move the output by sum p_j ds_j (v_j - out). Each exponential is off by 8 u of itself (the
// polynomial's and its argument's rounding), once more for each of the tiles after which the state is rescaled; the sum
// of exponentials and the weighted values are sums over the keys.
HeadAnswer AttentionOracle::Answer(Form form, const double* query, std::int64_t first, std::int64_t count) const {
  const MlaDims& d = problem_.dims;
  const auto n = static_cast<std::size_t>(count);
  const bool absorbs = form == Form::kAbsorbed;
  const bool rounds = absorbs && problem_.rule.bf16_inputs;
  std::vector<double> q(query, query + d.qk_nope_head_dim + d.qk_rope_head_dim);
  // The product with w_kc takes q_nope rounded; q_pe meets no weight.
  for (std::size_t i = 0; rounds && i < static_cast<std::size_t>(d.qk_nope_head_dim); ++i) {
    q[i] = reference::NearestBf16(q[i]);
  }
  const Absorbed absorbed = absorbs ? Absorb(q.data()) : Absorbed{};
  Weighted w{first, std::vector<double>(n), std::vector<double>(n), 0, 1};
  for (std::size_t j = 0; j < n; ++j) {
    const std::int64_t key = first + static_cast<std::int64_t>(j);
    w.p[j] = problem_.scale * Score(form, q.data(), key);
    w.ds[j] = problem_.scale * ScoreError(form, q.data(), absorbed, key) + 3 * kU * std::abs(w.p[j]);
  }
  const double largest = *std::max_element(w.p.begin(), w.p.end());
  double sum = 0;
  for (std::size_t j = 0; j < n; ++j) {
    if (count > 1) w.ds[j] += kU * std::abs(w.p[j] - largest);
    w.p[j] = std::exp(w.p[j] - largest);
    sum += w.p[j];
  }
  HeadAnswer answer;
  answer.lse = largest + std::log(sum);
  w.relative = SumError(count) + 8 * kU * static_cast<double>(1 + count / 64);
  double mean_ds = 0;
  for (std::size_t j = 0; j < n; ++j) {
    w.p[j] /= sum;
    mean_ds += w.p[j] * w.ds[j];
  }
  answer.lse_error = mean_ds + w.relative + 4 * kU * (std::abs(largest) + std::abs(answer.lse)) + kTiny;
  // The terms past the first, for scores so large that fp32 has no digits left of their difference.
  w.growth = std::exp(2 * *std::max_element(w.ds.begin(), w.ds.end()));
  const OutputLatent latent = absorbs ? LatentOf(w) : OutputLatent{};
  const RoundedInput rounded = rounds ? RoundedLatent(w, latent) : RoundedInput{};
  for (std::int64_t v = 0; v < d.v_head_dim; ++v) {
    const Bound unrounded = Output(form, w, latent, v);
    const Bound bound = rounds ? Narrower(unrounded, latent, rounded, v) : unrounded;
    answer.out.push_back(bound.value);
    answer.out_error.push_back(bound.error);
  }
  return answer;
}

}  // namespace mla::verify
