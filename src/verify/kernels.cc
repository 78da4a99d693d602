#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/buffer.h"
#include "ops/packed.h"
#include "reference/tasks.h"
#include "verify/attention_oracle.h"
#include "verify/levels.h"

namespace mla::verify {
namespace {

constexpr std::int64_t kHeads = 4;  // held against float64; the kernels run all
constexpr std::int64_t kPageTokens = 16;
constexpr std::int64_t kMostOutputs = 67;  // of a product: four panels and a partial one

// Standard normal numbers as fp32, in bf16 where that is how they are kept.
std::vector<float> Normals(std::int64_t count, double size, bool bf16, std::mt19937_64& rng) {
  std::normal_distribution<double> normal(0, size);
  std::vector<float> out(static_cast<std::size_t>(count));
  for (float& x : out) {
    x = static_cast<float>(normal(rng));
    if (bf16) x = FloatFromBf16(Bf16FromFloat(x));
  }
  return out;
}

Matrix AsMatrix(const std::vector<float>& from, std::int64_t rows, std::int64_t cols) {
  return {rows, cols, std::vector<double>(from.begin(), from.end())};
}

// T new rows of S keys.
struct Shape {
  std::int64_t rows;
  std::int64_t keys;
};

// Random rows of a ragged batch: none, one and several new rows; keys about the borders of a tile, a block and a
// segment.
class AttentionCase {
 public:
  AttentionCase(const Subject& subject, Executor& executor)
      : subject_(subject),
        executor_(executor),
        dims_(weights::DimsOf(subject.config)),
        heads_(Spread(dims_.num_attention_heads, kHeads)),
        rng_(5) {}

  Status Prepare() {
    const std::int64_t r = dims_.kv_lora_rank;
    const std::int64_t width = r + dims_.qk_rope_head_dim;
    const std::int64_t kv_rows = dims_.num_attention_heads * (dims_.qk_nope_head_dim + dims_.v_head_dim);
    const bool bf16_weights = subject_.weight_dtype != WeightDType::kF32;
    const bool bf16_cache = subject_.kv_dtype == DType::kBF16;
    const std::vector<float> kv_b = Normals(kv_rows * r, 1 / std::sqrt(static_cast<double>(r)), bf16_weights, rng_);
    kv_b_ = AsMatrix(kv_b, kv_rows, r);
    MLA_ASSIGN_OR_RETURN(KvBWeights packed,
                         KvBWeights::Pack(dims_, DType::kF32, reinterpret_cast<const std::byte*>(kv_b.data()),
                                          subject_.weight_dtype, executor_));
    packed_.emplace(std::move(packed));
    const CacheLayout layout = MakeLatentLayout(r, dims_.qk_rope_head_dim, 1, subject_.kv_dtype, kPageTokens);
    std::int64_t pages = 0;
    for (const Shape& shape : kShapes) pages += layout.PagesFor(shape.keys);
    MLA_ASSIGN_OR_RETURN(LatentCache cache, LatentCache::Create(layout, pages));
    cache_.emplace(std::move(cache));
    const CacheLayerView view = cache_->Layer(0);
    std::fill_n(view.data, pages * layout.page_bytes(), std::byte{0xff});  // NaN where no row is
    std::int32_t next = static_cast<std::int32_t>(pages);
    for (const Shape& shape : kShapes) {
      const std::vector<float> stored = Normals(shape.keys * width, 1, bf16_cache, rng_);
      std::vector<std::int32_t>& table = pages_.emplace_back();
      for (std::int64_t i = 0; i < layout.PagesFor(shape.keys); ++i) table.push_back(--next);
      for (std::int64_t j = 0; j < shape.keys; ++j) {
        const std::int64_t slot = table[static_cast<std::size_t>(j / kPageTokens)] * kPageTokens + j % kPageTokens;
        WriteCacheRow(view, slot, stored.data() + j * width, stored.data() + j * width + r);
      }
      table.push_back(std::numeric_limits<std::int32_t>::max());
      stored_.push_back(AsMatrix(stored, shape.keys, width));
      first_row_.push_back(rows_);
      rows_ += shape.rows;
    }
    // Scores of about 1: queries as large as keys make them so, before the scale of a trained model.
    q_ = Normals(rows_ * QueryWidth(), 1, false, rng_);
    return {};
  }

