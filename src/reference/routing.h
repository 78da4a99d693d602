// Which experts a token visits, and with what weight.
#ifndef MLA_REFERENCE_ROUTING_H_
#define MLA_REFERENCE_ROUTING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "contract/config.h"

namespace mla::reference {

struct Routing {
  std::vector<std::int64_t> experts;  // [num_experts_per_tok], best first
  std::vector<double> weights;        // what each one's output is multiplied by
};

// Softmax or sigmoid of the gate's logits, as the config says.
std::vector<double> GateScores(std::span<const double> logits, const contract::MoeConfig& moe);

// `scores` [n_routed_experts] are GateScores, `bias` [n_routed_experts] is e_score_correction_bias, empty unless
// noaux_tc. The bias takes part in the choice alone, never in the weight. Equal candidates: the lower index goes first.
Routing Route(std::span<const double> scores, std::span<const double> bias, const contract::MoeConfig& moe);

// The weights of experts that are chosen already, in the order given.
Routing WeighExperts(std::span<const double> scores, std::vector<std::int64_t> experts, const contract::MoeConfig& moe);

}  // namespace mla::reference

#endif  // MLA_REFERENCE_ROUTING_H_
