#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/plan_report.h"

namespace mla::cli {
namespace {

using Json = nlohmann::ordered_json;
using plan::AttentionKind;
using plan::Report;

template <class T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json ShapeJson(const plan::Shape& shape) {
  Json groups = Json::array();
  for (const plan::LayerGroup& g : shape.groups) {
    Json j = {{"layers", g.layers},      {"heads", g.heads},         {"kv_heads", g.kv_heads},
              {"key_dim", g.key_dim},    {"value_dim", g.value_dim}, {"window", g.window > 0 ? Json(g.window) : Json()},
              {"elements", g.elements()}};
    j["kind"] = g.kind == AttentionKind::kLatent ? "latent" : g.kind == AttentionKind::kHeads ? "heads" : "linear";
    groups.push_back(std::move(j));
  }
  Json j = {{"model_type", shape.model_type},
            {"runs_here", shape.not_run.empty()},
            {"why_not", shape.not_run.empty() ? Json() : Json(shape.not_run)},
            {"attention", groups},
            {"max_positions", shape.max_positions},
            {"notes", shape.notes}};
  j["parameters"] = nullptr;
  if (shape.parameters) {
    Json parts;
    for (std::size_t i = 0; i < plan::kParts; ++i)
      parts[plan::PartName(static_cast<plan::Part>(i))] = shape.parameters->of[i];
    j["parameters"] = {{"total", shape.parameters->total()}, {"parts", parts}};
  }
  return j;
}

Json MemoryJson(const Report& r) {
  const plan::MemoryUse& m = r.memory;
  Json weights = Json::array();
  for (const plan::WeightBytes& w : m.weight_parts) {
    weights.push_back({{"part", w.part}, {"dtype", w.dtype}, {"bytes", w.bytes}});
  }
  return {{"context", r.options.context},
          {"users", r.options.users},
          {"row", std::string(r.options.memory.row.name)},
          {"elements_per_token", r.elements},
          {"bytes_per_token", r.token_bytes},
          {"bytes_per_sequence", r.sequence_bytes},
          {"engine_allocates", m.engines},
          {"weights", m.weights_known ? Json(m.weights) : Json()},
          {"weight_parts", weights},
          {"cache", m.cache},
          {"pages", m.pages},
          {"states", m.states},
          {"workspace", m.workspace},
          {"tables", m.tables},
          {"sequences", m.sequences},
          {"communication", m.buffers},
          {"reserve", m.reserve},
          {"total", m.total},
          {"limit", OrNull(r.options.limit)},
          {"longest_context", OrNull(r.longest_context)},
          {"most_users", OrNull(r.most_users)},
          {"ranks_needed", OrNull(r.ranks_needed)}};
}

Json RanksJson(const Report& r) {
  const plan::Ranks& ranks = r.options.memory.ranks;
  Json j = {{"tp", ranks.tp},
            {"dp", ranks.dp},
            {"dcp", ranks.dcp},
            {"spread_experts", ranks.spread_experts},
            {"shard_latent", ranks.shard_latent},
            {"placement", Json::object()},
            {"collectives", Json::array()}};
  for (const plan::Placement& p : r.placements) j["placement"][p.part] = p.how;
  for (const plan::Collective& c : r.collectives) {
    j["collectives"].push_back({{"name", c.name},
                                {"what", c.what},
                                {"ranks", c.ranks},
                                {"times", c.times},
                                {"payload_bytes", c.payload},
                                {"sent_bytes", c.sent}});
  }
  return j;
}

Json WorkJson(const Report& r) {
  Json forms = Json::array();
  for (const plan::FormReport& form : r.forms) {
    Json parts = Json::array();
    for (const plan::PartWork& p : form.parts) {
      parts.push_back({{"part", p.name},
                       {"rate", plan::RateKindName(p.kind)},
                       {"layers", p.layers},
                       {"multiply_adds", p.multiply_adds},
                       {"weight_bytes", p.weight_bytes},
                       {"cache_bytes", p.cache_bytes}});
    }
    Json j = {{"form", r.forms.size() > 1 ? FormName(form.form) : "heads"},
              {"multiply_adds", form.multiply_adds},
              {"bytes", form.bytes},
              {"parts", parts}};
    if (r.options.rates) j["seconds"] = form.seconds;
    forms.push_back(std::move(j));
  }
  return {{"rows", r.step.rows}, {"keys", r.step.keys}, {"sequences", r.step.sequences}, {"forms", forms}};
}

Json CrossingJson(const Report& r) {
  Json points = Json::array();
  for (const plan::Crossing& c : r.crossings) {
    points.push_back({{"cached", c.keys},
                      {"closed", r.crossing_constant ? Json(c.closed) : Json()},
                      {"causal", OrNull(c.causal)},
                      {"seconds", OrNull(c.seconds)}});
  }
  return {{"a", OrNull(r.crossing_constant)}, {"points", points}};
}

Json TimesJson(const Report& r) {
  if (!r.times) return nullptr;
  const plan::Rates& rates = *r.options.rates;
  Json batches = Json::array();
  for (const plan::BatchPoint& b : r.batches) {
    batches.push_back(
        {{"users", b.users}, {"token_seconds", b.token_seconds}, {"tokens_per_second", b.tokens_per_second}});
  }
  return {{"rates",
           {{"id", rates.id},
            {"products", rates.products},
            {"expand", rates.expand},
            {"absorb", rates.absorb},
            {"mha", rates.mha},
            {"absorbed", rates.absorbed},
            {"read_bytes", rates.read_bytes},
            {"link_bytes", rates.link_bytes}}},
          {"prompt_mha_seconds", r.times->prompt_mha},
          {"prompt_absorbed_seconds", r.times->prompt_absorbed},
          {"first_token_seconds", r.times->first_token()},
          {"token_seconds", r.times->token},
          {"tokens_per_second", r.times->tokens_per_second},
          {"batches", batches}};
}

Json CurveJson(const Report& r) {
  Json points = Json::array();
  for (const plan::Point& p : r.contexts) {
    points.push_back({{"context", p.context},
                      {"sequence_bytes", p.sequence_bytes},
                      {"users", OrNull(p.users)},
                      {"token_seconds", OrNull(p.token_seconds)}});
  }
  return points;
}

}  // namespace

std::string PlanJson(const PlanReports& reports) {
  Json models = Json::array();
  for (const Report& r : reports) {
    models.push_back({{"name", r.shape.name},
                      {"model", ShapeJson(r.shape)},
                      {"memory", MemoryJson(r)},
                      {"ranks", RanksJson(r)},
                      {"work", WorkJson(r)},
                      {"crossing", r.crossings.empty() ? Json() : CrossingJson(r)},
                      {"times", TimesJson(r)},
                      {"contexts", CurveJson(r)}});
  }
  return Json({{"models", models}}).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace mla::cli
