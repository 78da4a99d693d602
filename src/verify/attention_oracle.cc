#include "verify/attention_oracle.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "reference/rounding.h"

namespace mla::verify {

using reference::DotSums;
using reference::DotWithSquares;

namespace {

// Rounds each of x, known to within `error`; what stays unknown is left in `error` and `rounding`.
void RoundAll(Matrix* x, Matrix* error, Matrix* rounding) {
  *rounding = reference::Zeros(x->rows, x->cols);
  for (std::int64_t j = 0; j < x->rows; ++j) {
    const RoundedInput rounded = RoundInput(x->row(j), error->row(j), x->cols);
    std::copy(rounded.value.begin(), rounded.value.end(), x->row(j));
    std::fill_n(error->row(j), x->cols, 0.0);
    for (const RoundedInput::Unsure& u : rounded.unsure) {
      error->row(j)[u.index] = u.error;
      rounding->row(j)[u.index] = u.rounding;
    }
  }
}

}  // namespace

AttentionOracle::AttentionOracle(const HeadProblem& problem) : problem_(problem), exact_(Expand(*problem.stored)) {
  if (problem.bf16_attention) {
    rounded_ = exact_;
    RoundAll(&rounded_->k, &rounded_->k_error, &rounded_->k_rounding);
    RoundAll(&rounded_->v, &rounded_->v_error, &rounded_->v_rounding);
    return;
  }
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

// The product with w_kc takes q_nope rounded; attention in bf16 takes q~, or q_nope, and q_pe rounded.
AttentionOracle::Query AttentionOracle::QueryOf(Form form, const double* query) const {
  const MlaDims& d = problem_.dims;
  const auto n = static_cast<std::size_t>(d.qk_nope_head_dim);
  const bool absorbs = form == Form::kAbsorbed;
  Query out;
  out.q.assign(query, query + d.qk_nope_head_dim + d.qk_rope_head_dim);
  for (std::size_t i = 0; i < out.q.size(); ++i) {
    const bool rounds = i < n && absorbs ? problem_.rule.bf16_inputs : problem_.bf16_attention;
    if (rounds) out.q[i] = reference::NearestBf16(out.q[i]);
  }
  if (!absorbs) return out;
  out.absorbed = Absorb(out.q.data());
  if (!problem_.bf16_attention) return out;
  const Absorbed& a = out.absorbed;
  std::vector<double> error(a.q.size());
  for (std::size_t i = 0; i < error.size(); ++i) {
    error[i] =
        a.error[i] + kTiny + problem_.rule.weight_unit * std::min(a.absolute[i], kLambda * std::sqrt(a.squares[i]));
  }
  out.latent = RoundInput(a.q.data(), error.data(), d.kv_lora_rank);
  return out;
}

Bound AttentionOracle::Score(Form form, const Query& query, std::int64_t key) const {
  if (form == Form::kMha) return MhaScore(query, key);
  return problem_.bf16_attention ? RoundedScore(query, key) : AbsorbedScore(query, key);
}

// q k over N + P, k itself off.
Bound AttentionOracle::MhaScore(const Query& query, std::int64_t key) const {
  const MlaDims& d = problem_.dims;
  const std::int64_t n = d.qk_nope_head_dim;
  const double* q = query.q.data();
  const Expanded& x = Of(Form::kMha);
  const DotSums nope = DotWithSquares(q, x.k.row(key), n);
  const DotSums rope = DotWithSquares(q + n, problem_.stored->row(key) + d.kv_lora_rank, d.qk_rope_head_dim);
  double error = SumError(n + d.qk_rope_head_dim) * (nope.absolute + rope.absolute) +
                 std::sqrt(DotWithSquares(q, x.k_error.row(key), n).squares);
  if (!x.k_rounding.empty()) error += WeightError(1, DotWithSquares(q, x.k_rounding.row(key), n));
  return {nope.sum + rope.sum, error};
}

// q~ c over R + P, q~ rounded.
Bound AttentionOracle::RoundedScore(const Query& query, std::int64_t key) const {
  const MlaDims& d = problem_.dims;
  const double* row = problem_.stored->row(key);
  const DotSums latent = DotWithSquares(query.latent.value.data(), row, d.kv_lora_rank);
  const DotSums rope = DotWithSquares(query.q.data() + d.qk_nope_head_dim, row + d.kv_lora_rank, d.qk_rope_head_dim);
  return {latent.sum + rope.sum, SumError(d.kv_lora_rank + d.qk_rope_head_dim) * (latent.absolute + rope.absolute) +
                                     query.latent.Carried(row)};
}

// q~ c over R + P, q~ itself off, and every weight's rounding in both.
Bound AttentionOracle::AbsorbedScore(const Query& query, std::int64_t key) const {
  const MlaDims& d = problem_.dims;
  const Absorbed& absorbed = query.absorbed;
  const double* q = query.q.data();
  const double* row = problem_.stored->row(key);
  const DotSums rope = DotWithSquares(q + d.qk_nope_head_dim, row + d.kv_lora_rank, d.qk_rope_head_dim);
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
  const double error = SumError(d.kv_lora_rank + d.qk_rope_head_dim) * (latent + rope.absolute) + std::sqrt(carried) +
                       problem_.rule.weight_unit * std::min(weights_absolute, kLambda * std::sqrt(weights));
  return {reference::Dot(q, exact_.k.row(key), d.qk_nope_head_dim) + rope.sum, error};
}

AttentionOracle::OutputLatent AttentionOracle::LatentOf(const Weighted& w) const {
  const auto r = static_cast<std::size_t>(problem_.dims.kv_lora_rank);
  OutputLatent out{std::vector<double>(r), std::vector<double>(r)};
  for (std::int64_t j = 0; j < w.keys.count(); ++j) {
    const double* row = problem_.stored->row(w.first + j);
    for (std::size_t i = 0; i < r; ++i) {
      out.value[i] += w.keys.met(j) * row[i];
      out.absolute[i] += std::abs(w.keys.met(j) * row[i]);
    }
  }
  return out;
}

// An element is off as an output is: by what scores and weights are, and by what exponentials and sums over keys are.
RoundedInput AttentionOracle::RoundedLatent(const Weighted& w, const OutputLatent& latent) const {
  const Matrix& rows = *problem_.stored;
  std::vector<double> error(latent.value.size());
  for (std::size_t i = 0; i < error.size(); ++i) {
    error[i] = w.keys.Mix(rows.row(w.first) + i, rows.cols).error + w.keys.relative() * latent.absolute[i] +
               4 * kU * std::abs(latent.value[i]) + kTiny;
  }
  return RoundInput(latent.value.data(), error.data(), problem_.dims.kv_lora_rank);
}

double AttentionOracle::ValueError(Form form, const Weighted& w, const OutputLatent& latent, std::int64_t v) const {
  const MlaDims& d = problem_.dims;
  if (form == Form::kMha) {
    const Expanded& x = Of(form);
    double carried = 0;
    double absolute = 0;
    DotSums rounding;
    for (std::int64_t j = 0; j < w.keys.count(); ++j) {
      const double p = w.keys.met(j);
      carried += std::pow(p * x.v_error.row(w.first + j)[v], 2);
      absolute += std::abs(p * x.v.row(w.first + j)[v]);
      if (x.v_rounding.empty()) continue;
      rounding.absolute += std::abs(p * x.v_rounding.row(w.first + j)[v]);
      rounding.squares += std::pow(p * x.v_rounding.row(w.first + j)[v], 2);
    }
    return std::sqrt(carried) + WeightError(1, rounding) + w.keys.relative() * absolute;
  }
  const double* w_vc = ValueWeights(v);
  const DotSums sums = DotWithSquares(w_vc, latent.value.data(), d.kv_lora_rank);
  const double carried = DotWithSquares(w_vc, latent.absolute.data(), d.kv_lora_rank).squares;
  return SumError(d.kv_lora_rank) * sums.absolute + WeightError(problem_.rule.weight_unit, sums) +
         w.keys.relative() * std::sqrt(carried);
}

Bound AttentionOracle::Output(Form form, const Weighted& w, const OutputLatent& latent, std::int64_t v) const {
  const Matrix& values = Of(form).v;
  const Bound mixed = w.keys.Mix(values.row(w.first) + v, values.cols);
  return {mixed.value,
          mixed.error + (w.keys.relative() + 4 * kU) * std::abs(mixed.value) + ValueError(form, w, latent, v) + kTiny};
}

// Unrounded: every element of the latent is rounded by at most 2^-8 of itself. Followed: errors of the elements whose
// rounding is not known have those of the scores in common, so that they add up.
Bound AttentionOracle::Narrower(const Bound& unrounded, const OutputLatent& latent, const RoundedInput& rounded,
                                std::int64_t v) const {
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

HeadAnswer AttentionOracle::Answer(Form form, const double* query, std::int64_t first, std::int64_t count) const {
  const auto n = static_cast<std::size_t>(count);
  const bool absorbs = form == Form::kAbsorbed;
  const bool rounds = absorbs && problem_.rule.bf16_inputs;
  const Query taken = QueryOf(form, query);
  std::vector<double> scores(n);
  std::vector<double> errors(n);
  for (std::size_t j = 0; j < n; ++j) {
    const Bound score = Score(form, taken, first + static_cast<std::int64_t>(j));
    scores[j] = problem_.scale * score.value;
    errors[j] = problem_.scale * score.error + 3 * kU * std::abs(scores[j]);
  }
  const Weighted w{first, KeyWeights(std::move(scores), std::move(errors), problem_.bf16_attention)};
  HeadAnswer answer;
  answer.lse = w.keys.lse().value;
  answer.lse_error = w.keys.lse().error;
  const OutputLatent latent = absorbs ? LatentOf(w) : OutputLatent{};
  const RoundedInput rounded = rounds ? RoundedLatent(w, latent) : RoundedInput{};
  for (std::int64_t v = 0; v < problem_.dims.v_head_dim; ++v) {
    const Bound unrounded = Output(form, w, latent, v);
    const Bound bound = rounds ? Narrower(unrounded, latent, rounded, v) : unrounded;
    answer.out.push_back(bound.value);
    answer.out_error.push_back(bound.error);
  }
  return answer;
}

}  // namespace mla::verify
