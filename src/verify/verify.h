// The proofs of one path by another on the checkpoint at hand (docs/verify.md).
//
// The oracle is src/reference: it has the raw tensors and the parsed config in common with production, and nothing
// else.
#ifndef MLA_VERIFY_VERIFY_H_
#define MLA_VERIFY_VERIFY_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "mla/engine.h"
#include "mla/result.h"
#include "verify/report.h"
#include "verify/subject.h"

namespace mla::verify {

struct Options {
  double budget_seconds = 60;            // about; what it leaves out, the report says
  std::vector<std::int32_t> text;        // ids of a text that the model should know; empty: none
  std::int64_t most_tokens = 96;         // of a pass through the model
  std::function<bool()> cancelled;       // asked now and then; a report is then cut short
  std::function<void(int level)> level;  // told as levels begin
};

// Runs the levels. Fails where memory can't be had.
Result<Report> Verify(const Subject& subject, const Options& options);

// Bytes that loading and proving take: weights, caches, workspace and traces, and the oracle's layer under `tables`.
// Whatever the budget.
MemoryPlan Planned(const contract::ModelConfig& config, std::int64_t weight_bytes, DType kv_dtype, int workers);

}  // namespace mla::verify

#endif  // MLA_VERIFY_VERIFY_H_
