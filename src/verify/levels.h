// The proofs by level; each adds its checks to the report. They fail where memory can't be had.
#ifndef MLA_VERIFY_LEVELS_H_
#define MLA_VERIFY_LEVELS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "mla/engine.h"
#include "mla/result.h"
#include "verify/report.h"
#include "verify/scope.h"
#include "verify/subject.h"

namespace mla::verify {

// Levels 1, 2, 3 and what of 6 happens within a layer: passes of the sequence in each form, across the border of prompt
// and output and at far positions, held against the oracle layer by layer, as far as a third of the budget goes.
Status ProveLayers(const Subject& subject, const Scope& scope, const Budget& budget, Report* report);

// Level 4: where a sequence's pages lie, whether its prefix is shared and whether it was preempted changes no bit.
Status ProveCache(const Subject& subject, const Scope& scope, Report* report);

// Of it, one mode: sequences of the engine that share, lose and get back rows have the bits of one alone.
Status ProveSharing(const Subject& subject, const Scope& scope, Mode mode, Report* report);

// Level 5: the kernels of each instruction set over the checkpoint's dims, with random numbers.
Status ProveKernels(const Subject& subject, const Budget& budget, Report* report);

// Level 6: the logits and greedy tokens of each path against the whole model in float64.
Status ProveEndToEnd(const Subject& subject, const Scope& scope, const Budget& budget, Report* report);

// Level 7: the text is likelier under the config as read than under each other reading of it. `ids`: of the text.
Status ProveReading(const Subject& subject, std::span<const std::int32_t> ids, const Budget& budget, Report* report);

}  // namespace mla::verify

#endif  // MLA_VERIFY_LEVELS_H_
