#include "engine/limits.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "sampler/sampler.h"

namespace mla::engine {
namespace {

Status InRange(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return {};
  return Error{fmt::format("{}: expected a number from {} to {}, found {}", name, least, most, value)};
}

// Every size that the workspaces multiply out, summed in floating point from above: where that is far from 2^63, the
// exact sums can't overflow.
Status Addressable(const contract::ModelConfig& c, const Sizes& sizes) {
  const auto d = [](std::int64_t n) { return static_cast<double>(n); };
  const double rows = d(sizes.step.max_rows);
  const double keys = d(sizes.step.max_keys);
  const double h = d(c.num_attention_heads);
  const double row_width = d(c.kv_lora_rank) + d(c.qk_rope_head_dim) + 64;
  const double head_width = d(c.qk_nope_head_dim) + d(c.qk_rope_head_dim) + d(c.v_head_dim) + 64;
  double floats = rows * (6 * d(c.hidden_size) + d(c.q_lora_rank.value_or(0)) + 3 * h * head_width +
                          2 * d(c.intermediate_size) + row_width) +
                  rows * h * 2 * row_width + keys * (h * head_width + row_width) +
                  (keys / 1024 + 1) * (h + 256) * row_width + 1024 * d(sizes.step.workers) * (row_width + head_width);
  if (c.moe) {
    floats +=
        rows * (d(c.moe->num_experts_per_tok) * (2 * d(c.moe->moe_intermediate_size) + d(c.hidden_size) + 4) +
                2 * d(c.moe->moe_intermediate_size) * d(c.moe->n_shared_experts) + 2 * d(c.moe->n_routed_experts));
  }
  if (floats < 0x1p58) return {};
  return Error{fmt::format("workspace: {} rows a step over {} positions take more bytes than can be addressed",
                           sizes.step.max_rows, sizes.step.max_keys)};
}

}  // namespace

Result<Sizes> Resolve(const contract::ModelConfig& config, const EngineOptions& options, int workers) {
  constexpr std::int64_t kMostPages = std::numeric_limits<std::int32_t>::max();
  Sizes sizes;
  EngineOptions& o = sizes.options;
  o = options;
  if (o.context == 0) o.context = config.max_position_embeddings;
  MLA_RETURN_IF_ERROR(InRange("context", o.context, 1, config.max_position_embeddings));
  MLA_RETURN_IF_ERROR(InRange("max sequences", o.max_sequences, 1, 1 << 20));
  MLA_RETURN_IF_ERROR(InRange("prefill chunk", o.prefill_chunk, 1, 1 << 20));
  MLA_RETURN_IF_ERROR(InRange("draft tokens", o.draft_tokens, 1, 64));
  MLA_RETURN_IF_ERROR(InRange("page tokens", o.page_tokens, 1, 1 << 20));
  MLA_RETURN_IF_ERROR(InRange("expand bytes", o.expand_bytes, 0, std::int64_t{1} << 50));
  MLA_RETURN_IF_ERROR(InRange("keep expanded", o.keep_bytes, 0, std::int64_t{1} << 50));
  const std::int64_t least_kept = MlaAttention::KeptSegmentBytes(weights::DimsOf(config));
  if (o.keep_bytes > 0 && o.keep_bytes < least_kept) {
    return Error{
        fmt::format("keep expanded: expected 0 or at least {} bytes, which 1,024 positions of a layer take, found {}",
                    least_kept, o.keep_bytes)};
  }
  if (o.kv_dtype != DType::kBF16 && o.kv_dtype != DType::kF32) {
    return Error{fmt::format("kv dtype: expected BF16 or F32, found {}", DTypeName(o.kv_dtype))};
  }
  if (const Status table = CheckFormTable(o.form_table); !table.ok()) {
    return Error{"form table: " + table.error().message};
  }
  o.prefill_chunk = std::min(o.prefill_chunk, o.context);
  const bool mtp = o.drafter == Drafter::kMtp;
  if (mtp && config.num_nextn_predict_layers == 0) {
    return Error{"drafter: expected a model with a multi-token-prediction layer for mtp, and this one has none"};
  }
  sizes.layout = MakeLatentLayout(config.kv_lora_rank, config.qk_rope_head_dim,
                                  config.num_hidden_layers + (mtp ? 1 : 0), o.kv_dtype, o.page_tokens);
  const std::int64_t full = sizes.layout.PagesFor(o.context) * o.max_sequences;
  if (o.cache_pages == 0) o.cache_pages = full;
  MLA_RETURN_IF_ERROR(InRange("cache pages", o.cache_pages, 1, kMostPages));
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(sizes.layout.bytes_per_token(), o.page_tokens, &bytes) ||
      __builtin_mul_overflow(bytes, o.cache_pages, &bytes)) {
    return Error{
        fmt::format("cache: {} pages of {} tokens are more bytes than fit in 63 bits", o.cache_pages, o.page_tokens)};
  }
  // One prompt chunk, and a row with its drafts for every other sequence: a long prompt never starves decoding.
  const std::int64_t decode_rows = 1 + (o.drafter == Drafter::kNone ? 0 : o.draft_tokens);
  sizes.step.max_rows = std::max(o.prefill_chunk, decode_rows) + (o.max_sequences - 1) * decode_rows;
  const std::int64_t slots = sizes.step.max_rows * (config.moe ? config.moe->num_experts_per_tok : 1);
  MLA_RETURN_IF_ERROR(InRange("rows of a step times experts a token", slots, 1, kMostPages));
  sizes.step.max_keys = o.context;
  sizes.step.workers = workers;
  sizes.step.mtp = mtp;
  sizes.step.expand_bytes = o.expand_bytes;
  sizes.step.keep_bytes = o.keep_bytes;
  sizes.step.huge_pages = o.huge_pages;
  sizes.step.profile = o.profile;
  MLA_RETURN_IF_ERROR(Addressable(config, sizes));
  return sizes;
}

Error NotFiniteError(std::int64_t tokens) {
  return Error{fmt::format(
      "logits: not finite numbers after {} tokens: the weights hold NaN or infinities, or sums overflow", tokens)};
}

Pages::Limits PageLimits(const Sizes& sizes) {
  return {sizes.options.cache_pages, sizes.layout.page_tokens, sizes.options.context, sizes.options.prefix_reuse};
}

MemoryPlan Planned(const contract::ModelConfig& config, const Sizes& sizes) {
  const layers::Transformer::Memory transformer = layers::Transformer::Planned(config, sizes.step);
  MemoryPlan plan;
  plan.cache = sizes.layout.StorageBytes(sizes.options.cache_pages);
  plan.workspace = transformer.workspace + kLogitRows * config.vocab_size * static_cast<std::int64_t>(sizeof(float)) +
                   sampler::Sampler::Bytes(config.vocab_size);
  plan.tables = transformer.tables + Pages::Bytes(PageLimits(sizes));
  return plan;
}

}  // namespace mla::engine
