// Which experts serve a token, and with what weight.
#ifndef MLA_OPS_ROUTING_H_
#define MLA_OPS_ROUTING_H_

#include <cstdint>

namespace mla::ops {

// DeepSeek-V3's noaux_tc (report, equations 12 to 16): score = sigmoid(logit); experts are chosen by score + bias,
// first the topk_group groups with the largest sum of their two best, then the top_k experts in those; the weight is
// the score without the bias, normalised over the chosen where norm_topk_prob, times routed_scaling_factor.
struct RouterSpec {
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  std::int64_t groups = 1;  // divides experts
  std::int64_t topk_group = 1;
  bool norm_topk_prob = false;
  double routed_scaling_factor = 1.0;
};

// Scratch floats that RouteToken needs.
constexpr std::int64_t RouteScratch(std::int64_t experts, std::int64_t groups) { return 2 * experts + groups; }

// logits [experts], bias [experts] -> index [top_k], weight [top_k], best first. Ties go to the lower index, for groups
// and experts. scratch: RouteScratch floats. A NaN logit is never chosen before a number that may be chosen; no expert
// is chosen twice.
void RouteToken(const RouterSpec& spec, const float* logits, const float* bias, float* scratch, std::int32_t* index,
                float* weight);

}  // namespace mla::ops

#endif  // MLA_OPS_ROUTING_H_
