// What a step is measured by, where that is asked for.
#ifndef MLA_LAYERS_METER_H_
#define MLA_LAYERS_METER_H_

#include <cstddef>
#include <span>

#include "base/meter.h"
#include "mla/profile.h"
#include "ops/gemm.h"

namespace mla::layers {

// One step at a time; everything is added up over steps. The attention measures itself (MlaAttention::profile).
struct StepMeter {
  explicit StepMeter(int workers) : meter(workers) {}

  Meter meter;
  StepTimes times;
  ops::GemmCounts products;  // outside of attention; `loaded` is where the weights lie

  void Reset() {
    times = {};
    const std::span<const std::byte> loaded = products.loaded;
    products = {};
    products.loaded = loaded;
  }
  // All of it but `steps` and `seconds`.
  StepProfile Profile(const AttentionProfile& attention) const;
};

// From here to the end of the scope is that phase of the step, if it is measured at all.
class StepScope {
 public:
  StepScope(StepMeter* measured, StepPhase phase)
      : scope_(measured == nullptr ? nullptr : &measured->meter,
               measured == nullptr ? nullptr : &measured->times[static_cast<std::size_t>(phase)]) {}

 private:
  PhaseScope scope_;
};

inline ops::GemmCounts* CountsOf(StepMeter* measured) { return measured == nullptr ? nullptr : &measured->products; }

}  // namespace mla::layers

#endif  // MLA_LAYERS_METER_H_
