// The oracle of attention in products of bf16 against a plain float implementation of what the kernels promise
// (attention/kernels.h), and against the same with one step done wrongly: the right one is within its bounds, each
// wrong one is not. On any machine, whatever its kernels.
#include "verify/attention_oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mla/dtypes.h"

namespace mla::verify {
namespace {

using Round = std::function<float(float)>;

float Nearest(float x) { return FloatFromBf16(Bf16FromFloat(x)); }
float Cut(float x) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffff0000U); }
float Keep(float x) { return x; }

// How the implementation goes about each step.
struct Ways {
  Round query = Nearest;          // q~, or q_nope, and q_pe
  Round expanded = Nearest;       // keys and values of the MHA form
  Round weight = Nearest;         // of keys, where they meet values
  std::int64_t block = 256;       // whose largest score weights are relative to
  bool sums_rounded = false;      // weights are summed after they are rounded
  bool values_swapped = false;    // those of two keys in each odd channel
  std::int64_t missing_key = -1;  // its weight is 0
};

struct Shape {
  MlaDims dims;
  std::int64_t keys;
};

// One head, its rows and a query.
struct Case {
  // Queries of 1 or so in size make flat weights; larger ones, sharp ones.
  Case(const Shape& shape, const ProductRule& rule, std::uint64_t seed = 7, double query = 1)
      : d(shape.dims), keys(shape.keys) {
    std::mt19937_64 rng(seed);
    const double size = 1 / std::sqrt(static_cast<double>(d.kv_lora_rank));
    kv_b = Random(d.qk_nope_head_dim + d.v_head_dim, d.kv_lora_rank, size, true, &rng);
    stored = Random(keys, d.kv_lora_rank + d.qk_rope_head_dim, 1, true, &rng);
    q = Random(1, d.qk_nope_head_dim + d.qk_rope_head_dim, query, false, &rng);
    problem = {d, 1 / std::sqrt(static_cast<double>(q.cols)), &kv_b, rule, &stored, 0, true};
  }

  static Matrix Random(std::int64_t rows, std::int64_t cols, double size, bool bf16, std::mt19937_64* rng) {
    std::normal_distribution<double> normal(0, size);
    Matrix out = reference::Zeros(rows, cols);
    for (double& x : out.values) {
      const auto value = static_cast<float>(normal(*rng));
      x = bf16 ? Nearest(value) : value;
    }
    return out;
  }

  MlaDims d;
  std::int64_t keys;
  Matrix kv_b;
  Matrix stored;
  Matrix q;
  HeadProblem problem;
};

using Rows = std::vector<std::vector<float>>;

