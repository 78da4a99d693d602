#include "testing/forward.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "layers/transformer.h"
#include "model/model.h"

namespace mla::testing {
namespace {

template <class T>
T Need(Result<T> result) {
  if (!result.ok()) internal::CheckFailed(__FILE__, __LINE__, "ok", result.error().message);
  return std::move(result).value();
}

}  // namespace

std::vector<float> ForwardLogits(const Model& model, std::span<const std::int32_t> ids, const ForwardOptions& options,
                                 Executor& executor) {
  const contract::ModelConfig& config = model.impl().config;
  const auto size = static_cast<std::int64_t>(ids.size());
  MLA_CHECK(!options.forms.empty() && options.forms.back().end >= size);
  layers::StepLimits limits;
  limits.max_rows = std::min(size, options.chunk);
  limits.max_keys = size;
  limits.workers = executor.workers();
  const auto transformer = Need(layers::Transformer::Create(config, model.impl().weights, limits, ""));
  const CacheLayout layout = MakeLatentLayout(config.kv_lora_rank, config.qk_rope_head_dim, config.num_hidden_layers,
                                              options.kv_dtype, options.page_tokens);
  const std::int64_t pages = layout.PagesFor(size);
  const LatentCache cache = Need(LatentCache::Create(layout, pages));
  std::vector<std::int32_t> page_ids(static_cast<std::size_t>(pages));
  std::iota(page_ids.rbegin(), page_ids.rend(), 0);

  std::vector<float> logits(ids.size() * static_cast<std::size_t>(config.vocab_size));
  auto form = options.forms.begin();
  for (std::int64_t first = 0; first < size;) {
    while (form->end <= first) ++form;
    const std::int64_t end = std::min({size, first + options.chunk, form->end});
    std::vector<std::int32_t> positions(static_cast<std::size_t>(end - first));
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(first));
    std::vector<std::int64_t> slots;
    for (const std::int32_t p : positions) {
      const std::int64_t page = page_ids[static_cast<std::size_t>(p / options.page_tokens)];
      slots.push_back(page * options.page_tokens + p % options.page_tokens);
    }
    const AttentionSequence part{page_ids, 0, end - first, end, form->form};
    transformer->Forward({ids.subspan(static_cast<std::size_t>(first), positions.size()), positions, slots, {&part, 1}},
                         cache, executor);
    std::vector<std::int32_t> rows(positions.size());
    std::iota(rows.begin(), rows.end(), 0);
    transformer->Logits(rows, logits.data() + first * config.vocab_size, executor);
    first = end;
  }
  return logits;
}

}  // namespace mla::testing
