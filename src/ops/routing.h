// Which experts serve a token, and with what weight.
#ifndef MLA_OPS_ROUTING_H_
#define MLA_OPS_ROUTING_H_

#include <cstdint>

namespace mla::ops {

// How logits become scores: softmax over all experts, or each one's sigmoid.
enum class Scoring : std::uint8_t { kSoftmax, kSigmoid };
// How experts are picked (contract/config.h's TopkMethod). kGreedy: the top_k best scores.
// kGroupLimited: the same within the topk_group groups with the largest best score (DeepSeek-V2 report, section 2.2.2).
// kNoauxTc: the same by score + bias, a group counting the sum of its two best (DeepSeek-V3 report, equations 12 to
// 16).
enum class TopK : std::uint8_t { kGreedy, kGroupLimited, kNoauxTc };

// The weight of a chosen expert is its score, without the bias, normalised over the chosen where norm_topk_prob, times
// routed_scaling_factor.
struct RouterSpec {
  std::int64_t experts = 0;
  std::int64_t top_k = 0;
  Scoring scoring = Scoring::kSigmoid;
  TopK method = TopK::kNoauxTc;
  std::int64_t groups = 1;  // divides experts
  std::int64_t topk_group = 1;
  bool norm_topk_prob = false;
  double routed_scaling_factor = 1.0;
};

// Scratch floats that RouteToken needs.
constexpr std::int64_t RouteScratch(std::int64_t experts, std::int64_t groups) { return 2 * experts + groups; }

// logits [experts], bias [experts] (read by kNoauxTc alone, may be null for others) -> index [top_k], weight [top_k],
// best first. Ties go to the lower index, for groups and experts. scratch: RouteScratch floats. A NaN logit is never
// chosen before a number that may be chosen; no expert is chosen twice.
void RouteToken(const RouterSpec& spec, const float* logits, const float* bias, float* scratch, std::int32_t* index,
                float* weight);

}  // namespace mla::ops

#endif  // MLA_OPS_ROUTING_H_
