// An engine's options made whole and checked, and the sizes that follow from them.
#ifndef MLA_ENGINE_LIMITS_H_
#define MLA_ENGINE_LIMITS_H_

#include <cstdint>

#include "engine/pages.h"
#include "mla/cache.h"
#include "mla/engine.h"
#include "model/model.h"

namespace mla::engine {

// Rows of logits that are computed at a time: 16 rows of 129,280 ids are 8 MB.
inline constexpr std::int64_t kLogitRows = 16;

// Bytes of the cache that are taken from the system at the start: 3,650 tokens of DeepSeek-V3, 50 ms. A cache sized for
// the longest answer that may come is mostly never filled, and its memory serves others until it is.
inline constexpr std::int64_t kTouchedCache = std::int64_t{256} << 20;

struct Sizes {
  EngineOptions options;  // with every default filled in
  layers::StepLimits step;
  CacheLayout layout;
};

// Fails, naming the option, where one is out of range or the products overflow.
Result<Sizes> Resolve(const contract::ModelConfig& config, const EngineOptions& options, int workers);

Pages::Limits PageLimits(const Sizes& sizes);

// Bytes of everything but the weights.
MemoryPlan Planned(const contract::ModelConfig& config, const Sizes& sizes);

// What a request ends with when its logits are no numbers (FinishReason::kNotFinite) after `tokens` tokens.
Error NotFiniteError(std::int64_t tokens);

}  // namespace mla::engine

#endif  // MLA_ENGINE_LIMITS_H_