float Dot(const std::vector<float>& a, const std::vector<float>& b) {
  float sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

std::vector<float> Floats(const double* from, std::int64_t n) { return {from, from + n}; }

// Queries, keys and values as products take them; values are latents in the absorbed form.
struct Operands {
  std::vector<float> q;
  Rows keys;
  Rows values;
};

Operands AbsorbedOperands(const Case& c, const Ways& ways) {
  const MlaDims& d = c.d;
  Operands out;
  for (std::int64_t i = 0; i < d.kv_lora_rank; ++i) {
    float sum = 0;
    for (std::int64_t n = 0; n < d.qk_nope_head_dim; ++n) {
      const auto q = static_cast<float>(c.q.row(0)[n]);
      sum += (c.problem.rule.bf16_inputs ? Nearest(q) : q) * static_cast<float>(c.kv_b.row(n)[i]);
    }
    out.q.push_back(ways.query(sum));
  }
  for (const float pe : Floats(c.q.row(0) + d.qk_nope_head_dim, d.qk_rope_head_dim)) out.q.push_back(ways.query(pe));
  for (std::int64_t j = 0; j < c.keys; ++j) {
    out.keys.push_back(Floats(c.stored.row(j), c.stored.cols));
    out.values.push_back(Floats(c.stored.row(j), d.kv_lora_rank));
  }
  return out;
}

Operands MhaOperands(const Case& c, const Ways& ways) {
  const MlaDims& d = c.d;
  Operands out;
  for (const float q : Floats(c.q.row(0), c.q.cols)) out.q.push_back(ways.query(q));
  Rows weights;
  for (std::int64_t i = 0; i < c.kv_b.rows; ++i) weights.push_back(Floats(c.kv_b.row(i), d.kv_lora_rank));
  for (std::int64_t j = 0; j < c.keys; ++j) {
    const std::vector<float> latent = Floats(c.stored.row(j), d.kv_lora_rank);
    std::vector<float> key;
    std::vector<float> value;
    for (std::int64_t i = 0; i < c.kv_b.rows; ++i) {
      const float expanded = ways.expanded(Dot(weights[static_cast<std::size_t>(i)], latent));
      (i < d.qk_nope_head_dim ? key : value).push_back(expanded);
    }
    for (const float pe : Floats(c.stored.row(j) + d.kv_lora_rank, d.qk_rope_head_dim)) key.push_back(pe);
    out.keys.push_back(key);
    out.values.push_back(value);
  }
  return out;
}

struct State {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0;
  std::vector<float> acc;

  void Rescale(float to) {
    const float by = max == to ? 1.0F : std::exp(max - to);
    sum *= by;
    for (float& x : acc) x *= by;
    max = to;
  }
};

// A block of keys into a segment's state.
void AddBlock(const Operands& x, const Ways& ways, float scale, std::int64_t begin, std::int64_t end, State* state) {
  std::vector<float> scores;
  float largest = state->max;
  for (std::int64_t j = begin; j < end; ++j) {
    scores.push_back(Dot(x.q, x.keys[static_cast<std::size_t>(j)]));
    largest = std::max(largest, scores.back() * scale);
  }
  state->Rescale(largest);
  for (std::int64_t j = begin; j < end; ++j) {
    float p = std::exp(std::fma(scores[static_cast<std::size_t>(j - begin)], scale, -largest));
    if (j == ways.missing_key) p = 0;
    const float weight = ways.weight(p);
    state->sum += ways.sums_rounded ? weight : p;
    const std::int64_t other = std::min(j ^ 1, end - 1);
    for (std::size_t i = 0; i < state->acc.size(); ++i) {
      const std::int64_t from = ways.values_swapped && i % 2 == 1 ? other : j;
      state->acc[i] += weight * x.values[static_cast<std::size_t>(from)][i];
    }
  }
}

struct Answer {
  std::vector<float> out;  // [V]
  float lse;
};

Answer Implementation(const Case& c, Form form, const Ways& ways) {
  const Operands x = form == Form::kAbsorbed ? AbsorbedOperands(c, ways) : MhaOperands(c, ways);
  const auto scale = static_cast<float>(c.problem.scale);
  State total;
  for (std::int64_t segment = 0; segment < c.keys; segment += 1024) {
    State state;
    state.acc.resize(x.values[0].size());
    const std::int64_t end = std::min(segment + 1024, c.keys);
    for (std::int64_t begin = segment; begin < end; begin += ways.block) {
      AddBlock(x, ways, scale, begin, std::min(begin + ways.block, end), &state);
    }
    if (segment == 0) {
      total = state;
      continue;
    }
    const float largest = std::max(total.max, state.max);
    total.Rescale(largest);
    state.Rescale(largest);
    total.sum += state.sum;
    for (std::size_t i = 0; i < total.acc.size(); ++i) total.acc[i] += state.acc[i];
  }
  for (float& element : total.acc) element /= total.sum;
  Answer answer{total.acc, total.max + std::log(total.sum)};
  if (form == Form::kMha) return answer;
  if (c.problem.rule.bf16_inputs) std::transform(total.acc.begin(), total.acc.end(), total.acc.begin(), Nearest);
  answer.out.clear();
  for (std::int64_t v = 0; v < c.d.v_head_dim; ++v) {
    answer.out.push_back(Dot(Floats(c.kv_b.row(c.d.qk_nope_head_dim + v), c.d.kv_lora_rank), total.acc));
  }
  return answer;
}

// Largest error, as a part of its bound, of outputs and of the log-sum-exp; and the outputs' bound as a part of their
// root mean square.
struct Ratios {
  double out = 0;
  double lse = 0;
  double bound = 0;
};

Ratios Compare(const Case& c, Form form, const Ways& ways) {
  const HeadAnswer expected = AttentionOracle(c.problem).Answer(form, c.q.row(0), 0, c.keys);
  const Answer found = Implementation(c, form, ways);
  Ratios ratios;
  const double size = RootMeanSquare(expected.out.data(), c.d.v_head_dim);
  for (std::size_t v = 0; v < found.out.size(); ++v) {
    ratios.out = std::max(ratios.out, std::abs(found.out[v] - expected.out[v]) / expected.out_error[v]);
    ratios.bound = std::max(ratios.bound, expected.out_error[v] / size);
  }
  ratios.lse = std::abs(found.lse - expected.lse) / expected.lse_error;
  return ratios;
}

const MlaDims kSmall{4, 16, 8, 12, 32};
const MlaDims kLarge{16, 128, 64, 128, 512};

class Oracle : public ::testing::TestWithParam<Form> {};

TEST_P(Oracle, HoldsWhatIsDoneRight) {
  const std::vector<Shape> shapes = {{kSmall, 1},   {kSmall, 2},    {kSmall, 255},  {kSmall, 256}, {kSmall, 257},
                                     {kSmall, 700}, {kSmall, 1030}, {kSmall, 2100}, {kLarge, 90},  {kLarge, 300}};
  for (const Shape& shape : shapes) {
    for (const double query : {1.0, 30.0}) {
      for (const bool bf16_inputs : {false, true}) {
        const Case c(shape, {0, bf16_inputs}, 7, query);
        const Ratios ratios = Compare(c, GetParam(), {});
        const std::string what = fmt::format("{} keys, R {}, queries of {}{}", shape.keys, shape.dims.kv_lora_rank,
                                             query, bf16_inputs ? ", inputs in bf16" : "");
        EXPECT_LE(ratios.out, 1) << what;
        EXPECT_LE(ratios.lse, 1) << what;
        const double narrow = shape.dims.kv_lora_rank == 32 ? 0.01 : 0.1;
        EXPECT_LT(ratios.bound, query == 1 ? narrow : 1) << what;
      }
    }
  }
}

struct Fault {
  const char* name;
  Ways ways;
  bool mha_alone = false;
};

std::vector<Fault> Faults() {
  std::vector<Fault> faults = {
      {"queries cut", {.query = Cut}},
      {"queries in fp32", {.query = Keep}},
      {"keys and values cut", {.expanded = Cut}, true},
      {"keys and values in fp32", {.expanded = Keep}, true},
      {"weights cut", {.weight = Cut}},
      {"weights in fp32", {.weight = Keep}},
      {"weights relative to blocks of 64", {.block = 64}},
      {"weights relative to segments", {.block = 1024}},
      {"rounded weights summed", {.sums_rounded = true}},
      {"values interleaved wrongly", {.values_swapped = true}},
      {"a key missing", {.missing_key = 50}},
  };
  return faults;
}

// In one row or another: where a rounding on the way is not known, a small fault may hide. The ratios are those of
// docs/verify.md.
TEST_P(Oracle, FindsWhatIsDoneWrongly) {
  const bool mha = GetParam() == Form::kMha;
  for (const bool bf16_inputs : {false, true}) {
    if (mha && bf16_inputs) continue;  // its rows are in bf16 already
    for (const Fault& fault : Faults()) {
      if (fault.mha_alone && !mha) continue;
      double largest = 0;
      for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
        for (const std::int64_t keys : {100, 600}) {
          const Case c({kSmall, keys}, {0, bf16_inputs}, seed);
          const Ratios ratios = Compare(c, GetParam(), fault.ways);
          largest = std::max({largest, ratios.out, ratios.lse});
        }
      }
      fmt::print("{}: {:.3g}\n", fault.name, largest);
      EXPECT_GT(largest, 1) << fault.name;
    }
  }
}

