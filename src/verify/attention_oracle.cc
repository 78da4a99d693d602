#include "verify/attention_oracle.h"

#include <algorithm>
#include <cmath>

namespace mla::verify {

using reference::DotSums;
using reference::DotWithSquares;

AttentionOracle::AttentionOracle(const HeadProblem& problem) : problem_(problem) {
  const MlaDims& d = problem.dims;
  const std::int64_t keys = problem.stored->rows;
  k_ = k_error_ = reference::Zeros(keys, d.qk_nope_head_dim);
  v_ = v_error_ = reference::Zeros(keys, d.v_head_dim);
  const std::int64_t head_rows = d.qk_nope_head_dim + d.v_head_dim;
  const double sum_error = SumError(d.kv_lora_rank);
  for (std::int64_t i = 0; i < head_rows; ++i) {
    const double* w = problem.kv_b->row(problem.head * head_rows + i);
    const bool is_key = i < d.qk_nope_head_dim;
    const std::int64_t at = is_key ? i : i - d.qk_nope_head_dim;
    for (std::int64_t j = 0; j < keys; ++j) {
      const DotSums sums = DotWithSquares(w, problem.stored->row(j), d.kv_lora_rank);
      (is_key ? k_ : v_).row(j)[at] = sums.sum;
      (is_key ? k_error_ : v_error_).row(j)[at] = sum_error * sums.absolute + WeightError(problem.weight_unit, sums);
    }
  }
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

double AttentionOracle::Score(const double* q, std::int64_t key) const {
  const MlaDims& d = problem_.dims;
  return reference::Dot(q, k_.row(key), d.qk_nope_head_dim) +
         reference::Dot(q + d.qk_nope_head_dim, problem_.stored->row(key) + d.kv_lora_rank, d.qk_rope_head_dim);
}

// MHA: q k over N + P, k itself off. Absorbed: q~ c over R + P, q~ itself off, and every weight's rounding in both.
double AttentionOracle::ScoreError(Form form, const double* q, const Absorbed& absorbed, std::int64_t key) const {
  const MlaDims& d = problem_.dims;
  const double* row = problem_.stored->row(key);
  const double rope = DotWithSquares(q + d.qk_nope_head_dim, row + d.kv_lora_rank, d.qk_rope_head_dim).absolute;
  if (form == Form::kMha) {
    const double nope = DotWithSquares(q, k_.row(key), d.qk_nope_head_dim).absolute;
    const double carried = DotWithSquares(q, k_error_.row(key), d.qk_nope_head_dim).squares;
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
         problem_.weight_unit * std::min(weights_absolute, kLambda * std::sqrt(weights));
}

double AttentionOracle::ValueError(Form form, const std::vector<double>& p, std::int64_t first, double relative,
                                   const std::vector<double>& latent, const std::vector<double>& latent_absolute,
                                   std::int64_t v) const {
  const MlaDims& d = problem_.dims;
  if (form == Form::kMha) {
    double carried = 0;
    double absolute = 0;
    for (std::size_t j = 0; j < p.size(); ++j) {
      const std::int64_t key = first + static_cast<std::int64_t>(j);
      carried += std::pow(p[j] * v_error_.row(key)[v], 2);
      absolute += std::abs(p[j] * v_.row(key)[v]);
    }
    return std::sqrt(carried) + relative * absolute;
  }
  const std::int64_t head_rows = d.qk_nope_head_dim + d.v_head_dim;
  const double* w = problem_.kv_b->row(problem_.head * head_rows + d.qk_nope_head_dim + v);
  const DotSums sums = DotWithSquares(w, latent.data(), d.kv_lora_rank);
  const double carried = DotWithSquares(w, latent_absolute.data(), d.kv_lora_rank).squares;
  return SumError(d.kv_lora_rank) * sums.absolute + WeightError(problem_.weight_unit, sums) +
         relative * std::sqrt(carried);
}

// Errors ds_j of the scores move the output by sum p_j ds_j (v_j - out). Each exponential is off by 8 u of itself (the
// polynomial's and its argument's rounding), once more for each of the tiles after which the state is rescaled; the sum
// of exponentials and the weighted values are sums over the keys.
HeadAnswer AttentionOracle::Answer(Form form, const double* q, std::int64_t first, std::int64_t count) const {
  const MlaDims& d = problem_.dims;
  const auto n = static_cast<std::size_t>(count);
  const Absorbed absorbed = form == Form::kAbsorbed ? Absorb(q) : Absorbed{};
  std::vector<double> p(n);
  std::vector<double> ds(n);
  for (std::size_t j = 0; j < n; ++j) {
    const std::int64_t key = first + static_cast<std::int64_t>(j);
    p[j] = problem_.scale * Score(q, key);
    ds[j] = problem_.scale * ScoreError(form, q, absorbed, key) + 3 * kU * std::abs(p[j]);
  }
  const double largest = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (std::size_t j = 0; j < n; ++j) {
    if (count > 1) ds[j] += kU * std::abs(p[j] - largest);
    p[j] = std::exp(p[j] - largest);
    sum += p[j];
  }
  HeadAnswer answer;
  answer.lse = largest + std::log(sum);
  const double relative = SumError(count) + 8 * kU * static_cast<double>(1 + count / 64);
  double mean_ds = 0;
  std::vector<double> latent(static_cast<std::size_t>(d.kv_lora_rank));
  std::vector<double> latent_absolute(latent.size());
  for (std::size_t j = 0; j < n; ++j) {
    p[j] /= sum;
    mean_ds += p[j] * ds[j];
    const double* row = problem_.stored->row(first + static_cast<std::int64_t>(j));
    for (std::size_t i = 0; i < latent.size(); ++i) {
      latent[i] += p[j] * row[i];
      latent_absolute[i] += std::abs(p[j] * row[i]);
    }
  }
  answer.lse_error = mean_ds + relative + 4 * kU * (std::abs(largest) + std::abs(answer.lse)) + kTiny;
  const double worst = *std::max_element(ds.begin(), ds.end());
  for (std::int64_t v = 0; v < d.v_head_dim; ++v) {
    double out = 0;
    for (std::size_t j = 0; j < n; ++j) out += p[j] * v_.row(first + static_cast<std::int64_t>(j))[v];
    double moved = 0;
    for (std::size_t j = 0; j < n; ++j) {
      moved += p[j] * ds[j] * std::abs(v_.row(first + static_cast<std::int64_t>(j))[v] - out);
    }
    answer.out.push_back(out);
    // exp(2 worst): the terms past the first, for scores so large that fp32 has no digits left of their difference.
    answer.out_error.push_back(moved * std::exp(2 * worst) + (relative + 4 * kU) * std::abs(out) +
                               ValueError(form, p, first, relative, latent, latent_absolute, v) + kTiny);
  }
  return answer;
}

}  // namespace mla::verify