  Status Run(const KernelSet& set, Form form, Tally* out_tally, Tally* lse_tally) {
    MlaAttention::Options options = AttentionOptions(subject_, rows_, 2048);
    options.workers = executor_.workers();
    options.kernels = set.name;
    MLA_ASSIGN_OR_RETURN(const layers::AttendFn attend, subject_.attention(options));
    std::vector<AttentionSequence> sequences;
    for (std::size_t i = 0; i < kShapes.size(); ++i) {
      sequences.push_back({pages_[i], first_row_[i], kShapes[i].rows, kShapes[i].keys, form});
    }
    std::vector<float> out(static_cast<std::size_t>(rows_ * dims_.num_attention_heads * dims_.v_head_dim));
    std::vector<float> lse(static_cast<std::size_t>(rows_ * dims_.num_attention_heads));
    attend(cache_->Layer(0), *packed_, sequences, q_.data(), out.data(), lse.data(), executor_);
    const std::vector<AttentionOracle>& oracles =
        Oracles(set.ops->bf16_inputs && subject_.weight_dtype != WeightDType::kF32,
                set.bf16_attention && subject_.kv_dtype == DType::kBF16);
    reference::ForTasks(executor_, std::ssize(oracles), [&](std::int64_t task) {
      const auto shape = static_cast<std::size_t>(task % std::ssize(kShapes));
      const std::int64_t head = heads_[static_cast<std::size_t>(task / std::ssize(kShapes))];
      Compare(oracles[static_cast<std::size_t>(task)], form, shape, head, out, lse, out_tally, lse_tally);
    });
    return {};
  }

 private:
  static constexpr std::array<Shape, 10> kShapes = {
      {{1, 1}, {1, 63}, {1, 64}, {1, 65}, {5, 70}, {0, 3}, {2, 2}, {7, 7}, {3, 258}, {1, 1030}}};

  // [heads, shapes], of products that round their inputs or don't, attention likewise; made when first asked for.
  const std::vector<AttentionOracle>& Oracles(bool bf16_inputs, bool bf16_attention) {
    std::vector<AttentionOracle>& oracles = oracles_[{bf16_inputs, bf16_attention}];
    const double scale = contract::SoftmaxScale(subject_.config);
    if (!oracles.empty()) return oracles;
    for (const std::int64_t head : heads_) {
      for (const Matrix& stored : stored_) {
        oracles.emplace_back(HeadProblem{dims_, scale, &kv_b_, {0, bf16_inputs}, &stored, head, bf16_attention});
      }
    }
    return oracles;
  }

  std::int64_t QueryWidth() const {
    return dims_.num_attention_heads * (dims_.qk_nope_head_dim + dims_.qk_rope_head_dim);
  }

  void Compare(const AttentionOracle& oracle, Form form, std::size_t shape, std::int64_t head,
               const std::vector<float>& out, const std::vector<float>& lse, Tally* out_tally, Tally* lse_tally) const {
    const auto [rows, keys] = kShapes[shape];
    if (rows == 0) return;
    const std::int64_t h = dims_.num_attention_heads;
    const std::int64_t v = dims_.v_head_dim;
    const std::string what = fmt::format("T {}, S {}", rows, keys);
    for (std::int64_t t = 0; t < rows; ++t) {
      const std::int64_t row = first_row_[shape] + t;
      std::vector<double> q(static_cast<std::size_t>(dims_.qk_nope_head_dim + dims_.qk_rope_head_dim));
      std::copy_n(q_.data() + row * QueryWidth() + head * std::ssize(q), q.size(), q.data());
      const HeadAnswer answer = oracle.Answer(form, q.data(), 0, keys - rows + t + 1);
      Place place{-1, -1, head, -1, what};
      const double found_lse = lse[static_cast<std::size_t>(row * h + head)];
      lse_tally->Add(std::abs(found_lse - answer.lse), answer.lse_error, std::abs(answer.lse), place);
      const double size = RootMeanSquare(answer.out.data(), v);
      for (place.channel = 0; place.channel < v; ++place.channel) {
        const auto at = static_cast<std::size_t>(place.channel);
        const double found = out[static_cast<std::size_t>((row * h + head) * v) + at];
        out_tally->Add(std::abs(found - answer.out[at]), answer.out_error[at], size, place);
      }
    }
  }

