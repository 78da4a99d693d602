// The oracle of tests/attention/harness.h: the definition in float64, and what fp32 may be off by.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "attention/harness.h"

namespace mla::testing {

double NearestBf16(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, 8)), exponent - 8);
}

float RoundToBf16(float value) { return static_cast<float>(NearestBf16(static_cast<double>(value))); }

namespace {

// Unit roundoff of fp32, and the error of n roundings (Higham, Accuracy and Stability, lemma 3.1).
constexpr double kU = 0x1p-24;
double Gamma(double n) { return n * kU / (1 - n * kU); }
// The exponential's relative error: 2 ulp.
constexpr double kExpError = 0x1p-22;
// Unit roundoff of bf16.
constexpr double kUBf16 = 0x1p-8;

// Keys and values of a head, expanded from the stored rows; and the same with every factor by its absolute value.
struct Head {
  std::vector<double> k, v, k_abs, v_abs;  // k [S, N + P], v [S, V]
  std::vector<double> weight;              // [N + V, R]
};

// A sequence's cache rows as they are stored.
struct StoredRows {
  std::vector<double> latent, rope;
  // The latent is rounded to bf16 in any case where it is to meet weights so.
  StoredRows(const TestSequence& s, DType dtype, bool bf16_latent) {
    const auto as = [](bool bf16) {
      return [bf16](float x) { return static_cast<double>(bf16 ? RoundToBf16(x) : x); };
    };
    const bool bf16 = dtype == DType::kBF16;
    std::transform(s.latent.begin(), s.latent.end(), std::back_inserter(latent), as(bf16 || bf16_latent));
    std::transform(s.rope.begin(), s.rope.end(), std::back_inserter(rope), as(bf16));
  }
};

Head ExpandHead(const TestWeights& w, const StoredRows& rows, std::int64_t keys, std::int64_t head) {
  const MlaDims& d = w.dims;
  const std::int64_t n = d.qk_nope_head_dim;
  Head out;
  std::vector<double>& weight = out.weight;
  for (std::int64_t o = 0; o < n + d.v_head_dim; ++o) {
    for (std::int64_t r = 0; r < d.kv_lora_rank; ++r) weight.push_back(w.Stored(head * (n + d.v_head_dim) + o, r));
  }
  for (std::int64_t j = 0; j < keys; ++j) {
    const double* c = rows.latent.data() + j * d.kv_lora_rank;
    for (std::int64_t o = 0; o < n + d.v_head_dim; ++o) {
      double sum = 0;
      double abs = 0;
      const double* row = weight.data() + o * d.kv_lora_rank;
      for (std::int64_t r = 0; r < d.kv_lora_rank; ++r) {
        const double product = row[r] * c[r];
        sum += product;
        abs += std::abs(product);
      }
      (o < n ? out.k : out.v).push_back(sum);
      (o < n ? out.k_abs : out.v_abs).push_back(abs);
    }
    for (std::int64_t p = 0; p < d.qk_rope_head_dim; ++p) {
      const double x = rows.rope[static_cast<std::size_t>(j * d.qk_rope_head_dim + p)];
      out.k.push_back(x);
      out.k_abs.push_back(std::abs(x));
    }
  }
  return out;
}

// One row of one head.
//
// The bound. Let B_j be score j with every factor replaced by its absolute value. Both forms sum the same products of
// three factors (q, w_kc, c), in two stages of N and R terms, then P rope terms and the scale: a computed score is
// within delta_j = Gamma(N + R + P + 3) B_j. Its weight, exp(s_j - m), is further off by a rounding of the argument, u
// (m - s_j) in all as the maximum rises towards m, and by one exponential and one product for each rise: at most one a
// tile of the segment and one a segment. Together rho_j, relative. Weights below e^-80 may vanish: rho_j = 1. The sum
// of weights and values is off by p_j rho_j in each weight, in numerator and denominator, and by one rounding a key of
// a segment, two a tile and three a segment; values (or the output latent) go through R terms of w_vc. With v_abs as B
// above, and o_abs = sum p_j v_abs_j:
//   |out error| <= sum_j p_j rho_j (v_abs_j + o_abs) + Gamma(...) o_abs
// lse is the maximum plus a logarithm, each rounded, of a sum that is off by sum_j p_j rho_j and its own roundings.
//
// Products that round their inputs to bf16: q_nope before w_kc and latents before expansion are known, and so are their
// roundings. An element of the output latent is known to within e, a bound as above with c in place of v: where all
// that is within e of it rounds to one number, that number meets w_vc, exactly; else it is off by e and by 2^-8 of
// itself.
struct Row {
  std::vector<double> out, out_bound;
  double lse = 0, lse_bound = 0;
};

// A row's keys by weight.
struct Weighted {
  std::vector<double> p, rho;
  double weight_error;
  double second_order;
  double roundings;  // of sums over keys
};

// The row's output where the latent is rounded on its way to w_vc.
void RoundedValues(const MlaDims& d, const Head& head, const std::vector<double>& latents, const Weighted& w,
                   Row* row) {
  const auto r = static_cast<std::size_t>(d.kv_lora_rank);
  std::vector<double> value(r);
  std::vector<double> error(r);
  for (std::size_t i = 0; i < r; ++i) {
    double sum = 0;
    double abs = 0;
    double moved = 0;
    for (std::size_t j = 0; j < w.p.size(); ++j) {
      const double c = latents[j * r + i];
      sum += w.p[j] * c;
      abs += w.p[j] * std::abs(c);
      moved += w.p[j] * w.rho[j] * std::abs(c);
    }
    const double e = (moved + w.weight_error * abs + Gamma(w.roundings) * abs) * w.second_order;
    const double low = NearestBf16(sum - e);
    const bool known = low == NearestBf16(sum + e);
    value[i] = known ? low : sum;
    error[i] = known ? 0 : e + kUBf16 * (std::abs(sum) + e);
  }
  for (std::int64_t v = 0; v < d.v_head_dim; ++v) {
    const double* w_vc = head.weight.data() + (d.qk_nope_head_dim + v) * d.kv_lora_rank;
    double out = 0;
    double bound = 0x1p-126;
    for (std::size_t i = 0; i < r; ++i) {
      out += w_vc[i] * value[i];
      bound += std::abs(w_vc[i]) * (error[i] + Gamma(static_cast<double>(r)) * (std::abs(value[i]) + error[i]));
    }
    row->out.push_back(out);
    row->out_bound.push_back(bound);
  }
}

// `latents` [keys, R]: of a row whose output latent is rounded; null: of another.
Row OracleRow(const MlaDims& d, const Head& head, const double* q, std::int64_t keys, double scale, bool exact_scores,
              const std::vector<double>* latents) {
  const std::int64_t width = d.qk_nope_head_dim + d.qk_rope_head_dim;
  std::vector<double> s(static_cast<std::size_t>(keys));
  std::vector<double> rho(s.size());
  for (std::int64_t j = 0; j < keys; ++j) {
    double sum = 0;
    double abs = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      sum += q[i] * head.k[static_cast<std::size_t>(j * width + i)];
      abs += std::abs(q[i]) * head.k_abs[static_cast<std::size_t>(j * width + i)];
    }
    s[static_cast<std::size_t>(j)] = scale * sum;
    rho[static_cast<std::size_t>(j)] =
        exact_scores ? 0 : Gamma(static_cast<double>(width + d.kv_lora_rank + 3)) * scale * abs;
  }
  const double max = *std::max_element(s.begin(), s.end());
  const double tiles = std::min<double>(16, std::ceil(static_cast<double>(keys) / 64));
  const double segments = std::ceil(static_cast<double>(keys) / 1024);
  double total = 0;
  for (std::size_t j = 0; j < s.size(); ++j) {
    rho[j] += kU * (max - s[j]) + (tiles + segments + 1) * (kExpError + kU);
    if (max - s[j] > 80) rho[j] = 1;
    total += std::exp(s[j] - max);
  }
  Row row;
  double weight_error = 0;
  for (std::size_t j = 0; j < s.size(); ++j) weight_error += std::exp(s[j] - max) / total * rho[j];
  const double second_order = 1 / (1 - 2 * weight_error);  // of the division
  row.lse = max + std::log(total);
  row.lse_bound = (weight_error + Gamma(8 + 2 * tiles + 3 * segments)) * second_order +
                  2 * kU * (std::abs(max) + std::abs(std::log(total)) + std::abs(row.lse));
  const double key_roundings = std::min<double>(static_cast<double>(keys), 1024) + 2 * tiles + 3 * segments + 12;
  if (latents != nullptr) {
    Weighted weighted{{}, rho, weight_error, second_order, key_roundings};
    for (const double score : s) weighted.p.push_back(std::exp(score - max) / total);
    RoundedValues(d, head, *latents, weighted, &row);
    return row;
  }
  const double roundings = key_roundings + static_cast<double>(d.kv_lora_rank);
  for (std::int64_t v = 0; v < d.v_head_dim; ++v) {
    double out = 0;
    double out_abs = 0;
    double moved = 0;
    for (std::size_t j = 0; j < s.size(); ++j) {
      const double p = std::exp(s[j] - max) / total;
      const std::size_t at = j * static_cast<std::size_t>(d.v_head_dim) + static_cast<std::size_t>(v);
      out += p * head.v[at];
      out_abs += p * head.v_abs[at];
      moved += p * rho[j] * head.v_abs[at];
    }
    row.out.push_back(out);
    row.out_bound.push_back((moved + weight_error * out_abs + Gamma(roundings) * out_abs) * second_order + 0x1p-126);
  }
  return row;
}

}  // namespace

