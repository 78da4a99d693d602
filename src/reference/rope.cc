#include "reference/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mla::reference {
namespace {

// The (fractional) pair that makes `rotations` full turns over the original window.
double PairThatTurns(const RopeSpec& spec, double rotations) {
  const double window = static_cast<double>(spec.original_max_position_embeddings);
  return static_cast<double>(spec.dim) * std::log(window / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(spec.theta));
}

}  // namespace

double MscaleOf(double factor, double mscale) { return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

double AttentionScale(const contract::ModelConfig& config) {
  double scale = 1.0 / std::sqrt(static_cast<double>(config.qk_nope_head_dim + config.qk_rope_head_dim));
  if (config.rope.scaling == RopeScaling::kYarn && config.rope.mscale_all_dim != 0.0) {
    const double m = MscaleOf(config.rope.factor, config.rope.mscale_all_dim);
    scale *= m * m;
  }
  return scale;
}

std::vector<double> RopeFrequencies(const RopeSpec& spec, std::int64_t context) {
  std::vector<double> frequencies(static_cast<std::size_t>(spec.dim / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(spec.theta, -2.0 * static_cast<double>(i) / static_cast<double>(spec.dim));
  }
  if (spec.scaling == RopeScaling::kNone || frequencies.empty()) return frequencies;
  if (spec.scaling == RopeScaling::kLongrope) {
    const bool within = context <= spec.original_max_position_embeddings;
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      frequencies[i] /= within ? spec.short_factor[i] : spec.long_factor[i];
    }
    return frequencies;
  }

  // Pairs up to `low` keep their frequency, pairs from `high` on are slowed by the whole factor, a ramp between.
  const double low = std::max(std::floor(PairThatTurns(spec, spec.beta_fast)), 0.0);
  double high = std::min(std::ceil(PairThatTurns(spec, spec.beta_slow)), static_cast<double>(spec.dim - 1));
  if (low == high) high += 0.001;  // DeepSeek's published code
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / spec.factor * ramp + frequencies[i] * (1.0 - ramp);
  }
  return frequencies;
}

RopeAngles AnglesAt(const RopeSpec& spec, const std::vector<double>& frequencies, std::int64_t position) {
  double scale = 1.0;
  if (spec.scaling == RopeScaling::kYarn) {
    scale = MscaleOf(spec.factor, spec.mscale) / MscaleOf(spec.factor, spec.mscale_all_dim);
  }
  if (spec.scaling == RopeScaling::kLongrope) scale = spec.attention_factor;
  RopeAngles angles;
  for (const double frequency : frequencies) {
    angles.cos.push_back(std::cos(static_cast<double>(position) * frequency) * scale);
    angles.sin.push_back(std::sin(static_cast<double>(position) * frequency) * scale);
  }
  return angles;
}

void Rotate(RopeLayout layout, const RopeAngles& angles, double* x) {
  if (layout == RopeLayout::kNone) return;
  const std::size_t pairs = angles.cos.size();
  for (std::size_t i = 0; i < pairs; ++i) {
    const bool interleaved = layout == RopeLayout::kInterleaved;
    double& a = x[interleaved ? 2 * i : i];
    double& b = x[interleaved ? 2 * i + 1 : i + pairs];
    const double rotated = a * angles.cos[i] - b * angles.sin[i];
    b = a * angles.sin[i] + b * angles.cos[i];
    a = rotated;
  }
}

}  // namespace mla::reference
