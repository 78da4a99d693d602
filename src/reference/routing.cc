#include "reference/routing.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

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

}  // namespace

Routing Route(std::span<const double> scores, std::span<const double> bias, const contract::MoeConfig& moe) {
  const std::int64_t group_size = moe.n_routed_experts / moe.n_group;

  // V3 equation 16: the experts are chosen by s + b.
  std::vector<double> choice(scores.size());
  for (std::size_t e = 0; e < scores.size(); ++e) choice[e] = scores[e] + bias[e];

  // V3 section 2.1.2, node-limited routing: a group counts as much as its two best experts together; only experts of
  // the topk_group best groups may be chosen, however low (negative, even) their own choice values are.
  std::vector<double> group_value(static_cast<std::size_t>(moe.n_group));
  for (std::int64_t g = 0; g < moe.n_group; ++g) {
    const auto members = Range(g * group_size, (g + 1) * group_size);
    for (const std::int64_t e : Largest(choice, members, std::min<std::int64_t>(2, group_size))) {
      group_value[static_cast<std::size_t>(g)] += choice[static_cast<std::size_t>(e)];
    }
  }
  auto groups = Largest(group_value, Range(0, moe.n_group), moe.topk_group);
  std::sort(groups.begin(), groups.end());
  std::vector<std::int64_t> candidates;
  for (const std::int64_t g : groups) {
    for (const std::int64_t e : Range(g * group_size, (g + 1) * group_size)) candidates.push_back(e);
  }

  Routing routing;
  routing.experts = Largest(choice, candidates, moe.num_experts_per_tok);
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
