#include "layers/meter.h"

namespace mla {

const char* StepPhaseName(StepPhase phase) {
  constexpr const char* kNames[kStepPhases] = {"embed",     "input norm", "q_a+kv_a", "store",      "q_b",   "rotate",
                                               "attention", "o",          "mlp",      "final norm", "logits"};
  return kNames[static_cast<std::size_t>(phase)];
}

StepProfile layers::StepMeter::Profile(const AttentionProfile& attention) const {
  StepProfile profile;
  profile.times = times;
  profile.attention = attention;
  profile.product_seconds = products.seconds;
  profile.product_operations = products.operations;
  profile.product_weight_bytes = products.weight_bytes;
  profile.weight_conversions = products.conversions;
  return profile;
}

}  // namespace mla
