// One sequence through the transformer alone: no engine, no scheduler. What the engine computes is held against it.
#ifndef MLA_TESTS_TESTING_FORWARD_H_
#define MLA_TESTS_TESTING_FORWARD_H_

#include <cstdint>
#include <span>
#include <vector>

#include "mla/attention.h"
#include "mla/dtypes.h"
#include "mla/executor.h"
#include "mla/model.h"

namespace mla::testing {

// Positions up to `end` (from where the last run ended) have this form.
struct FormSpan {
  std::int64_t end;
  Form form;
};

struct ForwardOptions {
  std::vector<FormSpan> forms;  // the last one reaches the last position
  DType kv_dtype = DType::kF32;
  std::int64_t chunk = 512;
  std::int64_t page_tokens = kDefaultPageTokens;
};

// Logits [ids.size(), vocab] of every position. Pages are handed out last to first, so that order can't hide behind
// identity.
std::vector<float> ForwardLogits(const Model& model, std::span<const std::int32_t> ids, const ForwardOptions& options,
                                 Executor& executor);

}  // namespace mla::testing

#endif  // MLA_TESTS_TESTING_FORWARD_H_
