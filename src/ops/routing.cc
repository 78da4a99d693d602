#include "ops/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mla::ops {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Index of the largest of n values, the lowest where several are equal; -1 where none is above -inf.
std::int64_t ArgMax(const float* values, std::int64_t n) {
  std::int64_t best = -1;
  float value = kNever;
  for (std::int64_t i = 0; i < n; ++i) {
    if (values[i] > value) {
      value = values[i];
      best = i;
    }
  }
  return best;
}

float SumOfTwoBest(const float* values, std::int64_t n) {
  float first = kNever;
  float second = kNever;
  for (std::int64_t i = 0; i < n; ++i) {
    if (values[i] > first) {
      second = first;
      first = values[i];
    } else if (values[i] > second) {
      second = values[i];
    }
  }
  return n == 1 ? first : first + second;
}

float Best(const float* values, std::int64_t n) {
  const std::int64_t at = ArgMax(values, n);
  return at < 0 ? kNever : values[at];
}

// Leaves the choices of the best groups and sets the others' to -inf.
void KeepBestGroups(const RouterSpec& spec, float* choice, float* group_score) {
  const std::int64_t size = spec.experts / spec.groups;
  for (std::int64_t g = 0; g < spec.groups; ++g) {
    const float* group = choice + g * size;
    group_score[g] = spec.method == TopK::kNoauxTc ? SumOfTwoBest(group, size) : Best(group, size);
  }
  for (std::int64_t kept = 0; kept < spec.topk_group; ++kept) {
    const std::int64_t g = ArgMax(group_score, spec.groups);
    if (g < 0) break;
    group_score[g] = std::numeric_limits<float>::quiet_NaN();  // kept: NaN is never the largest
  }
  for (std::int64_t g = 0; g < spec.groups; ++g) {
    if (std::isnan(group_score[g])) continue;
    for (std::int64_t i = 0; i < size; ++i) choice[g * size + i] = kNever;
  }
}

// The lowest expert that is not among the first k chosen.
std::int64_t FirstUnchosen(const std::int32_t* index, std::int64_t k) {
  std::int64_t e = 0;
  while (std::find(index, index + k, static_cast<std::int32_t>(e)) != index + k) ++e;
  return e;
}

void Score(Scoring scoring, const float* logits, std::int64_t n, float* score) {
  if (scoring == Scoring::kSigmoid) {
    for (std::int64_t e = 0; e < n; ++e) {
      score[e] = static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(logits[e]))));
    }
    return;
  }
  const double largest = static_cast<double>(Best(logits, n));
  double sum = 0;
  for (std::int64_t e = 0; e < n; ++e) sum += std::exp(static_cast<double>(logits[e]) - largest);
  for (std::int64_t e = 0; e < n; ++e) {
    score[e] = static_cast<float>(std::exp(static_cast<double>(logits[e]) - largest) / sum);
  }
}

}  // namespace

void RouteToken(const RouterSpec& spec, const float* logits, const float* bias, float* scratch, std::int32_t* index,
                float* weight) {
  float* score = scratch;
  float* choice = scratch + spec.experts;
  float* group_score = scratch + 2 * spec.experts;
  Score(spec.scoring, logits, spec.experts, score);
  for (std::int64_t e = 0; e < spec.experts; ++e) {
    choice[e] = spec.method == TopK::kNoauxTc ? score[e] + bias[e] : score[e];
  }
  if (spec.method != TopK::kGreedy && spec.groups > 1) KeepBestGroups(spec, choice, group_score);
  double sum = 1e-20;
  for (std::int64_t k = 0; k < spec.top_k; ++k) {
    std::int64_t best = ArgMax(choice, spec.experts);
    if (best < 0) best = FirstUnchosen(index, k);  // no number is left: the model is broken, but no expert comes twice
    index[k] = static_cast<std::int32_t>(best);
    weight[k] = score[best];
    choice[best] = kNever;
    sum += score[best];
  }
  const double scale = spec.norm_topk_prob ? spec.routed_scaling_factor / sum : spec.routed_scaling_factor;
  for (std::int64_t k = 0; k < spec.top_k; ++k) weight[k] = static_cast<float>(weight[k] * scale);
}

}  // namespace mla::ops