  const Subject& subject_;
  Executor& executor_;
  MlaDims dims_;
  std::vector<std::int64_t> heads_;
  std::mt19937_64 rng_;
  Matrix kv_b_;
  std::optional<KvBWeights> packed_;
  std::optional<LatentCache> cache_;
  std::vector<std::vector<std::int32_t>> pages_;
  std::vector<Matrix> stored_;
  std::vector<std::int64_t> first_row_;
  std::int64_t rows_ = 0;
  std::vector<float> q_;  // [rows, H, N + P]
  std::map<std::pair<bool, bool>, std::vector<AttentionOracle>> oracles_;
};

// Random weights [n, k] as products read them, and the source that packing gets.
struct Weights {
  std::vector<float> values;
  std::vector<std::byte> codes;  // of fp8
  std::vector<float> scales;     // one for each block of columns
  ops::MatrixSource source;
};

constexpr std::int64_t kScaleBlock = 128;

void MakeWeights(ops::PackedFormat format, std::int64_t n, std::int64_t k, std::mt19937_64& rng, Weights* w) {
  const double size = 1 / std::sqrt(static_cast<double>(k));
  if (format != ops::PackedFormat::kF8) {
    w->values = Normals(n * k, size, format == ops::PackedFormat::kBF16, rng);
    w->source = ops::MatrixSource::Dense(DType::kF32, reinterpret_cast<const std::byte*>(w->values.data()), k, {});
    return;
  }
  // The root mean square of the codes is about 130.
  for (const float x : Normals((k + kScaleBlock - 1) / kScaleBlock, size / 130, false, rng)) {
    w->scales.push_back(std::abs(x));
  }
  for (std::int64_t i = 0; i < n * k; ++i) {
    auto code = static_cast<std::uint8_t>(rng());
    if (IsNanE4M3(code)) code = 0;
    w->codes.push_back(std::byte{code});
    const float scale = w->scales[static_cast<std::size_t>(i % k / kScaleBlock)];
    w->values.push_back(FloatFromBf16(Bf16FromFloat(FloatFromE4M3(code) * scale)));
  }
  w->source =
      ops::MatrixSource::Dense(DType::kF8E4M3, w->codes.data(), k,
                               {DType::kF32, reinterpret_cast<const std::byte*>(w->scales.data()), n, kScaleBlock});
}

// y = x W^T over k inputs, of one row and of seven.
Status ProveProduct(const KernelSet& set, ops::PackedFormat format, std::int64_t k, Executor& executor, Tally* tally) {
  std::mt19937_64 rng(static_cast<std::uint64_t>(k));
  const std::int64_t n = kMostOutputs;
  Weights w;
  MakeWeights(format, n, k, rng, &w);
  ops::PackedMatrix packed{format, n, k, nullptr, format == ops::PackedFormat::kF8 ? kScaleBlock : 0};
  MLA_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(packed.bytes(), "packed product"));
  packed.data = buffer.data();
  MLA_ASSIGN_OR_RETURN(Buffer scratch, Buffer::Allocate(executor.workers() * ops::kGemmScratch, "product scratch"));
  ops::PackPanels(w.source, 0, n, packed, 0, ops::Panels(n));
  for (const std::int64_t m : {std::int64_t{1}, std::int64_t{7}}) {
    const std::vector<float> x = Normals(m * k, 1, false, rng);
    std::vector<float> y(static_cast<std::size_t>(m * n));
    ops::Gemm({executor, *set.ops, {scratch.data()}}, ops::GemmProblem{x.data(), k, y.data(), n, m, packed});
    const ProductRule rule{0, format != ops::PackedFormat::kF32 && set.ops->bf16_inputs};
    const Bounded expected = BoundedProduct(Exact(AsMatrix(x, m, k)), AsMatrix(w.values, n, k), rule, executor);
    const Matrix found = AsMatrix(y, m, n);
    const std::string what = fmt::format("{} rows, {} inputs", m, k);
    for (std::int64_t i = 0; i < m; ++i) CompareRow(found.row(i), expected, i, 0, n, {-1, i, -1, -1, what}, tally);
  }
  return {};
}

// Norm, SwiGLU and weighted sum over rows of n.
void ProveRows(const KernelSet& set, std::int64_t n, double eps, Tally* tally) {
  std::mt19937_64 rng(static_cast<std::uint64_t>(n));
  const std::vector<float> x = Normals(n, 1, false, rng);
  const std::vector<float> w = Normals(n, 1, false, rng);
  std::vector<float> y(x.size());
  set.ops->rms_norm(x.data(), w.data(), static_cast<float>(eps), y.data(), n);
  const std::vector<double> wide(w.begin(), w.end());
  const std::string norm = fmt::format("norm of {}", n);
  CompareRow(AsMatrix(y, 1, n).row(0), BoundedNorm(Exact(AsMatrix(x, 1, n)), 0, wide, eps), 0, 0, n,
             {-1, -1, -1, -1, norm}, tally);
  set.ops->silu_mul(x.data(), w.data(), y.data(), n);
  std::vector<float> sum = w;
  set.ops->add_scaled(x.data(), 0.3F, sum.data(), n);
  const std::string silu = fmt::format("SwiGLU of {}", n);
  const std::string added = fmt::format("weighted sum of {}", n);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const double a = x[i];
    const double b = w[i];
    const double swiglu = reference::Silu(a) * b;
    // The exponential's argument, itself, the quotient and the product: 8 u.
    tally->Add(std::abs(static_cast<double>(y[i]) - swiglu), 8 * kU * std::abs(swiglu) + kTiny, std::abs(swiglu),
               {-1, -1, -1, at, silu});
    const double part = static_cast<double>(0.3F) * a;
    tally->Add(std::abs(static_cast<double>(sum[i]) - (b + part)), kU * (std::abs(part) + std::abs(b + part)) + kTiny,
               std::abs(b + part), {-1, -1, -1, at, added});
  }
}

