#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include <fmt/format.h>

#include "reference/routing.h"
#include "verify/layer_proof.h"

namespace mla::verify {
namespace {

// Of a sigmoid or an exponential: its argument's rounding, its own and the product's.
constexpr double kActivationError = 8 * kU;

class FeedForward {
 public:
  FeedForward(const LayerUnderProof& layer, const LayerTrace& trace, std::span<const std::int64_t> rows)
      : layer_(layer),
        c_(layer.subject.config),
        trace_(trace),
        rows_(rows),
        at_(fmt::format("model.layers.{}.", layer.index)),
        normed_(Exact(Pick(trace.mlp_normed, rows))) {}

  void Compare(const Matrix& found, const Bounded& expected, Tally* tally) const {
    for (std::int64_t i = 0; i < found.rows; ++i) {
      CompareRow(found.row(i), expected, i, 0, found.cols, PlaceOf(i), tally);
    }
  }

  // found = before + scale * addend, one rounding of the sum and two of the addend; relative to what is added.
  void CompareAdded(const Matrix& before, const Matrix& found, const Bounded& addend, Tally* tally) const {
    for (std::int64_t i = 0; i < found.rows; ++i) {
      const double size = RootMeanSquare(addend.value.row(i), addend.value.cols) * c_.residual_scale;
      Place place = PlaceOf(i);
      for (place.channel = 0; place.channel < found.cols; ++place.channel) {
        const double added = c_.residual_scale * addend.value.row(i)[place.channel];
        const double expected = before.row(i)[place.channel] + added;
        const double bound = c_.residual_scale * addend.error.row(i)[place.channel] +
                             kU * (2 * std::abs(added) + std::abs(expected)) + kTiny;
        tally->Add(std::abs(found.row(i)[place.channel] - expected), bound, size, place);
      }
    }
  }

  void Attention(Tally* tally) const {
    const Bounded added = BoundedProduct(Exact(Pick(trace_.attended, rows_)), layer_.weights.self_attn.o_proj,
                                         layer_.Rule(at_ + "self_attn.o_proj"), layer_.subject.executor);
    CompareAdded(Pick(trace_.entered, rows_), Pick(trace_.added, rows_), added, tally);
  }

  void Normed(Tally* tally) const {
    Compare(normed_.value,
            BoundedNorm(Exact(Pick(trace_.added, rows_)), 0, layer_.weights.post_attention_layernorm, c_.rms_norm_eps),
            tally);
  }

  // From production's own logits: the choice must be the oracle's, or hang on less than fp32 can tell.
  void Routing(const FeedForwardTallies& tallies) const {
    const auto& moe = *layer_.weights.moe;
    const Matrix logits = Pick(trace_.router_logits, rows_);
    Compare(logits, BoundedProduct(normed_, moe.gate, {}, layer_.subject.executor), tallies.router);
    const Matrix weights = Pick(trace_.expert_weight, rows_);
    for (std::int64_t i = 0; i < logits.rows; ++i) {
      const auto scores = reference::GateScores({logits.row(i), static_cast<std::size_t>(logits.cols)}, *c_.moe);
      const std::vector<std::int64_t> chosen = Experts(i);
      tallies.choice->Add(Differing(scores, moe.e_score_correction_bias, chosen), 0, 0, PlaceOf(i));
      const reference::Routing expected = reference::WeighExperts(scores, chosen, *c_.moe);
      const double size = RootMeanSquare(expected.weights.data(), std::ssize(expected.weights));
      for (std::int64_t k = 0; k < weights.cols; ++k) {
        const double weight = expected.weights[static_cast<std::size_t>(k)];
        const double bound = (kActivationError + SumError(weights.cols) + 4 * kU) * std::abs(weight) + kTiny;
        Place place = PlaceOf(i);
        place.channel = k;
        tallies.weights->Add(std::abs(weights.row(i)[k] - weight), bound, size, place);
      }
    }
  }

  // What the feed-forward adds, with production's own choice and weights.
  void Output(Tally* tally) const {
    Bounded out = Exact(reference::Zeros(normed_.value.rows, c_.hidden_size));
    if (!layer_.weights.moe) {
      out = Mlp(normed_, layer_.weights.mlp, at_ + "mlp.");
    } else {
      const auto& moe = *layer_.weights.moe;
      if (moe.shared_experts) out = Mlp(normed_, *moe.shared_experts, at_ + "mlp.shared_experts.");
      AddExperts(&out);
    }
    CompareAdded(Pick(trace_.added, rows_), Pick(trace_.done, rows_), out, tally);
  }

 private:
  Place PlaceOf(std::int64_t i) const { return {layer_.index, rows_[static_cast<std::size_t>(i)]}; }

  std::vector<std::int64_t> Experts(std::int64_t i) const {
    const std::int64_t k = c_.moe->num_experts_per_tok;
    const auto* first = trace_.expert.data() + rows_[static_cast<std::size_t>(i)] * k;
    return {first, first + k};
  }

