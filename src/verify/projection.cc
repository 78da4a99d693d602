#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "verify/layer_proof.h"

namespace mla::verify {

Matrix Pick(const Matrix& from, std::span<const std::int64_t> rows) {
  Matrix out = reference::Zeros(std::ssize(rows), from.cols);
  for (std::int64_t i = 0; i < out.rows; ++i)
    std::copy_n(from.row(rows[static_cast<std::size_t>(i)]), from.cols, out.row(i));
  return out;
}

namespace {

// Columns [first, first + count) of a matrix.
Matrix Columns(const Matrix& from, std::int64_t first, std::int64_t count) {
  Matrix out = reference::Zeros(from.rows, count);
  for (std::int64_t t = 0; t < from.rows; ++t) std::copy_n(from.row(t) + first, count, out.row(t));
  return out;
}

class Projection {
 public:
  Projection(const LayerUnderProof& layer, const Traced& traced, std::span<const std::int64_t> rows)
      : layer_(layer),
        c_(layer.subject.config),
        w_(layer.weights.self_attn),
        traced_(traced),
        rows_(rows),
        at_(fmt::format("model.layers.{}.self_attn.", layer.index)),
        q_in_(c_.q_lora_rank.value_or(c_.num_attention_heads * HeadDim())),
        normed_(Exact(Pick(traced.trace.normed, rows))),
        a_(Pick(traced.trace.q_a_kv_a, rows)) {
    const auto frequencies = reference::RopeFrequencies(c_.rope, traced.context);
    for (const std::int64_t row : rows) {
      angles_.push_back(reference::AnglesAt(c_.rope, frequencies, traced.first_position + row));
    }
  }

  void Compare(const Matrix& found, std::int64_t column, const Bounded& expected, std::int64_t first,
               std::int64_t count, std::int64_t head, Tally* tally) const {
    if (tally == nullptr || count == 0) return;
    for (std::int64_t i = 0; i < std::ssize(rows_); ++i) {
      Place place{layer_.index, traced_.first_position + rows_[static_cast<std::size_t>(i)], head};
      CompareRow(found.row(i) + column, expected, i, first, count, place, tally);
    }
  }

  void Normed(Tally* tally) const {
    if (tally == nullptr) return;
    const Bounded expected =
        BoundedNorm(Exact(Pick(traced_.trace.entered, rows_)), 0, layer_.weights.input_layernorm, c_.rms_norm_eps);
    Compare(normed_.value, 0, expected, 0, c_.hidden_size, -1, tally);
  }

  void Queries(const ProjectionTallies& tallies) const {
    if (c_.q_lora_rank && tallies.q_latent != nullptr) {
      const Bounded product = Product(normed_, w_.q_a_proj, "q_a_proj");
      Compare(a_, 0, BoundedNorm(product, 0, w_.q_a_layernorm, c_.latent_norm_eps), 0, q_in_, -1, tallies.q_latent);
    }
    Bounded q = c_.q_lora_rank ? Product(Exact(Columns(a_, 0, q_in_)), w_.q_b_proj, "q_b_proj")
                               : Product(normed_, w_.q_proj, "q_proj");
    const Matrix found = Pick(traced_.trace.q, rows_);
    for (std::int64_t head = 0; head < c_.num_attention_heads; ++head) {
      const std::int64_t rope = head * HeadDim() + c_.qk_nope_head_dim;
      RotateAll(rope, &q);
      Compare(found, rope - c_.qk_nope_head_dim, q, rope - c_.qk_nope_head_dim, c_.qk_nope_head_dim, head,
              tallies.q_nope);
      Compare(found, rope, q, rope, c_.qk_rope_head_dim, head, tallies.q_pe);
    }
  }

  void Keys(const ProjectionTallies& tallies) const {
    const std::int64_t r = c_.kv_lora_rank;
    Bounded kv = Product(normed_, w_.kv_a_proj_with_mqa, "kv_a_proj_with_mqa");
    RotateAll(r, &kv);
    const Bounded latent = BoundedNorm(kv, 0, w_.kv_a_layernorm, c_.latent_norm_eps);
    Compare(a_, q_in_, latent, 0, r, -1, tallies.latent);
    Compare(a_, q_in_ + r, kv, r, c_.qk_rope_head_dim, -1, tallies.k_pe);
    const Matrix stored = Pick(traced_.trace.stored, rows_);
    const Bounded rounded_latent = Rounded(latent);
    const Bounded rounded = Rounded(kv);
    Compare(stored, 0, rounded_latent, 0, r, -1, tallies.stored);
    Compare(stored, r, rounded, r, c_.qk_rope_head_dim, -1, tallies.stored);
  }

 private:
  std::int64_t HeadDim() const { return c_.qk_nope_head_dim + c_.qk_rope_head_dim; }

  Bounded Product(const Bounded& x, const Matrix& weight, const char* name) const {
    return BoundedProduct(x, weight, layer_.Rule(at_ + name), layer_.subject.executor);
  }

  void RotateAll(std::int64_t first, Bounded* x) const {
    for (std::int64_t i = 0; i < std::ssize(rows_); ++i) {
      const auto at = static_cast<std::size_t>(i);
      BoundedRotate(c_.rope, angles_[at], traced_.first_position + rows_[at], i, first, x);
    }
  }

  // As kept in the cache.
  Bounded Rounded(Bounded x) const {
    if (layer_.subject.kv_dtype != DType::kBF16) return x;
    for (std::size_t i = 0; i < x.error.values.size(); ++i) {
      x.error.values[i] += kUBf16 * (std::abs(x.value.values[i]) + x.error.values[i]);
    }
    return x;
  }

  const LayerUnderProof& layer_;
  const contract::ModelConfig& c_;
  const reference::AttentionWeights& w_;
  const Traced& traced_;
  std::span<const std::int64_t> rows_;
  std::string at_;
  std::int64_t q_in_;  // columns of q_a, or of q
  Bounded normed_;
  Matrix a_;
  std::vector<reference::RopeAngles> angles_;
};

}  // namespace

void ProveProjection(const LayerUnderProof& layer, const Traced& traced, std::span<const std::int64_t> rows,
                     const ProjectionTallies& tallies) {
  const Projection projection(layer, traced, rows);
  projection.Normed(tallies.normed);
  projection.Queries(tallies);
  projection.Keys(tallies);
}

}  // namespace mla::verify