// Lengths of the products that a model of this config has.
std::vector<std::int64_t> InputsOf(const contract::ModelConfig& c) {
  std::vector<std::int64_t> k = {c.hidden_size, c.intermediate_size, c.kv_lora_rank, c.qk_nope_head_dim,
                                 c.num_attention_heads * c.v_head_dim};
  if (c.q_lora_rank) k.push_back(*c.q_lora_rank);
  if (c.moe) k.push_back(c.moe->moe_intermediate_size);
  std::sort(k.begin(), k.end());
  k.erase(std::unique(k.begin(), k.end()), k.end());
  return k;
}

}  // namespace

Status ProveKernels(const Subject& subject, const Budget& budget, Report* report) {
  const auto& c = subject.config;
  AttentionCase attention(subject, subject.executor);
  MLA_RETURN_IF_ERROR(attention.Prepare());
  for (const KernelSet& set : subject.kernel_sets) {
    if (budget.Cancelled()) return {};
    for (const Form form : {Form::kAbsorbed, Form::kMha}) {
      Tally out(5, fmt::format("{}: attention, {}", set.name, FormName(form)));
      Tally lse(5, fmt::format("{}: log-sum-exp, {}", set.name, FormName(form)));
      if (const Status ran = attention.Run(set, form, &out, &lse); !ran.ok()) {
        // Kernels that fail their self-test are not even made.
        Check refused = out.Finish(ran.error().message);
        refused.verdict = Verdict::kFail;
        report->Add(std::move(refused));
        continue;
      }
      report->Add(out.Finish());
      report->Add(lse.Finish());
    }
    Tally products(5, fmt::format("{}: products", set.name));
    Tally rows(5, fmt::format("{}: norms, SwiGLU, weighted sums", set.name));
    for (const std::int64_t k : InputsOf(c)) {
      for (const ops::PackedFormat format :
           {ops::PackedFormat::kF32, ops::PackedFormat::kBF16, ops::PackedFormat::kF8}) {
        MLA_RETURN_IF_ERROR(ProveProduct(set, format, k, subject.executor, &products));
      }
      ProveRows(set, k, c.rms_norm_eps, &rows);
    }
    report->Add(products.Finish());
    report->Add(rows.Finish());
  }
  return {};
}

}  // namespace mla::verify
