// What a call is measured by, where that is asked for: its phases' times, and what its plan makes it read and compute.
#ifndef MLA_ATTENTION_PROFILE_H_
#define MLA_ATTENTION_PROFILE_H_

#include <cstdint>
#include <span>

#include "attention/absorbed_plan.h"
#include "attention/mha_pieces.h"
#include "attention/scratch.h"
#include "base/meter.h"
#include "mla/attention.h"
#include "mla/profile.h"
#include "ops/gemm.h"

namespace mla::attention {

// One call at a time. Everything is added up over calls.
struct CallMeter {
  explicit CallMeter(int workers) : meter(workers) {}

  Meter meter;
  AttentionProfile profile;
  ops::GemmCounts products;
};

// From here to the end of the scope is that phase of the call, if it is measured at all.
class Phase {
 public:
  Phase(const StepContext& step, AttentionPhase phase)
      : scope_(step.measured == nullptr ? nullptr : &step.measured->meter,
               step.measured == nullptr ? nullptr : &step.measured->profile[phase]) {}

 private:
  PhaseScope scope_;
};

// The counts below add to step.measured, which is there.

// The call as a whole, once it is done: what it must read at least whatever its plan, and what its products did.
void CountCall(const StepContext& step, std::span<const AttentionSequence> sequences, double seconds);
// A pass's parts: what their items read and compute.
void CountParts(const StepContext& step, std::span<const Part> parts);
// A piece's expansion.
void CountExpanded(const StepContext& step, const Piece& piece);
// A piece's rows against its keys, `block` rows of a head at a time.
void CountAttended(const StepContext& step, const Piece& piece, std::int64_t block);

}  // namespace mla::attention

#endif  // MLA_ATTENTION_PROFILE_H_