// Where latents are so wide that few roundings are known, what is more than a rounding is still found.
TEST_P(Oracle, FindsWrongValuesInWideHeads) {
  const Case c({kLarge, 90}, {0, true});
  for (const Ways& ways : {Ways{.query = Cut}, Ways{.values_swapped = true}, Ways{.missing_key = 50}}) {
    const Ratios ratios = Compare(c, GetParam(), ways);
    fmt::print("{:.3g}, lse {:.3g}\n", ratios.out, ratios.lse);
    EXPECT_GT(std::max(ratios.out, ratios.lse), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Oracle, ::testing::Values(Form::kAbsorbed, Form::kMha),
                         [](const auto& test) { return test.param == Form::kMha ? "Mha" : "Absorbed"; });

// Weights that are kept in bf16 where the file has them otherwise: nothing is known then, and nothing is missed.
TEST(Oracle, HoldsRoundedWeights) {
  for (const Form form : {Form::kAbsorbed, Form::kMha}) {
    Case c({kSmall, 300}, {0x1p-8, true});
    std::mt19937_64 rng(3);
    Matrix exact = c.kv_b;
    for (double& w : exact.values) w *= 1 + std::uniform_real_distribution<double>(-0x1p-8, 0x1p-8)(rng);
    Case of_file = c;
    of_file.problem.kv_b = &exact;
    of_file.problem.stored = &of_file.stored;
    const HeadAnswer expected = AttentionOracle(of_file.problem).Answer(form, c.q.row(0), 0, c.keys);
    c.problem.kv_b = &c.kv_b;
    const Answer found = Implementation(c, form, {});
    for (std::size_t v = 0; v < found.out.size(); ++v) {
      EXPECT_LE(std::abs(found.out[v] - expected.out[v]), expected.out_error[v]) << v;
    }
  }
}

}  // namespace
}  // namespace mla::verify