Expected Oracle(const TestWeights& weights, const TestSequence& sequence, DType cache_dtype, double scale,
                bool exact_scores, bool bf16_inputs) {
  const MlaDims& d = weights.dims;
  const std::int64_t h = d.num_attention_heads;
  const std::int64_t width = d.qk_nope_head_dim + d.qk_rope_head_dim;
  Expected e;
  e.out.resize(static_cast<std::size_t>(sequence.rows * h * d.v_head_dim));
  e.out_bound.resize(e.out.size());
  e.lse.resize(static_cast<std::size_t>(sequence.rows * h));
  e.lse_bound.resize(e.lse.size());
  const bool absorbed = sequence.form == Form::kAbsorbed;
  const StoredRows rows(sequence, cache_dtype, bf16_inputs && !absorbed);
  std::vector<double> q(sequence.q.begin(), sequence.q.end());
  for (std::size_t i = 0; bf16_inputs && absorbed && i < q.size(); ++i) {
    if (static_cast<std::int64_t>(i) % width < d.qk_nope_head_dim) q[i] = NearestBf16(q[i]);
  }
  for (std::int64_t head = 0; head < h; ++head) {
    const Head expanded = ExpandHead(weights, rows, sequence.keys, head);
    for (std::int64_t t = 0; t < sequence.rows; ++t) {
      const std::int64_t at = t * h + head;
      const Row row = OracleRow(d, expanded, q.data() + at * width, sequence.keys - sequence.rows + t + 1, scale,
                                exact_scores, bf16_inputs && absorbed ? &rows.latent : nullptr);
      std::copy(row.out.begin(), row.out.end(), e.out.begin() + at * d.v_head_dim);
      std::copy(row.out_bound.begin(), row.out_bound.end(), e.out_bound.begin() + at * d.v_head_dim);
      e.lse[static_cast<std::size_t>(at)] = row.lse;
      e.lse_bound[static_cast<std::size_t>(at)] = row.lse_bound;
    }
  }
  return e;
}

}  // namespace mla::testing
