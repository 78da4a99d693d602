#include "cli/serve_bench_report.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/measure.h"
#include "cli/html_page.h"
#include "cli/output.h"
#include "cli/svg_chart.h"

namespace mla::cli {
namespace {

using Json = nlohmann::ordered_json;
using Seconds = std::vector<double>;

// A line of the report: its name, a sentence's worth of value, and the same for machines.
struct ReportLine {
  std::string name;
  std::string text;
  std::string key;
  Json value;
};

std::string Milliseconds(double seconds) { return fmt::format("{:.1f} ms", seconds * 1e3); }

ReportLine Quantiles(std::string name, std::string key, const Seconds& samples) {
  if (samples.empty()) return {std::move(name), "none", std::move(key), nullptr};
  const double p50 = bench::Quantile(samples, 0.5);
  const double p95 = bench::Quantile(samples, 0.95);
  const double p99 = bench::Quantile(samples, 0.99);
  return {std::move(name),
          fmt::format("p50 {}, p95 {}, p99 {} ({} of them)", Milliseconds(p50), Milliseconds(p95), Milliseconds(p99),
                      samples.size()),
          std::move(key),
          {{"p50", p50}, {"p95", p95}, {"p99", p99}, {"count", samples.size()}}};
}

ReportLine Steps(std::string name, std::string key, const bench::StepTimes& t) {
  const double share = t.seconds > 0 ? 100 / t.seconds : 0;
  return {std::move(name),
          fmt::format("{} in {:.2f} s; attention: absorbed {:.2f} s ({:.0f} %), expanded {:.2f} s ({:.0f} %)", t.steps,
                      t.seconds, t.absorbed_seconds, t.absorbed_seconds * share, t.mha_seconds, t.mha_seconds * share),
          std::move(key),
          {{"steps", t.steps},
           {"seconds", t.seconds},
           {"absorbed_attention_seconds", t.absorbed_seconds},
           {"mha_attention_seconds", t.mha_seconds}}};
}

void AddLoad(const ServeBenchReport& r, std::vector<ReportLine>* lines) {
  const bench::LoadOptions& d = r.drawn;
  const std::size_t count = r.options.load.size();
  if (!r.trace.empty()) {
    lines->push_back({"load",
                      fmt::format("{} requests of {}", count, r.trace),
                      "load",
                      {{"requests", count}, {"trace", r.trace}, {"seed", r.options.seed}}});
    return;
  }
  const std::string when =
      d.rate > 0 ? fmt::format("{} a second, {}", d.rate, d.arrivals == bench::Arrivals::kPoisson ? "Poisson" : "even")
                 : std::string("all at once");
  std::string text = fmt::format("{} requests, {}; prompts of {} to {} tokens, outputs of {} to {}, {}", count, when,
                                 d.prompt.low, d.prompt.high, d.output.low, d.output.high,
                                 d.lengths == bench::Lengths::kUniform ? "uniform" : "log-uniform");
  if (d.prefix_tokens > 0) {
    text += fmt::format("; {:.0f} % begin with one of {} prefixes of {} tokens", 100 * d.prefix_share, d.prefixes,
                        d.prefix_tokens);
  }
  if (d.cancelled > 0) text += fmt::format("; {:.0f} % are cancelled", 100 * d.cancelled);
  lines->push_back({"load",
                    std::move(text),
                    "load",
                    {{"requests", count},
                     {"rate", d.rate},
                     {"arrivals", d.arrivals == bench::Arrivals::kPoisson ? "poisson" : "even"},
                     {"prompt_tokens", {d.prompt.low, d.prompt.high}},
                     {"output_tokens", {d.output.low, d.output.high}},
                     {"lengths", d.lengths == bench::Lengths::kUniform ? "uniform" : "loguniform"},
                     {"prefix_tokens", d.prefix_tokens},
                     {"prefix_share", d.prefix_share},
                     {"prefixes", d.prefixes},
                     {"cancelled", d.cancelled},
                     {"seed", d.seed}}});
}

void AddThroughput(const ServeBenchReport& r, const bench::ServeSummary& s, std::vector<ReportLine>* lines) {
  const double seconds = r.result.seconds;
  lines->push_back({"requests",
                    fmt::format("{} finished, {} cancelled, in {:.2f} s: {:.2f} a second", s.finished, s.cancelled,
                                seconds, static_cast<double>(s.finished) / seconds),
                    "requests",
                    {{"finished", s.finished}, {"cancelled", s.cancelled}, {"seconds", seconds}}});
  const double output = static_cast<double>(s.output_tokens) / seconds;
  const double all = static_cast<double>(s.output_tokens + s.prompt_tokens) / seconds;
  lines->push_back({"throughput",
                    fmt::format("{:.1f} tokens/s of output; with prompts {:.1f} ({} and {} tokens)", output, all,
                                Grouped(s.output_tokens), Grouped(s.prompt_tokens)),
                    "throughput",
                    {{"output_tokens_per_second", output},
                     {"tokens_per_second", all},
                     {"output_tokens", s.output_tokens},
                     {"prompt_tokens", s.prompt_tokens}}});
  lines->push_back({"goodput",
                    fmt::format("{:.2f} requests/s ({} of {}) within {} to the first token and {} between tokens",
                                static_cast<double>(s.good) / seconds, s.good, s.finished,
                                Milliseconds(r.options.first_token_limit), Milliseconds(r.options.token_limit)),
                    "goodput",
                    {{"requests_per_second", static_cast<double>(s.good) / seconds},
                     {"good", s.good},
                     {"first_token_limit", r.options.first_token_limit},
                     {"token_limit", r.options.token_limit}}});
}

void AddCache(const ServeBenchReport& r, const bench::ServeSummary& s, std::vector<ReportLine>* lines) {
  const EngineStats& e = r.result.engine;
  lines->push_back({"prefix hits",
                    fmt::format("{} admissions found {} tokens; they ran {} prompt tokens of their own", e.hits,
                                Grouped(e.cached_tokens), Grouped(s.hit_rows)),
                    "prefix",
                    {{"hits", e.hits}, {"cached_tokens", e.cached_tokens}, {"rows_run_after_hits", s.hit_rows}}});
  lines->push_back(Quantiles("admitted to first token: hits", "hit_first_token_seconds", s.hit_first_token));
  lines->push_back(Quantiles("admitted to first token: others", "miss_first_token_seconds", s.miss_first_token));
  lines->push_back(
      {"pages",
       fmt::format("{} at most of {} in use; {} preemptions, {} evicted, {} copied", r.result.most_used_pages, r.pages,
                   r.result.scheduler.preemptions, e.evicted_pages, e.copied_pages),
       "pages",
       {{"total", r.pages},
        {"most_used", r.result.most_used_pages},
        {"preemptions", r.result.scheduler.preemptions},
        {"evicted", e.evicted_pages},
        {"copied", e.copied_pages}}});
  lines->push_back(
      {"resident tokens",
       fmt::format("{} at most, of {} sequences at most; {} of cache a token", Grouped(r.result.most_resident_tokens),
                   r.result.most_running, HumanBytes(r.cache_bytes_per_token)),
       "resident",
       {{"most_tokens", r.result.most_resident_tokens},
        {"most_sequences", r.result.most_running},
        {"cache_bytes_per_token", r.cache_bytes_per_token}}});
  if (e.draft_rows > 0) {
    lines->push_back({"guesses",
                      fmt::format("{} checked, {} held", e.draft_rows, e.accepted),
                      "guesses",
                      {{"checked", e.draft_rows}, {"held", e.accepted}}});
  }
  const MemoryPlan& m = r.memory;
  lines->push_back({"memory",
                    fmt::format("{} planned and allocated; the process holds {} before the first request, {} after the "
                                "last",
                                HumanBytes(m.total()), HumanBytes(r.resident_begin), HumanBytes(r.resident_end)),
                    "memory",
                    {{"planned", m.total()},
                     {"weights", m.weights},
                     {"cache", m.cache},
                     {"workspace", m.workspace},
                     {"tables", m.tables},
                     {"resident_begin", r.resident_begin},
                     {"resident_end", r.resident_end}}});
}

std::vector<ReportLine> Lines(const ServeBenchReport& r) {
  const bench::ServeSummary s = bench::Summarise(r.options, r.result);
  std::vector<ReportLine> lines;
  AddLoad(r, &lines);
  AddThroughput(r, s, &lines);
  lines.push_back(Quantiles("to the first token", "first_token_seconds", s.first_token));
  lines.push_back(Quantiles("between tokens", "between_tokens_seconds", r.result.token_gaps));
  lines.push_back(Steps("steps with prompt rows", "prompt_steps", r.result.prompt_steps));
  lines.push_back(Steps("steps of output alone", "decode_steps", r.result.decode_steps));
  AddCache(r, s, &lines);
  return lines;
}

std::string EngineLine(const ServeBenchReport& r) {
  return fmt::format(
      "{}: weights {}, cache rows {}, mode {}, at most {} sequences of {} tokens, prefix reuse {}, guesses {}\n",
      r.model, r.weights, r.engine.kv_dtype == DType::kF32 ? "f32" : "bf16", ModeName(r.engine.mode),
      r.engine.max_sequences, r.engine.context, PrefixReuseName(r.engine.prefix_reuse), DrafterName(r.engine.drafter));
}

// Which share of the samples is longer, from all of them down to one: tails show on logarithmic axes.
ChartSeries Tail(std::string name, Seconds samples) {
  ChartSeries series{std::move(name), {}, true};
  std::sort(samples.begin(), samples.end());
  const std::size_t n = samples.size();
  const std::size_t stride = std::max<std::size_t>(1, n / 60);
  for (std::size_t i = 0; i < n; ++i) {
    // Every one of the last few, a sixtieth of the others.
    if (i % stride != 0 && n - i > 8) continue;
    series.points.emplace_back(samples[i], static_cast<double>(n - i) / static_cast<double>(n));
  }
  return series;
}

template <class Value>
ChartSeries OverTime(const bench::ServeBenchResult& result, std::string name, const Value& value) {
  constexpr double kPoints = 80;
  ChartSeries series{std::move(name), {}, true};
  const double gap = result.seconds / kPoints;
  const bench::ServeMoment* last = nullptr;
  for (const bench::ServeMoment& moment : result.moments) {
    if (last != nullptr && moment.seconds - last->seconds < gap) continue;
    if (last != nullptr) series.points.emplace_back(moment.seconds, value(*last, moment));
    last = &moment;
  }
  return series;
}

std::vector<Chart> Charts(const ServeBenchReport& r) {
  const bench::ServeSummary s = bench::Summarise(r.options, r.result);
  const auto number = [](double v) { return fmt::format("{:.4g}", v); };
  const ChartAxis seconds{"seconds", 0, number};
  const ChartAxis share{"share that is longer", 10, [](double v) { return fmt::format("{:.3g} %", 100 * v); }};
  std::vector<Chart> charts;
  charts.push_back({"tails",
                    "Waiting",
                    "The share of requests, and of tokens after the first, that waited longer.",
                    {"seconds", 10, HumanSeconds},
                    share,
                    {Tail("to the first token", s.first_token), Tail("between tokens", r.result.token_gaps)}});
  charts.push_back({"rate",
                    "Output",
                    "Tokens of output a second, over the run.",
                    seconds,
                    {"tokens a second", 0, number},
                    {OverTime(r.result, "tokens a second", [](const auto& from, const auto& to) {
                      return static_cast<double>(to.tokens - from.tokens) / (to.seconds - from.seconds);
                    })}});
  charts.push_back(
      {"sequences",
       "Sequences",
       "Running, and waiting in the queue.",
       seconds,
       {"sequences", 0, number},
       {OverTime(r.result, "running", [](const auto&, const auto& to) { return static_cast<double>(to.running); }),
        OverTime(r.result, "waiting", [](const auto&, const auto& to) { return static_cast<double>(to.waiting); })}});
  charts.push_back(
      {"pages",
       "Pages in use",
       fmt::format("Of {} in all.", r.pages),
       seconds,
       {"pages", 0, number},
       {OverTime(r.result, "in use", [](const auto&, const auto& to) { return static_cast<double>(to.used_pages); })}});
  return charts;
}

}  // namespace

std::string ServeBenchText(const ServeBenchReport& r) {
  std::string text = BenchMachineText(r.machine) + EngineLine(r);
  for (const ReportLine& line : Lines(r)) text += fmt::format("{:<34}{}\n", line.name, line.text);
  return text;
}

std::string ServeBenchJson(const ServeBenchReport& r) {
  Json json = {{"bench", "serve"},
               {"processor", r.machine.processor},
               {"threads", r.machine.threads},
               {"kernels", r.machine.kernels},
               {"model", r.model},
               {"weights", r.weights},
               {"kv_dtype", r.engine.kv_dtype == DType::kF32 ? "f32" : "bf16"},
               {"mode", ModeName(r.engine.mode)},
               {"form_table", r.engine.form_table.id},
               {"max_sequences", r.engine.max_sequences},
               {"context", r.engine.context},
               {"prefill_chunk", r.engine.prefill_chunk},
               {"keep_expanded", r.engine.keep_bytes},
               {"prefix_reuse", PrefixReuseName(r.engine.prefix_reuse)},
               {"draft", DrafterName(r.engine.drafter)}};
  for (ReportLine& line : Lines(r)) json[line.key] = std::move(line.value);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string ServeBenchHtml(const ServeBenchReport& r) {
  std::string html =
      fmt::format("<h1>mla bench serve</h1>\n<p>{}</p>\n<p>{}</p>\n<div class=\"wide\"><table class=\"words\">\n",
                  Escaped(BenchMachineText(r.machine)), Escaped(EngineLine(r)));
  for (const ReportLine& line : Lines(r)) {
    html += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", Escaped(line.name), Escaped(line.text));
  }
  html += "</table></div>\n<h2>Charts</h2>\n";
  for (const Chart& chart : Charts(r)) html += FigureHtml(chart);
  return HtmlPage("mla bench serve", html);
}

}  // namespace mla::cli
