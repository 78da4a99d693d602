#include <algorithm>
#include <cstddef>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/tune.h"
#include "cli/bench_crossover.h"
#include "cli/svg_chart.h"

namespace mla::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string OrDash(const std::optional<double>& rows) { return rows ? fmt::format("{:.0f}", *rows) : "-"; }

Json OrNull(const std::optional<double>& rows) { return rows ? Json(*rows) : Json(nullptr); }

Json PointJson(const CrossoverReport& r, const bench::CrossoverPoint& p) {
  Json json;
  json["rows"] = p.rows;
  json["keys"] = p.keys;
  json["pairs"] = p.pairs.mha.size();
  json["mha_seconds"] = p.measured() ? Json(p.Seconds(Form::kMha)) : Json(nullptr);
  json["absorbed_seconds"] = p.measured() ? Json(p.Seconds(Form::kAbsorbed)) : Json(nullptr);
  json["faster"] = p.measured() ? Json(FormName(p.Better())) : Json(nullptr);
  // What the table says it takes; nothing where it has no seconds.
  const auto priced = [&](Form form) {
    if (r.table.measured.empty()) return Json(nullptr);
    return Json(FormCost(r.table, form, r.dims, p.keys - p.rows, p.rows));
  };
  json["mha_seconds_by_table"] = priced(Form::kMha);
  json["absorbed_seconds_by_table"] = priced(Form::kAbsorbed);
  for (const bench::FormRule& rule : r.rules) json["choices"][rule.name] = FormName(rule.choose(p.rows, p.keys));
  return json;
}

std::string PointsText(const CrossoverReport& r) {
  std::string text = fmt::format("{:>6} {:>6} {:>6} {:>12} {:>12} {:>9}  {:<9} {:<9}\n", "keys", "rows", "pairs",
                                 "mha ms", "absorbed ms", "ratio", "faster", "auto");
  for (const bench::CrossoverPoint& p : r.points) {
    if (!p.measured()) continue;
    const double mha = p.Seconds(Form::kMha);
    const double absorbed = p.Seconds(Form::kAbsorbed);
    text += fmt::format("{:>6} {:>6} {:>6} {:>12.3f} {:>12.3f} {:>9.3f}  {:<9} {:<9}\n", p.keys, p.rows,
                        p.pairs.mha.size(), mha * 1e3, absorbed * 1e3, mha / absorbed, FormName(p.Better()),
                        FormName(r.rules.front().choose(p.rows, p.keys)));
  }
  return text;
}

std::string RulesText(const CrossoverReport& r) {
  std::string text =
      fmt::format("{:<15}{:>8}{:>9}  {:<18}{:>7}  {}\n", "rule", "mean", "largest", "at keys, rows", "missed", "");
  for (const bench::FormRule& rule : r.rules) {
    const bench::RuleResult result = bench::Judge(rule, r.points);
    text +=
        fmt::format("{:<15}{:>6.2f} %{:>7.1f} %  {:<18}{:>7}  {}\n", rule.name, 100 * result.mean, 100 * result.worst,
                    result.worst > 0 ? fmt::format("{}, {}", result.worst_keys, result.worst_rows) : "-",
                    result.other_form, rule.about);
  }
  return text;
}

std::string CrossingsText(const CrossoverReport& r) {
  std::string text = fmt::format("{:>6} {:>10} {:>10} {:>10} {:>10}\n", "keys", "closed", "causal", "measured", "auto");
  for (const bench::Crossings& c : bench::CrossingsOf(r.table, r.dims, r.points)) {
    text += fmt::format("{:>6} {:>10} {:>10} {:>10} {:>10}\n", c.keys, OrDash(c.closed), OrDash(c.causal),
                        OrDash(c.measured), OrDash(c.table));
  }
  return text;
}

std::int64_t Unmeasured(const CrossoverReport& r) {
  return std::count_if(r.points.begin(), r.points.end(), [](const auto& p) { return !p.measured(); });
}

}  // namespace

