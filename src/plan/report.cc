#include "plan/report.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "plan/exact.h"
#include "plan/weight_bytes.h"

namespace mla::plan {
namespace {

bool HasLatent(const Shape& shape) {
  return std::any_of(shape.groups.begin(), shape.groups.end(),
                     [](const LayerGroup& g) { return g.kind == AttentionKind::kLatent; });
}

// Models without latents have one form; a rank with some channels of the latent alone can't expand it.
bool HasMhaForm(const Report& r) { return HasLatent(r.shape) && !r.options.memory.ranks.shard_latent; }

Kept KeptOf(const Planner& planner) {
  const MemoryOptions& o = planner.options();
  Kept kept;
  kept.product_bytes = BytesOfParameter(planner.rank_shape(), o.weights);
  kept.wide_bytes = std::max<std::int64_t>(2, kept.product_bytes);
  kept.router_bytes = planner.rank_shape().config ? 4 : kept.wide_bytes;
  kept.row = o.row;
  kept.page_ranks = o.ranks.dcp;
  return kept;
}

Result<FormReport> ReportForm(const Planner& planner, const Step& step, Form form, const std::optional<Rates>& rates) {
  FormReport report;
  report.form = form;
  MLA_ASSIGN_OR_RETURN(report.parts, WorkOfStep(planner.rank_shape(), step, form, KeptOf(planner)));
  Exact multiply_adds;
  Exact bytes;
  for (const PartWork& part : report.parts) {
    multiply_adds += part.multiply_adds;
    bytes += Exact(part.weight_bytes) + part.cache_bytes;
  }
  MLA_ASSIGN_OR_RETURN(report.multiply_adds, multiply_adds.Get("multiply-adds of a step"));
  MLA_ASSIGN_OR_RETURN(report.bytes, bytes.Get("bytes of a step"));
  if (rates) report.seconds = SecondsOf(report.parts, *rates);
  return report;
}

std::vector<std::int64_t> Doublings(std::int64_t from, std::int64_t to) {
  std::vector<std::int64_t> values;
  for (std::int64_t v = from; v < to; v *= 2) values.push_back(v);
  values.push_back(to);
  return values;
}

// Of the first latent layers: a model has one kind.
void AddCrossings(const ReportOptions& options, Report* r) {
  for (const LayerGroup& g : r->rank.groups) {
    if (g.kind != AttentionKind::kLatent) continue;
    r->crossing_constant = CrossingConstant(g.latent);
    const Rates* rates = options.rates ? &*options.rates : nullptr;
    for (const std::int64_t keys : Doublings(128, std::max<std::int64_t>(128, r->shape.max_positions))) {
      Crossing c{keys, 0, CausalCrossing(g.latent, keys), std::nullopt};
      if (r->crossing_constant) c.closed = ClosedCrossing(*r->crossing_constant, static_cast<double>(keys));
      if (rates != nullptr) c.seconds = CausalCrossing(g.latent, keys, rates);
      r->crossings.push_back(c);
    }
    return;
  }
}

Status AddCurves(const Planner& planner, Report* r) {
  const ReportOptions& o = r->options;
  for (const std::int64_t context :
       Doublings(std::min<std::int64_t>(1024, r->shape.max_positions), r->shape.max_positions)) {
    Point p;
    p.context = context;
    MLA_ASSIGN_OR_RETURN(p.sequence_bytes, SequenceBytes(planner.rank_shape(), o.memory, context));
    if (o.limit) p.users = planner.MostUsers(context, *o.limit);
    if (o.rates) {
      MLA_ASSIGN_OR_RETURN(p.token_seconds, TokenSeconds(planner, r->shape, context, r->step.sequences, *o.rates));
    }
    r->contexts.push_back(p);
  }
  if (!o.rates) return {};
  for (const std::int64_t users : Doublings(1, std::max<std::int64_t>(256, r->step.sequences))) {
    BatchPoint b;
    b.users = users;
    MLA_ASSIGN_OR_RETURN(b.token_seconds, TokenSeconds(planner, r->shape, o.context, users, *o.rates));
    b.tokens_per_second = static_cast<double>(users * o.memory.ranks.dp) / b.token_seconds;
    r->batches.push_back(b);
  }
  return {};
}

Result<Times> TimesOf(const Planner& planner, const Report& r) {
  const ReportOptions& o = r.options;
  Times t;
  t.context = o.context;
  t.users = r.step.sequences;
  MLA_ASSIGN_OR_RETURN(t.prompt_absorbed, PromptSeconds(planner, r.shape, o.context, Form::kAbsorbed, *o.rates));
  t.prompt_mha = t.prompt_absorbed;
  if (HasMhaForm(r)) {
    MLA_ASSIGN_OR_RETURN(t.prompt_mha, PromptSeconds(planner, r.shape, o.context, Form::kMha, *o.rates));
  }
  MLA_ASSIGN_OR_RETURN(t.token, TokenSeconds(planner, r.shape, o.context, t.users, *o.rates));
  t.tokens_per_second = static_cast<double>(t.users * o.memory.ranks.dp) / t.token;
  return t;
}

Status AddLimits(const Subject& subject, const Planner& planner, Report* r) {
  const ReportOptions& o = r->options;
  if (!o.limit) return {};
  if (!r->memory.weights_known) {
    return Error{"--memory: expected weights that are known, found a model whose are not: --weight-bytes says them"};
  }
  r->longest_context = planner.LongestContext(o.users, *o.limit);
  r->most_users = planner.MostUsers(o.context, *o.limit);
  r->ranks_needed = RanksNeeded(subject, o.memory, o.context, o.users, *o.limit);
  return {};
}

// Options that the model decides; what does not fit it is an error.
Result<ReportOptions> Filled(const Shape& shape, ReportOptions o) {
  if (o.context == 0) o.context = shape.max_positions;
  if (o.context > shape.max_positions) {
    return Error{fmt::format("--context: expected a number from 1 to {}, found {}", shape.max_positions, o.context)};
  }
  if (!o.keys) o.keys = std::max(o.context, o.rows);
  if (o.rows > *o.keys) {
    return Error{fmt::format("--rows: expected at most the {} keys, which count them, found {}", *o.keys, o.rows)};
  }
  if (o.memory.weight_bytes && o.memory.ranks.count() > 1) {
    return Error{"--weight-bytes: expected one rank, found more: it says what one holds"};
  }
  return o;
}

}  // namespace

Result<double> TokenSeconds(const Planner& planner, const Shape& whole, std::int64_t context, std::int64_t users,
                            const Rates& rates) {
  const Step step{1, context, users};
  MLA_ASSIGN_OR_RETURN(const std::vector<PartWork> parts,
                       WorkOfStep(planner.rank_shape(), step, Form::kAbsorbed, KeptOf(planner)));
  MLA_ASSIGN_OR_RETURN(const std::vector<Collective> sent, CollectivesOf(whole, planner.options().ranks, step));
  return SecondsOf(parts, rates) + SecondsOf(sent, rates);
}

Result<double> PromptSeconds(const Planner& planner, const Shape& whole, std::int64_t prompt, Form form,
                             const Rates& rates) {
  const MemoryOptions& o = planner.options();
  // Chunks in between are priced at even steps of at most 4,096 of them: their cost is a line in S.
  double seconds = 0;
  for (std::int64_t done = 0; done < prompt;) {
    const std::int64_t left = Ceil(prompt - done, o.prefill_chunk);
    const std::int64_t many = std::max<std::int64_t>(1, left / 4096);
    const std::int64_t rows = std::min(o.prefill_chunk, prompt - done);
    const Step step{rows, done + rows + (many - 1) * o.prefill_chunk / 2, 1};
    MLA_ASSIGN_OR_RETURN(const std::vector<PartWork> parts,
                         WorkOfStep(planner.rank_shape(), step, form, KeptOf(planner)));
    MLA_ASSIGN_OR_RETURN(const std::vector<Collective> sent, CollectivesOf(whole, o.ranks, step));
    seconds += static_cast<double>(many) * (SecondsOf(parts, rates) + SecondsOf(sent, rates));
    done += many * rows;
  }
  return seconds;
}

Result<Report> MakeReport(const Subject& subject, const ReportOptions& options) {
  Report r;
  r.shape = subject.shape;
  MLA_ASSIGN_OR_RETURN(r.options, Filled(subject.shape, options));
  const ReportOptions& o = r.options;
  MLA_ASSIGN_OR_RETURN(const Planner planner, Planner::Create(subject, o.memory));
  r.rank = planner.rank_shape();
  MLA_ASSIGN_OR_RETURN(r.elements, ElementsPerToken(r.shape));
  MLA_ASSIGN_OR_RETURN(r.token_bytes, TokenBytes(r.rank, o.memory.row));
  MLA_ASSIGN_OR_RETURN(r.sequence_bytes, SequenceBytes(r.rank, o.memory, o.context));
  MLA_ASSIGN_OR_RETURN(r.memory, planner.At(o.context, o.users));
  MLA_RETURN_IF_ERROR(AddLimits(subject, planner, &r));
  r.placements = PlacementsOf(r.shape, o.memory.ranks);
  r.step = {o.rows, *o.keys, Ceil(o.users, o.memory.ranks.dp)};
  MLA_ASSIGN_OR_RETURN(r.collectives, CollectivesOf(r.shape, o.memory.ranks, r.step));
  for (const Form form : {Form::kAbsorbed, Form::kMha}) {
    if (form == Form::kMha && !HasMhaForm(r)) continue;
    MLA_ASSIGN_OR_RETURN(FormReport report, ReportForm(planner, r.step, form, o.rates));
    r.forms.push_back(std::move(report));
  }
  AddCrossings(o, &r);
  if (o.rates) {
    MLA_ASSIGN_OR_RETURN(r.times, TimesOf(planner, r));
  }
  MLA_RETURN_IF_ERROR(AddCurves(planner, &r));
  return r;
}

}  // namespace mla::plan