  // Experts of `chosen` that the oracle would not visit, whichever way ties within fp32's rounding of the scores fall.
  double Differing(std::vector<double> scores, const std::vector<double>& bias,
                   const std::vector<std::int64_t>& chosen) const {
    std::mt19937_64 rng(1);
    std::uniform_real_distribution<double> rounding(-4 * kU, 4 * kU);
    const std::set<std::int64_t> found(chosen.begin(), chosen.end());
    double least = static_cast<double>(c_.moe->num_experts_per_tok);
    for (int attempt = 0; attempt < 16 && least > 0; ++attempt) {
      std::vector<double> perturbed = scores;
      if (attempt > 0) {
        for (double& score : perturbed) score += rounding(rng) * (1 + std::abs(score));
      }
      std::set<std::int64_t> missing = found;
      for (const std::int64_t e : reference::Route(perturbed, bias, *c_.moe).experts) missing.erase(e);
      least = std::min(least, static_cast<double>(missing.size()));
    }
    return least;
  }

  // down(silu(gate x) * up x). |silu'| is at most 1.1.
  Bounded Mlp(const Bounded& x, const reference::MlpWeights& w, const std::string& at) const {
    Executor& executor = layer_.subject.executor;
    Bounded inner = BoundedProduct(x, w.gate_proj, layer_.Rule(at + "gate_proj"), executor);
    const Bounded up = BoundedProduct(x, w.up_proj, layer_.Rule(at + "up_proj"), executor);
    for (std::size_t i = 0; i < inner.value.values.size(); ++i) {
      const double gate = inner.value.values[i];
      const double e_gate = inner.error.values[i];
      const double u = up.value.values[i];
      const double silu = reference::Silu(gate);
      inner.value.values[i] = silu * u;
      inner.error.values[i] = 1.1 * e_gate * (std::abs(u) + up.error.values[i]) + std::abs(silu) * up.error.values[i] +
                              kActivationError * std::abs(silu * u) + kTiny;
    }
    return BoundedProduct(inner, w.down_proj, layer_.Rule(at + "down_proj"), executor);
  }

  // Expert by expert, each read once.
  void AddExperts(Bounded* out) const {
    std::map<std::int64_t, std::vector<std::pair<std::int64_t, double>>> visits;
    for (std::int64_t i = 0; i < normed_.value.rows; ++i) {
      const std::vector<std::int64_t> chosen = Experts(i);
      for (std::size_t k = 0; k < chosen.size(); ++k) {
        const double weight = trace_.expert_weight.row(rows_[static_cast<std::size_t>(i)])[k];
        visits[chosen[k]].emplace_back(i, weight);
      }
    }
    const reference::TensorReader reader(c_, layer_.subject.checkpoint);
    for (const auto& [e, rows] : visits) {
      const reference::MlpWeights weights = reference::LoadExpert(reader, layer_.index, e);
      std::vector<std::int64_t> which;
      for (const auto& visit : rows) which.push_back(visit.first);
      const Bounded added = Mlp(Exact(Pick(normed_.value, which)), weights, fmt::format("{}mlp.experts.{}.", at_, e));
      for (std::int64_t i = 0; i < added.value.rows; ++i) {
        const auto [row, weight] = rows[static_cast<std::size_t>(i)];
        for (std::int64_t n = 0; n < c_.hidden_size; ++n) {
          const double part = weight * added.value.row(i)[n];
          double& sum = out->value.row(row)[n];
          sum += part;
          // The product with the weight, and the sum into the residual stream.
          out->error.row(row)[n] +=
              std::abs(weight) * added.error.row(i)[n] + kU * (2 * std::abs(part) + std::abs(sum));
        }
      }
    }
    // The residual stream is what is summed into: each of the sums is rounded at its size.
    const Matrix added = Pick(trace_.added, rows_);
    for (std::size_t i = 0; i < out->error.values.size(); ++i) {
      const double size = std::abs(added.values[i]) + std::abs(out->value.values[i]);
      out->error.values[i] += kU * size * static_cast<double>(c_.moe->num_experts_per_tok + 1) / c_.residual_scale;
    }
  }

  const LayerUnderProof& layer_;
  const contract::ModelConfig& c_;
  const LayerTrace& trace_;
  std::span<const std::int64_t> rows_;
  std::string at_;
  Bounded normed_;
};

}  // namespace

void ProveFeedForward(const LayerUnderProof& layer, const LayerTrace& trace, std::span<const std::int64_t> rows,
                      const FeedForwardTallies& tallies) {
  const FeedForward proof(layer, trace, rows);
  proof.Attention(tallies.attention_added);
  proof.Normed(tallies.normed);
  if (layer.weights.moe) proof.Routing(tallies);
  proof.Output(tallies.feed_forward);
}

}  // namespace mla::verify
