#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "cli/html_page.h"
#include "cli/output.h"
#include "cli/plan_report.h"
#include "cli/svg_chart.h"

namespace mla::cli {
namespace {

using plan::Report;

// 1500000 as "1.5M".
std::string Metric(double value) {
  constexpr const char* kUnits[] = {"", "K", "M", "G", "T", "P"};
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return fmt::format("{:.4g}{}", value, kUnits[unit]);
}
std::string Tokens(double value) {
  const auto n = static_cast<std::int64_t>(std::llround(value));
  return n >= 1024 && n % 1024 == 0 ? fmt::format("{}K", n / 1024) : std::to_string(n);
}
std::string ByteText(double value) {
  return value < 9e18 ? HumanBytes(static_cast<std::int64_t>(value)) : fmt::format("{:.3g} B", value);
}

const ChartAxis kContextAxis = {"tokens of a sequence", 2, Tokens};
const ChartAxis kSecondsAxis = {"seconds a token", 10, HumanSeconds};

template <class Points>
Chart OverReports(const PlanReports& reports, Chart chart, const Points& points_of) {
  const std::vector<std::string> names = PlanNames(reports);
  for (std::size_t i = 0; i < reports.size(); ++i) chart.series.push_back({names[i], points_of(reports[i]), true});
  return chart;
}

// A point for each context that was planned for.
template <class Y>
Chart OverContexts(const PlanReports& reports, Chart chart, const Y& y_of) {
  return OverReports(reports, std::move(chart), [&](const Report& r) {
    std::vector<std::pair<double, double>> points;
    for (const plan::Point& p : r.contexts) points.emplace_back(p.context, y_of(p));
    return points;
  });
}

Chart CacheChart(const PlanReports& reports) {
  return OverContexts(reports,
                      {"cache",
                       "Cache of one sequence",
                       "Bytes that one rank keeps, in whole pages.",
                       kContextAxis,
                       {"bytes", 4, ByteText},
                       {}},
                      [](const plan::Point& p) { return p.sequence_bytes; });
}

Chart UsersChart(const PlanReports& reports) {
  return OverContexts(reports,
                      {"users",
                       "Users that fit",
                       "Most sequences of that length in the memory that a rank has.",
                       kContextAxis,
                       {"users", 10, Metric},
                       {}},
                      [](const plan::Point& p) { return p.users.value_or(0); });
}

Chart TokenChart(const PlanReports& reports) {
  return OverContexts(reports,
                      {"token",
                       "Time of a token against context",
                       "A decoding step at the given rates.",
                       kContextAxis,
                       kSecondsAxis,
                       {}},
                      [](const plan::Point& p) { return p.token_seconds.value_or(0); });
}

Chart BatchChart(const PlanReports& reports, bool rate) {
  Chart chart{"batch",
              "Time of a token against batch",
              "A decoding step of that many sequences, each of the context.",
              {"sequences", 2, Tokens},
              kSecondsAxis,
              {}};
  if (rate) {
    chart.id = "throughput";
    chart.title = "Tokens a second against batch";
    chart.y = {"tokens a second", 10, Metric};
  }
  return OverReports(reports, std::move(chart), [rate](const Report& r) {
    std::vector<std::pair<double, double>> points;
    for (const plan::BatchPoint& b : r.batches) {
      points.emplace_back(b.users, rate ? b.tokens_per_second : b.token_seconds);
    }
    return points;
  });
}

bool OfAttention(const plan::PartWork& p) { return p.cache_bytes > 0 || p.name.ends_with("(kv_b)"); }

// FLOP a byte, FLOP a second of the parts that are chosen.
template <class Chosen>
std::pair<double, double> RooflinePoint(const plan::FormReport& form, const plan::Rates& rates, const Chosen& chosen) {
  std::vector<plan::PartWork> parts;
  double flops = 0;
  double bytes = 0;
  for (const plan::PartWork& p : form.parts) {
    if (!chosen(p)) continue;
    parts.push_back(p);
    flops += 2 * static_cast<double>(p.multiply_adds);
    bytes += static_cast<double>(p.bytes());
  }
  return {flops / bytes, flops / plan::SecondsOf(parts, rates)};
}

// Of the first model: others have the same roof, and too many marks.
Chart RooflineChart(const Report& r, const std::string& model) {
  Chart chart{"roofline",
              "Roofline of the step",
              fmt::format("{}: T = {} new rows over S = {} keys; sequences: {}.", model, r.step.rows, r.step.keys,
                          r.step.sequences),
              {"FLOP a byte", 10, Metric},
              {"FLOP a second", 10, Metric},
              {}};
  if (!r.options.rates) return chart;
  const plan::Rates& rates = *r.options.rates;
  std::vector<ChartSeries> marks;
  double low = 0.1;
  double high = 1e4;
  for (const plan::FormReport& form : r.forms) {
    const std::string name = r.forms.size() > 1 ? FormName(form.form) : "heads";
    for (const bool whole : {false, true}) {
      const auto point =
          RooflinePoint(form, rates, [whole](const plan::PartWork& p) { return whole || OfAttention(p); });
      low = std::min(low, point.first);
      high = std::max(high, point.first);
      marks.push_back({fmt::format("{}, {}", name, whole ? "whole step" : "attention"), {point}, false});
    }
  }
  const double ridge = 2 * rates.products / rates.read_bytes;
  chart.series.push_back(
      {"roof",
       {{low, low * rates.read_bytes}, {ridge, 2 * rates.products}, {std::max(high, 2 * ridge), 2 * rates.products}},
       true});
  for (ChartSeries& s : marks) chart.series.push_back(std::move(s));
  return chart;
}

Chart CrossingChart(const Report& r, const std::string& model) {
  Chart chart{"crossing",
              "Where expanding begins to need less than absorbing",
              fmt::format("{}: new tokens T above the line are cheaper expanded.", model),
              {"positions cached", 2, Tokens},
              {"new tokens", 2, Tokens},
              {{"a S / (S + a)", {}, true}, {"causal count", {}, true}}};
  if (r.options.rates) chart.series.push_back({"time at the given rates", {}, true});
  for (const plan::Crossing& c : r.crossings) {
    const auto x = static_cast<double>(c.keys);
    chart.series[0].points.emplace_back(x, c.closed);
    chart.series[1].points.emplace_back(x, c.causal.value_or(0));
    if (r.options.rates) chart.series[2].points.emplace_back(x, c.seconds.value_or(0));
  }
  return chart;
}

std::string ComparisonTable(const PlanReports& reports) {
  std::string html = "<div class=\"wide\"><table>\n";
  for (const PlanRow& row : PlanComparison(reports)) {
    html += fmt::format("<tr><th scope=\"row\">{}</th>", Escaped(row.name));
    const bool head = row.name == "model";
    for (const std::string& value : row.values) {
      html +=
          head ? fmt::format("<th scope=\"col\">{}</th>", Escaped(value)) : fmt::format("<td>{}</td>", Escaped(value));
    }
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

std::string MemoryTable(const Report& r, const std::string& model) {
  std::string html = fmt::format("<details open><summary>Memory{}: {}</summary>\n<div class=\"wide\"><table>\n",
                                 r.options.memory.ranks.count() > 1 ? " of one rank" : "", Escaped(model));
  for (const PlanItem& item : PlanMemory(r)) {
    html += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>\n", Escaped(item.name),
                        Grouped(item.bytes), HumanBytes(item.bytes), Escaped(item.note));
  }
  html += "</table></div>\n";
  for (const std::string& note : r.shape.notes) html += fmt::format("<p>{}</p>\n", Escaped(note));
  return html + "</details>\n";
}

}  // namespace

std::string PlanHtml(const PlanReports& reports) {
  std::string html = "<h1>mla plan</h1>\n";
  const std::vector<std::string> names = PlanNames(reports);
  html += ComparisonTable(reports);
  html += "<h2>Charts</h2>\n";
  for (const Chart& chart : {CacheChart(reports), UsersChart(reports), TokenChart(reports), BatchChart(reports, false),
                             BatchChart(reports, true), RooflineChart(reports.front(), names.front())}) {
    html += FigureHtml(chart);
  }
  const auto crossed =
      std::find_if(reports.begin(), reports.end(), [](const Report& r) { return !r.crossings.empty(); });
  if (crossed != reports.end()) {
    html += FigureHtml(CrossingChart(*crossed, names[static_cast<std::size_t>(crossed - reports.begin())]));
  }
  if (!reports.front().options.rates) {
    html += "<p>Charts of time and the roofline need rates: --flops and --read-rate, or --tune-table.</p>\n";
  }
  html += "<h2>Memory</h2>\n";
  for (std::size_t i = 0; i < reports.size(); ++i) html += MemoryTable(reports[i], names[i]);
  return HtmlPage("mla plan", html);
}

}  // namespace mla::cli
