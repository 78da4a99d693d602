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
  std::vector<double> k_err, v_err;        // how far they may be off where they are rounded; else empty
  std::vector<double> weight;              // [N + V, R]
};

// x, known to within e, rounded to bf16: where all that is within e rounds to one number, that one, and exactly.
struct Rounded {
  double value;
  double error;
};
Rounded RoundWithin(double x, double e) {
  const double low = NearestBf16(x - e);
  if (low == NearestBf16(x + e)) return {low, 0};
  return {x, e + kUBf16 * (std::abs(x) + e)};
}

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

// `round`: keys and values are rounded to bf16 as they are expanded.
Head ExpandHead(const TestWeights& w, const StoredRows& rows, std::int64_t keys, std::int64_t head, bool round,
                bool exact) {
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
      if (round) {
        const Rounded r = RoundWithin(sum, exact ? 0 : Gamma(static_cast<double>(d.kv_lora_rank)) * abs);
        sum = r.value;
        (o < n ? out.k_err : out.v_err).push_back(r.error);
      }
      (o < n ? out.k : out.v).push_back(sum);
      (o < n ? out.k_abs : out.v_abs).push_back(abs);
    }
    for (std::int64_t p = 0; p < d.qk_rope_head_dim; ++p) {
      const double x = rows.rope[static_cast<std::size_t>(j * d.qk_rope_head_dim + p)];
      out.k.push_back(x);
      if (round) out.k_err.push_back(0);
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
//
// Attention in products of bf16 rounds what it multiplies, in the same way: q~ (known to within Gamma(N) of its
// absolute sum) and q_pe, or q, k_nope and v (known to within Gamma(R) of theirs), and each weight relative to the
// largest score so far, at the end of the weight's block of 256 keys, in its segment of 1,024. What is not known adds
// its error to the score, the value or the weight.
struct Row {
  std::vector<double> out, out_bound;
  double lse = 0, lse_bound = 0;
};

// What a row is computed by.
struct Rules {
  bool exact_scores;
  bool rounded_latent;  // the output latent is, on its way to w_vc
  bool bf16_attention;
  bool absorbed;
};

// A row's keys by weight. `p_err` is what rounding the weights may add.
struct Weighted {
  std::vector<double> p, rho, p_err;
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
      moved += (w.p[j] * w.rho[j] + w.p_err[j]) * std::abs(c);
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

// Scores of a row, and what rounding to bf16 may add to each beyond fp32's errors.
struct Scores {
  std::vector<double> value, error;
};

double SumOfProducts(const double* a, const double* b, std::int64_t n, bool absolute = false) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += absolute ? std::abs(a[i] * b[i]) : a[i] * b[i];
  return sum;
}

// q~ and q_pe rounded, against the rows as they are stored.
Scores AbsorbedScores(const MlaDims& d, const Head& head, const StoredRows& rows, const double* q, std::int64_t keys,
                      bool exact) {
  const std::int64_t n = d.qk_nope_head_dim;
  const std::int64_t r = d.kv_lora_rank;
  std::vector<double> query;
  std::vector<double> error;
  for (std::int64_t i = 0; i < r; ++i) {
    double sum = 0;
    double abs = 0;
    for (std::int64_t k = 0; k < n; ++k) {
      const double product = q[k] * head.weight[static_cast<std::size_t>(k * r + i)];
      sum += product;
      abs += std::abs(product);
    }
    const Rounded rounded = RoundWithin(sum, exact ? 0 : Gamma(static_cast<double>(n)) * abs);
    query.push_back(rounded.value);
    error.push_back(rounded.error);
  }
  std::vector<double> rope;
  std::transform(q + n, q + n + d.qk_rope_head_dim, std::back_inserter(rope), NearestBf16);
  Scores s;
  for (std::int64_t j = 0; j < keys; ++j) {
    const double* c = rows.latent.data() + j * r;
    s.value.push_back(SumOfProducts(query.data(), c, r) +
                      SumOfProducts(rope.data(), rows.rope.data() + j * d.qk_rope_head_dim, d.qk_rope_head_dim));
    s.error.push_back(SumOfProducts(error.data(), c, r, true));
  }
  return s;
}

// q against expanded keys; rounded to bf16 first where keys are.
Scores ExpandedScores(const MlaDims& d, const Head& head, const double* q, std::int64_t keys) {
  const std::int64_t width = d.qk_nope_head_dim + d.qk_rope_head_dim;
  const bool round = !head.k_err.empty();
  std::vector<double> query(q, q + width);
  if (round) std::transform(query.begin(), query.end(), query.begin(), NearestBf16);
  Scores s;
  for (std::int64_t j = 0; j < keys; ++j) {
    s.value.push_back(SumOfProducts(query.data(), head.k.data() + j * width, width));
    s.error.push_back(round ? SumOfProducts(query.data(), head.k_err.data() + j * width, width, true) : 0);
  }
  return s;
}

// Rounds each weight as it was multiplied: relative to the largest score of its segment up to the end of its block.
void RoundWeights(const std::vector<double>& s, Weighted* w) {
  constexpr std::size_t kBlock = 256;
  constexpr std::size_t kSegment = 1024;
  auto largest = s.begin();
  for (std::size_t j = 0; j < s.size(); ++j) {
    const auto at = s.begin() + static_cast<std::ptrdiff_t>(j);
    if (j % kSegment == 0) largest = at;
    if (j % kBlock == 0) {
      const auto end = s.begin() + static_cast<std::ptrdiff_t>(std::min(s.size(), j + kBlock));
      const auto of_block = std::max_element(at, end);
      if (*of_block > *largest) largest = of_block;
    }
    const double weight = std::exp(s[j] - *largest);
    if (weight < 1e-35) {
      w->p_err[j] = w->p[j];
      continue;
    }
    const double relative = w->rho[j] + w->rho[static_cast<std::size_t>(largest - s.begin())];
    const Rounded rounded = RoundWithin(weight, relative * weight);
    w->p_err[j] = w->p[j] * rounded.error / weight;
    w->p[j] *= rounded.value / weight;
  }
}

Row OracleRow(const MlaDims& d, const Head& head, const StoredRows& rows, const double* q, std::int64_t keys,
              double scale, const Rules& rules) {
  const std::int64_t width = d.qk_nope_head_dim + d.qk_rope_head_dim;
  const Scores scores = rules.bf16_attention && rules.absorbed
                            ? AbsorbedScores(d, head, rows, q, keys, rules.exact_scores)
                            : ExpandedScores(d, head, q, keys);
  std::vector<double> s(static_cast<std::size_t>(keys));
  std::vector<double> rho(s.size());
  for (std::size_t j = 0; j < s.size(); ++j) {
    s[j] = scale * scores.value[j];
    // Rounded factors are at most 2^-8 larger.
    const double abs = 1.01 * SumOfProducts(q, head.k_abs.data() + static_cast<std::int64_t>(j) * width, width, true);
    rho[j] = scale * scores.error[j];
    if (!rules.exact_scores) rho[j] += Gamma(static_cast<double>(width + d.kv_lora_rank + 3)) * scale * abs;
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
  Weighted w{{}, rho, std::vector<double>(s.size()), 0, 0, 0};
  for (const double score : s) w.p.push_back(std::exp(score - max) / total);
  w.weight_error = SumOfProducts(w.p.data(), rho.data(), keys);
  w.second_order = 1 / (1 - 2 * w.weight_error);  // of the division
  row.lse = max + std::log(total);
  row.lse_bound = (w.weight_error + Gamma(8 + 2 * tiles + 3 * segments)) * w.second_order +
                  2 * kU * (std::abs(max) + std::abs(std::log(total)) + std::abs(row.lse));
  w.roundings = std::min<double>(static_cast<double>(keys), 1024) + 2 * tiles + 3 * segments + 12;
  if (rules.bf16_attention) RoundWeights(s, &w);
  if (rules.rounded_latent) {
    RoundedValues(d, head, rows.latent, w, &row);
    return row;
  }
  const double roundings = w.roundings + static_cast<double>(d.kv_lora_rank);
  for (std::int64_t v = 0; v < d.v_head_dim; ++v) {
    double out = 0;
    double out_abs = 0;
    double moved = 0;
    for (std::size_t j = 0; j < s.size(); ++j) {
      const std::size_t at = j * static_cast<std::size_t>(d.v_head_dim) + static_cast<std::size_t>(v);
      out += w.p[j] * head.v[at];
      out_abs += w.p[j] * head.v_abs[at];
      moved += (w.p[j] * rho[j] + w.p_err[j]) * head.v_abs[at];
      if (!head.v_err.empty()) moved += (w.p[j] + w.p_err[j]) * head.v_err[at];
    }
    row.out.push_back(out);
    row.out_bound.push_back((moved + w.weight_error * out_abs + Gamma(roundings) * out_abs) * w.second_order +
                            0x1p-126);
  }
  return row;
}

}  // namespace

Expected Oracle(const TestWeights& weights, const TestSequence& sequence, DType cache_dtype, double scale,
                const OracleRules& rules) {
  const MlaDims& d = weights.dims;
  const std::int64_t h = d.num_attention_heads;
  const std::int64_t width = d.qk_nope_head_dim + d.qk_rope_head_dim;
  Expected e;
  e.out.resize(static_cast<std::size_t>(sequence.rows * h * d.v_head_dim));
  e.out_bound.resize(e.out.size());
  e.lse.resize(static_cast<std::size_t>(sequence.rows * h));
  e.lse_bound.resize(e.lse.size());
  const bool absorbed = sequence.form == Form::kAbsorbed;
  const Rules of_row{rules.exact_scores, rules.bf16_inputs && absorbed, rules.bf16_attention, absorbed};
  const StoredRows rows(sequence, cache_dtype, rules.bf16_inputs && !absorbed);
  std::vector<double> q(sequence.q.begin(), sequence.q.end());
  for (std::size_t i = 0; rules.bf16_inputs && absorbed && i < q.size(); ++i) {
    if (static_cast<std::int64_t>(i) % width < d.qk_nope_head_dim) q[i] = NearestBf16(q[i]);
  }
  for (std::int64_t head = 0; head < h; ++head) {
    const Head expanded =
        ExpandHead(weights, rows, sequence.keys, head, rules.bf16_attention && !absorbed, rules.exact_scores);
    for (std::int64_t t = 0; t < sequence.rows; ++t) {
      const std::int64_t at = t * h + head;
      const Row row =
          OracleRow(d, expanded, rows, q.data() + at * width, sequence.keys - sequence.rows + t + 1, scale, of_row);
      std::copy(row.out.begin(), row.out.end(), e.out.begin() + at * d.v_head_dim);
      std::copy(row.out_bound.begin(), row.out_bound.end(), e.out_bound.begin() + at * d.v_head_dim);
      e.lse[static_cast<std::size_t>(at)] = row.lse;
      e.lse_bound[static_cast<std::size_t>(at)] = row.lse_bound;
    }
  }
  return e;
}

}  // namespace mla::testing
