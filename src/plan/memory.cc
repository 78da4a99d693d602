#include "plan/memory.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/limits.h"
#include "mla/prefix_index.h"
#include "model/model.h"
#include "plan/exact.h"
#include "plan/weight_bytes.h"

namespace mla::plan {
namespace {

constexpr std::int64_t kMostUsers = std::int64_t{1} << 20;

// Tokens that a sequence may hold: drafts come on top, but no position passes the model's.
std::int64_t TokensHeld(const Shape& shape, const MemoryOptions& o, std::int64_t context) {
  return std::max(context, std::min(shape.max_positions, context + o.draft_tokens));
}

// Layers of a group that keep rows.
std::int64_t RowLayers(const Shape& shape, const LayerGroup& g, const MemoryOptions& o) {
  const bool drafts = o.draft_tokens > 0 && g.kind == AttentionKind::kLatent;
  return g.layers + (drafts ? shape.mtp_layers : 0);
}

// Pages of a rank for one sequence.
std::int64_t RankPages(const LayerGroup& g, const MemoryOptions& o, std::int64_t tokens) {
  return Ceil(PagesOf(tokens, o.page_tokens, g.window), o.ranks.dcp);
}

Exact CacheOf(const Shape& rank, const MemoryOptions& o, std::int64_t tokens, std::int64_t sequences) {
  Exact bytes;
  for (const LayerGroup& g : rank.groups) {
    const Exact pages = Exact(RankPages(g, o, tokens)) * sequences;
    bytes += pages * o.page_tokens * RowBytes(g, o.row) * RowLayers(rank, g, o);
  }
  return bytes;
}

// Floats of a step in a program like this one: the residual stream twice, queries, keys and values, outputs, the widest
// of the MLPs, and rows for experts' results; and sixteen rows of logits.
Exact StepFloats(const Shape& rank, std::int64_t rows) {
  Exact widest;
  for (const LayerGroup& g : rank.groups) {
    const Exact width = Exact(g.heads) * (Exact(g.key_dim) + g.value_dim) + g.elements();
    if (width.fits() && (!widest.fits() || width.value() > widest.value())) widest = width;
  }
  const ExpertShape& e = rank.experts;
  const Exact expert = Exact(e.per_token) * (Exact(e.width) + rank.hidden) + e.shared_width + e.experts;
  return Exact(rows) * (Exact(2) * rank.hidden + widest + rank.dense_width + expert) +
         Exact(engine::kLogitRows) * rank.vocab;
}

}  // namespace

Result<Subject> OpenSubject(const std::string& path) {
  Subject subject;
  MLA_ASSIGN_OR_RETURN(const contract::ConfigFile file, contract::ReadConfigFile(path));
  MLA_ASSIGN_OR_RETURN(subject.shape, ParseShape(file.text, file.where));
  if (subject.shape.config && io::HasSafetensors(path)) {
    MLA_ASSIGN_OR_RETURN(model::Opened opened, model::Open(path));
    subject.checkpoint = std::move(opened.checkpoint);
  }
  subject.shape.name = path;
  return subject;
}

Result<std::int64_t> SequenceBytes(const Shape& rank, const MemoryOptions& options, std::int64_t tokens) {
  Exact bytes = CacheOf(rank, options, tokens, 1);
  for (const LayerGroup& g : rank.groups) bytes += StateBytes(g) * g.layers;
  return bytes.Get("bytes of a sequence's cache");
}

Result<std::int64_t> TokenBytes(const Shape& rank, const RowFormat& row) {
  Exact bytes;
  for (const LayerGroup& g : rank.groups) bytes += RowBytes(g, row) * g.layers;
  return bytes.Get("bytes of a token's rows");
}

Result<Planner> Planner::Create(const Subject& subject, const MemoryOptions& options) {
  MLA_RETURN_IF_ERROR(CheckRanks(subject.shape, options.ranks));
  Planner planner(subject, options);
  planner.rank_ = RankShape(subject.shape, options.ranks);
  MLA_ASSIGN_OR_RETURN(planner.weights_, WeightsOfRank(subject, options));
  planner.weights_known_ = !planner.weights_.empty();
  return planner;
}

// The engine's own sizing, of a rank's config.
Status Planner::AddEngines(std::int64_t context, std::int64_t users, MemoryUse* use) const {
  const MemoryOptions& o = options_;
  const contract::ModelConfig& config = *rank_.config;
  const LayerGroup& g = rank_.groups.front();
  EngineOptions engine;
  engine.kv_dtype = o.row.engine_dtype.value_or(DType::kBF16);
  engine.context = context;
  engine.max_sequences = users;
  engine.prefill_chunk = o.prefill_chunk;
  engine.page_tokens = o.page_tokens;
  engine.expand_bytes = o.expand_bytes;
  engine.keep_bytes = o.keep_bytes;
  MLA_ASSIGN_OR_RETURN(engine.cache_pages,
                       (Exact(RankPages(g, o, TokensHeld(rank_, o, context))) * users).Get("cache pages"));
  MLA_ASSIGN_OR_RETURN(const engine::Sizes sizes, engine::Resolve(config, engine, o.workers));
  const MemoryPlan plan = engine::Planned(config, sizes);
  use->workspace = plan.workspace;
  use->tables = plan.tables;
  // The engine's formats on one rank are its own allocation; others follow from the row.
  use->engines = o.row.engine_dtype && o.ranks.count() == 1 && o.draft_tokens == 0 && !o.weight_bytes;
  if (use->engines) {
    use->cache = plan.cache;
    return {};
  }
  return AddCache(context, users, use);
}

Status Planner::AddEstimates(std::int64_t context, std::int64_t users, MemoryUse* use) const {
  if (context > rank_.max_positions) {
    return Error{fmt::format("context: expected a number from 1 to {}, found {}", rank_.max_positions, context)};
  }
  const std::int64_t rows = std::min(options_.prefill_chunk, context) + users - 1;
  MLA_ASSIGN_OR_RETURN(use->workspace,
                       (StepFloats(rank_, rows) * 4 + options_.keep_bytes).Get("bytes of a step's workspace"));
  MLA_RETURN_IF_ERROR(AddCache(context, users, use));
  const std::int64_t page = PagePool::Bytes(1) + PrefixIndex::Bytes(1, options_.page_tokens);
  MLA_ASSIGN_OR_RETURN(use->tables, (Exact(use->pages) * page).Get("bytes of page counts and the prefix index"));
  return {};
}

Status Planner::AddCache(std::int64_t context, std::int64_t users, MemoryUse* use) const {
  const std::int64_t tokens = TokensHeld(rank_, options_, context);
  MLA_ASSIGN_OR_RETURN(use->cache, CacheOf(rank_, options_, tokens, users).Get("bytes of the cache"));
  return {};
}

Result<MemoryUse> Planner::At(std::int64_t context, std::int64_t users) const {
  MemoryUse use;
  const std::int64_t of_group = Ceil(users, options_.ranks.dp);
  const std::int64_t tokens = TokensHeld(rank_, options_, context);
  Exact states;
  Exact pages;  // of every group: a list for each
  for (const LayerGroup& g : rank_.groups) {
    const Exact of_users = Exact(RankPages(g, options_, tokens)) * of_group;
    MLA_ASSIGN_OR_RETURN(const std::int64_t n, of_users.Get("cache pages"));
    use.pages = std::max(use.pages, g.kind == AttentionKind::kLinear ? 0 : n);
    if (g.kind != AttentionKind::kLinear) pages += of_users;
    states += StateBytes(g) * g.layers * of_group;
  }
  MLA_RETURN_IF_ERROR(rank_.config ? AddEngines(context, of_group, &use) : AddEstimates(context, of_group, &use));
  MLA_ASSIGN_OR_RETURN(use.states, states.Get("bytes of linear attention's states"));
  constexpr std::int64_t kId = sizeof(std::int32_t);
  MLA_ASSIGN_OR_RETURN(use.sequences, ((pages + Exact(tokens) * of_group) * kId).Get("bytes of page lists"));
  const Step step{std::min(options_.prefill_chunk, context), context, 1};
  MLA_ASSIGN_OR_RETURN(const std::vector<Collective> collectives, CollectivesOf(subject_->shape, options_.ranks, step));
  std::int64_t largest = 0;
  for (const Collective& c : collectives) largest = std::max(largest, c.payload);
  Exact total;
  use.weight_parts = weights_;
  use.weights_known = weights_known_;
  for (const WeightBytes& part : weights_) total += part.bytes;
  MLA_ASSIGN_OR_RETURN(use.weights, total.Get("bytes of weights"));
  MLA_ASSIGN_OR_RETURN(use.buffers, (Exact(largest) * 2).Get("bytes of communication buffers"));
  use.reserve = options_.reserve;
  for (const std::int64_t bytes :
       {use.cache, use.states, use.workspace, use.tables, use.sequences, use.buffers, use.reserve}) {
    total += bytes;
  }
  MLA_ASSIGN_OR_RETURN(use.total, total.Get("bytes in all"));
  return use;
}

bool Planner::Fits(std::int64_t context, std::int64_t users, std::int64_t memory) const {
  const Result<MemoryUse> use = At(context, users);
  return use.ok() && use->total <= memory;
}

namespace {

// The largest n in [0, most] that fits, of a predicate that holds up to it: 0 where 1 does not.
template <class Fits>
std::int64_t Largest(std::int64_t most, const Fits& fits) {
  if (fits(most)) return most;
  std::int64_t low = 0;
  std::int64_t high = most;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

std::int64_t Planner::LongestContext(std::int64_t users, std::int64_t memory) const {
  return Largest(rank_.max_positions, [&](std::int64_t context) { return Fits(context, users, memory); });
}

std::int64_t Planner::MostUsers(std::int64_t context, std::int64_t memory) const {
  return Largest(kMostUsers, [&](std::int64_t users) { return Fits(context, users, memory); });
}

std::optional<std::int64_t> RanksNeeded(const Subject& subject, MemoryOptions options, std::int64_t context,
                                        std::int64_t users, std::int64_t memory) {
  for (std::int64_t tp = 1; tp <= 1024; ++tp) {
    options.ranks.tp = tp;
    options.ranks.dp = 1;
    options.ranks.dcp = 1;
    const Result<Planner> planner = Planner::Create(subject, options);
    if (!planner.ok()) continue;
    const Result<MemoryUse> use = planner->At(context, users);
    if (use.ok() && use->total <= memory) return tp;
  }
  return std::nullopt;
}

}  // namespace mla::plan