std::string CrossoverText(const CrossoverReport& r) {
  const MlaDims& d = r.dims;
  std::string text = BenchMachineText(r.machine);
  text += fmt::format(
      "{}: {} heads, nope {}, rope {}, v {}, latent {}; cache rows {}, kv_b {}, {} layers in turn, "
      "chunks of {} rows\n\n",
      r.shape, d.num_attention_heads, d.qk_nope_head_dim, d.qk_rope_head_dim, d.v_head_dim, d.kv_lora_rank, r.kv_dtype,
      r.weights, r.layers, r.table.chunk);
  text += PointsText(r);
  text += "\nhow much longer than the faster form: geometric mean, largest, and points that take the slower one\n";
  text += RulesText(r);
  text += "\nnew rows from which on MHA is the faster form\n" + CrossingsText(r);
  if (const std::int64_t left = Unmeasured(r); left > 0) {
    text += fmt::format("\n{} of {} points are not measured: no time was left (--seconds)\n", left, r.points.size());
  }
  return text;
}

std::string CrossoverJson(const CrossoverReport& r) {
  Json json = {{"bench", "crossover"}};
  json["processor"] = r.machine.processor;
  json["threads"] = r.machine.threads;
  json["kernels"] = r.machine.kernels;
  json["shape"] = r.shape;
  json["kv_dtype"] = r.kv_dtype;
  json["weights"] = r.weights;
  json["layers"] = r.layers;
  json["form_table"] = r.table.id;
  json["chunk"] = r.table.chunk;
  json["unmeasured"] = Unmeasured(r);
  json["points"] = Json::array();
  for (const bench::CrossoverPoint& p : r.points) json["points"].push_back(PointJson(r, p));
  json["rules"] = Json::array();
  for (const bench::FormRule& rule : r.rules) {
    const bench::RuleResult result = bench::Judge(rule, r.points);
    json["rules"].push_back({{"name", rule.name},
                             {"about", rule.about},
                             {"points", result.points},
                             {"missed", result.other_form},
                             {"mean_regret", result.mean},
                             {"largest_regret", result.worst},
                             {"largest_keys", result.worst_keys},
                             {"largest_rows", result.worst_rows}});
  }
  json["crossings"] = Json::array();
  for (const bench::Crossings& c : bench::CrossingsOf(r.table, r.dims, r.points)) {
    json["crossings"].push_back({{"keys", c.keys},
                                 {"closed", OrNull(c.closed)},
                                 {"causal", OrNull(c.causal)},
                                 {"measured", OrNull(c.measured)},
                                 {"auto", OrNull(c.table)}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string CrossoverCsv(const CrossoverReport& r) {
  std::string text = "keys,rows,pairs,mha_seconds,absorbed_seconds,auto\n";
  for (const bench::CrossoverPoint& p : r.points) {
    if (!p.measured()) continue;
    text += fmt::format("{},{},{},{},{},{}\n", p.keys, p.rows, p.pairs.mha.size(), p.Seconds(Form::kMha),
                        p.Seconds(Form::kAbsorbed), FormName(r.rules.front().choose(p.rows, p.keys)));
  }
  return text;
}

std::string CrossoverSvg(const CrossoverReport& r) {
  const auto whole = [](double value) { return fmt::format("{:.6g}", value); };
  Chart chart;
  chart.id = "crossover";
  chart.title = fmt::format("{}: where MHA becomes the faster form", r.shape);
  chart.about = fmt::format(
      "New rows from which on expanding keys and values is faster than absorbing, against all keys. {}, {} "
      "kernels, {} thread{}.",
      r.machine.processor, r.machine.kernels, r.machine.threads, r.machine.threads == 1 ? "" : "s");
  chart.x = {"keys S", 2, whole};
  chart.y = {"new rows T", 2, whole};
  chart.series.resize(4);
  chart.series[0].name = "closed form a S / (S + a)";
  chart.series[1].name = "multiply-adds, causal";
  chart.series[2].name = "measured";
  chart.series[3].name = "auto, by its table";
  for (const bench::Crossings& c : bench::CrossingsOf(r.table, r.dims, r.points)) {
    const std::optional<double> values[] = {c.closed, c.causal, c.measured, c.table};
    for (std::size_t i = 0; i < 4; ++i) {
      if (values[i]) chart.series[i].points.emplace_back(static_cast<double>(c.keys), *values[i]);
    }
  }
  return SvgFile(chart);
}

}  // namespace mla::cli
