#include "verify/verify.h"

#include <algorithm>
#include <utility>

#include "base/no_throw.h"
#include "layers/transformer.h"
#include "reference/streamed.h"
#include "verify/levels.h"

namespace mla::verify {
namespace {

Result<Report> RunLevels(const Subject& subject, const Options& options) {
  const Budget budget(options.budget_seconds, options.cancelled);
  Report report;
  const Scope scope = ChooseScope(subject, options.text, budget, options.most_tokens);
  const auto begin = [&](int level) {
    if (options.level) options.level(level);
    return !budget.Cancelled();
  };
  if (begin(1)) MLA_RETURN_IF_ERROR(ProveLayers(subject, scope, budget, &report));
  if (begin(4)) MLA_RETURN_IF_ERROR(ProveCache(subject, scope, &report));
  if (begin(5)) MLA_RETURN_IF_ERROR(ProveKernels(subject, budget, &report));
  if (begin(6)) MLA_RETURN_IF_ERROR(ProveEndToEnd(subject, scope, budget, &report));
  if (begin(7)) MLA_RETURN_IF_ERROR(ProveReading(subject, options.text, budget, &report));
  std::stable_sort(report.checks.begin(), report.checks.end(),
                   [](const Check& a, const Check& b) { return a.level < b.level; });
  return report;
}

}  // namespace

Result<Report> Verify(const Subject& subject, const Options& options) {
  return WithoutThrow("proofs", [&] { return RunLevels(subject, options); });
}

MemoryPlan Planned(const contract::ModelConfig& c, std::int64_t weight_bytes, DType kv_dtype, int workers) {
  constexpr std::int64_t kTokens = 96;
  constexpr std::int64_t kFloat64 = sizeof(double);
  layers::StepLimits limits;
  limits.max_rows = std::min<std::int64_t>(128, c.max_position_embeddings);
  limits.max_keys = std::min<std::int64_t>(2048, c.max_position_embeddings);
  limits.workers = workers;
  const layers::Transformer::Memory step = layers::Transformer::Planned(c, limits);
  const CacheLayout layout =
      MakeLatentLayout(c.kv_lora_rank, c.qk_rope_head_dim, c.num_hidden_layers, kv_dtype, kDefaultPageTokens);
  const std::int64_t q = c.num_attention_heads * (c.qk_nope_head_dim + c.qk_rope_head_dim);
  const std::int64_t row = 6 * c.hidden_size + 2 * q + c.num_attention_heads * c.v_head_dim +
                           2 * (c.kv_lora_rank + c.qk_rope_head_dim) + (c.moe ? c.moe->n_routed_experts : 0);
  MemoryPlan plan;
  plan.weights = weight_bytes;
  // A pass's cache beside an engine's, of two sequences.
  plan.cache = layout.StorageBytes(layout.PagesFor(limits.max_keys) + 2 * layout.PagesFor(2 * kTokens));
  // A transformer and an attention beside it; traces of three passes; logits of two.
  plan.workspace =
      2 * step.workspace + 3 * kTokens * c.num_hidden_layers * row * kFloat64 + 2 * kTokens * c.vocab_size * kFloat64;
  plan.tables =
      RopeTable::Bytes(c.rope, c.max_position_embeddings) + reference::StreamedBytes(c, kTokens, kTokens, workers);
  return plan;
}

}  // namespace mla::verify
