#include "reference/routing.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "reference/vector_math.h"

namespace mla::reference {
namespace {

// Indices of the `count` largest, largest first, equal ones in the order of their index.
std::vector<std::int64_t> Largest(const std::vector<double>& values, const std::vector<std::int64_t>& among,
                                  std::int64_t count) {
  MLA_CHECK_LE(count, static_cast<std::int64_t>(among.size()));
  std::vector<std::int64_t> order = among;  // ascending, and the sort is stable
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)];
  });
  order.resize(static_cast<std::size_t>(count));
  return order;
}

std::vector<std::int64_t> Range(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> range(static_cast<std::size_t>(end - begin));
  std::iota(range.begin(), range.end(), begin);
  return range;
}

// How much a group counts. V3 section 2.1.2: as much as its two best experts together. V2 section 2.2.2: as its best.
double GroupValue(const std::vector<double>& choice, const std::vector<std::int64_t>& members,
                  contract::TopkMethod method) {
  const std::int64_t best = method == contract::TopkMethod::kNoauxTc ? 2 : 1;
  double value = 0;
  for (const std::int64_t e : Largest(choice, members, std::min<std::int64_t>(best, std::ssize(members)))) {
    value += choice[static_cast<std::size_t>(e)];
  }
  return value;
}

// The experts that may be chosen: those of the topk_group best groups, however low (negative, even) their own choice
// values are. Greedy choice knows no groups.
std::vector<std::int64_t> Candidates(const std::vector<double>& choice, const contract::MoeConfig& moe) {
  if (moe.topk_method == contract::TopkMethod::kGreedy) return Range(0, moe.n_routed_experts);
  const std::int64_t group_size = moe.n_routed_experts / moe.n_group;
  std::vector<double> value;
  for (std::int64_t g = 0; g < moe.n_group; ++g) {
    value.push_back(GroupValue(choice, Range(g * group_size, (g + 1) * group_size), moe.topk_method));
  }
  auto groups = Largest(value, Range(0, moe.n_group), moe.topk_group);
  std::sort(groups.begin(), groups.end());
  std::vector<std::int64_t> candidates;
  for (const std::int64_t g : groups) {
    for (const std::int64_t e : Range(g * group_size, (g + 1) * group_size)) candidates.push_back(e);
  }
  return candidates;
}

}  // namespace

std::vector<double> GateScores(std::span<const double> logits, const contract::MoeConfig& moe) {
  std::vector<double> scores(logits.begin(), logits.end());
  if (moe.scoring_func == contract::ScoringFunc::kSoftmax) {
    Softmax(scores);
  } else {
    for (double& score : scores) score = Sigmoid(score);
  }
  return scores;
}

Routing Route(std::span<const double> scores, std::span<const double> bias, const contract::MoeConfig& moe) {
  // V3 equation 16: the experts are chosen by s + b.
  std::vector<double> choice(scores.begin(), scores.end());
  if (moe.topk_method == contract::TopkMethod::kNoauxTc) {
    for (std::size_t e = 0; e < choice.size(); ++e) choice[e] += bias[e];
  }

  return WeighExperts(scores, Largest(choice, Candidates(choice, moe), moe.num_experts_per_tok), moe);
}

Routing WeighExperts(std::span<const double> scores, std::vector<std::int64_t> experts,
                     const contract::MoeConfig& moe) {
  Routing routing;
  routing.experts = std::move(experts);
  // V3 equations 13 and 14: the weight is the score itself, over the sum of those chosen.
  double sum = 0;
  for (const std::int64_t e : routing.experts) sum += scores[static_cast<std::size_t>(e)];
  for (const std::int64_t e : routing.experts) {
    double weight = scores[static_cast<std::size_t>(e)];
    if (moe.norm_topk_prob) weight /= sum + 1e-20;
    routing.weights.push_back(weight * moe.routed_scaling_factor);
  }
  return routing;
}

}  // namespace mla::reference
