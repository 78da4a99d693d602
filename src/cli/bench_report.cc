#include "cli/bench_report.h"

#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/bench_profile_report.h"
#include "cli/output.h"

namespace mla::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

// "GFLOP/s", for whole numbers "GOP/s".
const char* UnitOf(const bench::PeakInfo& info) { return std::string_view(info.type) == "int8" ? "GOP/s" : "GFLOP/s"; }

Json SummaryJson(const bench::Summary& s) {
  return {{"median", s.median}, {"p10", s.p10}, {"p90", s.p90}, {"count", s.count}};
}

void AddMachine(const BenchMachine& machine, Json* json) {
  (*json)["processor"] = machine.processor;
  (*json)["threads"] = machine.threads;
  (*json)["kernels"] = machine.kernels.empty() ? Json(nullptr) : Json(machine.kernels);
}

double RatioToKernels(const bench::CaseResult& c) { return c.measured.seconds.median / c.kernel_seconds.median; }

// A case as a flat list, which is also a line of CSV.
Json CaseJson(const bench::CaseResult& c) {
  const bench::Judgement j = c.judgement();
  const bench::Summary& s = c.measured.seconds;
  Json json;
  json["name"] = c.name;
  json["m"] = c.rows;
  json["n"] = c.n > 0 ? Json(c.n) : Json(nullptr);
  json["k"] = c.k > 0 ? Json(c.k) : Json(nullptr);
  json["experts_read"] = c.experts > 0 ? Json(c.experts) : Json(nullptr);
  json["weights"] = c.format;
  json["working_set"] = c.working_set;
  json["keys"] = c.keys > 0 ? Json(c.keys) : Json(nullptr);
  json["positions"] = c.positions > 0 ? Json(c.positions) : Json(nullptr);
  json["requests"] = c.requests > 0 ? Json(c.requests) : Json(nullptr);
  json["flops"] = c.operations();
  json["weight_bytes"] = c.work.bytes;
  json["repeats"] = s.count;
  json["seconds"] = s.median;
  json["seconds_p10"] = s.p10;
  json["seconds_p90"] = s.p90;
  json["gflops"] = c.operations() / s.median / 1e9;
  json["gbytes_per_second"] = c.work.bytes / s.median / 1e9;
  json["peak_instruction"] = bench::PeakInfoOf(c.work.peak).instruction;
  json["peak_gflops"] = c.measured.rates.peak / 1e9;
  json["read_gbytes_per_second"] = c.measured.rates.read / 1e9;
  json["bound"] = bench::BoundName(j.bound);
  json["share"] = j.share;
  if (c.kernels.empty()) return json;
  json["kernel_seconds"] = c.kernel_seconds.median;
  json["kernel_seconds_p10"] = c.kernel_seconds.p10;
  json["kernel_seconds_p90"] = c.kernel_seconds.p90;
  json["ratio_to_kernels"] = RatioToKernels(c);
  return json;
}

void AddFields(const Fields& fields, Json* json) {
  for (const auto& [name, value] : fields) (*json)[name] = value ? Json(*value) : Json(nullptr);
}

Json ProfileJson(const bench::ProfileResult& profile, const bench::Rates& limits) {
  Json json;
  AddFields(ProfileFields(profile), &json);
  json["phases"] = Json::array();
  for (const bench::PhaseResult& phase : profile.phases) {
    Json line = {{"phase", phase.name}};
    AddFields(PhaseFields(profile, phase, limits), &line);
    json["phases"].push_back(std::move(line));
  }
  return json;
}

// A line a phase, each with what `line` holds already.
void AddPhaseLines(const bench::ProfileResult& profile, const bench::Rates& limits, Json line,
                   std::vector<Json>* lines) {
  AddFields(ProfileFields(profile), &line);
  for (const bench::PhaseResult& phase : profile.phases) {
    line["phase"] = phase.name;
    AddFields(PhaseFields(profile, phase, limits), &line);
    lines->push_back(line);
  }
}

Json PeakJson(const bench::PeakRate& p) {
  const bench::PeakInfo& info = bench::PeakInfoOf(p.kind);
  return {{"type", info.type},
          {"instruction", info.instruction},
          {"gops", p.operations.median / 1e9},
          {"gops_p10", p.operations.p10 / 1e9},
          {"gops_p90", p.operations.p90 / 1e9}};
}

Json ReadJson(const bench::ReadRate& r) {
  return {{"bytes", r.size},
          {"gbytes_per_second", r.bytes.median / 1e9},
          {"gbytes_per_second_p10", r.bytes.p10 / 1e9},
          {"gbytes_per_second_p90", r.bytes.p90 / 1e9}};
}

std::string CsvField(const Json& value) {
  if (value.is_null()) return "";
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) text.insert(at, 1, '"');
  return '"' + text + '"';
}

// Objects of the same fields, one a line.
std::string Csv(const std::vector<Json>& lines) {
  std::string text;
  const auto add_line = [&](const Json& line, bool names) {
    const char* separator = "";
    for (const auto& [name, value] : line.items()) {
      text += separator + CsvField(names ? Json(name) : value);
      separator = ",";
    }
    text += '\n';
  };
  if (!lines.empty()) add_line(lines.front(), true);
  for (const Json& line : lines) add_line(line, false);
  return text;
}

// Limits as lines of one shape.
Json LimitLine(const BenchMachine& machine, const char* limit, const std::string& what, const bench::Summary& rate,
               const char* unit) {
  Json line;
  AddMachine(machine, &line);
  line["limit"] = limit;
  line["what"] = what;
  line["rate"] = rate.median / 1e9;
  line["rate_p10"] = rate.p10 / 1e9;
  line["rate_p90"] = rate.p90 / 1e9;
  line["unit"] = unit;
  return line;
}

std::string LimitsCsv(const BenchReport& report) {
  std::vector<Json> lines;
  for (const bench::PeakRate& p : report.limits.peaks) {
    const bench::PeakInfo& info = bench::PeakInfoOf(p.kind);
    lines.push_back(LimitLine(report.machine, info.type, info.instruction, p.operations, UnitOf(info)));
  }
  for (const bench::ReadRate& r : report.limits.reads) {
    lines.push_back(LimitLine(report.machine, "read", fmt::format("{} bytes", r.size), r.bytes, "GB/s"));
  }
  return Csv(lines);
}

// A layer beside its kernels by themselves.
std::string KernelsText(const bench::CaseResult& c) {
  std::string text = "  us alone:";
  for (const bench::KernelAlone& k : c.kernels) {
    text += fmt::format("{} {} {:.1f} [{:.1f} to {:.1f}]", &k == &c.kernels.front() ? "" : ",", k.name,
                        k.seconds.median * 1e6, k.seconds.p10 * 1e6, k.seconds.p90 * 1e6);
  }
  const bench::Summary& all = c.kernel_seconds;
  return text + fmt::format("\n  together {:.1f} us [{:.1f} to {:.1f}]; the layer takes {:.3f} times as long\n",
                            all.median * 1e6, all.p10 * 1e6, all.p90 * 1e6, RatioToKernels(c));
}

// Tokens a second, from seconds for so many: the slow end of times is the slow end of rates.
bench::Summary RateOf(const bench::Summary& seconds, double tokens) {
  return {tokens / seconds.median, tokens / seconds.p90, tokens / seconds.p10, seconds.count};
}

bench::Summary DecodeRate(const ModelReport& r) {
  return RateOf(r.result.step_seconds, static_cast<double>(r.options.sequences));
}
bench::Summary PromptRate(const ModelReport& r) {
  return RateOf(r.result.prompt_seconds, static_cast<double>(r.options.prompt));
}

// What was timed, by name, with the limits' least time for it where they were measured.
struct TimedRun {
  const char* name;
  bench::Summary rate;
  const bench::Summary* seconds;
  const std::optional<bench::LeastResult>* least;
};
std::array<TimedRun, 2> TimedRuns(const ModelReport& r) {
  return {{{"decode", DecodeRate(r), &r.result.step_seconds, &r.result.step_least},
           {"prompt", PromptRate(r), &r.result.prompt_seconds, &r.result.prompt_least}}};
}

// The forms that the least time's steps have.
const char* LeastForm(const bench::LeastTime& least) {
  if (least.absorbed_steps > 0 && least.mha_steps > 0) return "both forms";
  return FormName(least.mha_steps > 0 ? Form::kMha : Form::kAbsorbed);
}

void AddLeast(const TimedRun& run, Json* json) {
  const std::optional<bench::LeastResult>& least = *run.least;
  const auto add = [&](const char* what, const Json& value) {
    (*json)[fmt::format("{}_{}", run.name, what)] = least ? value : Json(nullptr);
  };
  const bench::LeastResult l = least.value_or(bench::LeastResult{});
  (*json)[fmt::format("{}_seconds", run.name)] = run.seconds->median;
  add("least_seconds", l.time.seconds);
  add("ratio_to_least", run.seconds->median / l.time.seconds);
  add("least_absorbed_steps", l.time.absorbed_steps);
  add("least_mha_steps", l.time.mha_steps);
  add("peak_gflops", l.rates.weights / 1e9);
  add("attention_peak_gflops", l.rates.attention / 1e9);
  add("router_peak_gflops", l.rates.router / 1e9);
  add("read_gbytes_per_second", l.rates.read / 1e9);
}

std::string LeastText(const TimedRun& run) {
  if (!*run.least) return "";
  const auto& [time, rates] = **run.least;
  return fmt::format("  {}, {:.3f} times the least: {} ({}) at {:.1f} GFLOP/s{} and {:.1f} GB/s\n",
                     HumanSeconds(run.seconds->median), run.seconds->median / time.seconds, HumanSeconds(time.seconds),
                     LeastForm(time), rates.weights / 1e9,
                     rates.attention == rates.weights ? "" : fmt::format(" (attention {:.1f})", rates.attention / 1e9),
                     rates.read / 1e9);
}

// By name, as far as there are any.
std::vector<std::pair<const char*, const bench::ProfileResult*>> ProfilesOf(const ModelReport& r) {
  std::vector<std::pair<const char*, const bench::ProfileResult*>> profiles;
  if (r.result.step_profile) profiles.emplace_back("decode", &*r.result.step_profile);
  if (r.result.prompt_profile) profiles.emplace_back("prompt", &*r.result.prompt_profile);
  return profiles;
}

Json ModelFields(const ModelReport& r) {
  Json json;
  AddMachine(r.machine, &json);
  json["model"] = r.model;
  json["weights"] = r.weights;
  json["weight_bytes"] = r.weight_bytes;
  json["kv_dtype"] = r.kv_dtype;
  json["mode"] = r.mode;
  json["form_table"] = r.form_table;
  json["context"] = r.options.context;
  json["tokens"] = r.options.tokens;
  json["sequences"] = r.options.sequences;
  json["prompt"] = r.options.prompt;
  json["prompt_after"] = r.options.prompt_after;
  json["prompt_form"] = FormName(r.result.prompt_form);
  return json;
}

}  // namespace

std::string BenchMachineText(const BenchMachine& m) {
  return fmt::format("processor: {}\nthreads: {}{}\n", m.processor.empty() ? "unknown" : m.processor, m.threads,
                     m.kernels.empty() ? "" : ", kernels: " + m.kernels);
}

std::string BenchLimitsText(const bench::MachineLimits& limits) {
  std::string text = "limits of all threads together, median [10th to 90th percentile]:\n";
  for (const bench::PeakRate& p : limits.peaks) {
    const bench::PeakInfo& info = bench::PeakInfoOf(p.kind);
    text += fmt::format("  {:<5} {:<24}{:>9.1f} [{:.1f} to {:.1f}] {}\n", info.type, info.instruction,
                        p.operations.median / 1e9, p.operations.p10 / 1e9, p.operations.p90 / 1e9, UnitOf(info));
  }
  for (const bench::ReadRate& r : limits.reads) {
    text += fmt::format("  read  {:<24}{:>9.1f} [{:.1f} to {:.1f}] GB/s\n", HumanBytes(r.size), r.bytes.median / 1e9,
                        r.bytes.p10 / 1e9, r.bytes.p90 / 1e9);
  }
  return text;
}

std::string BenchTableHead() {
  return fmt::format("{:<33}{:>5} {:>7} {:>7} {:>8}{:>8}{:>11} {:<23}{:>9}{:>8}{:>9}{:>8}  {:<8}{:>5}\n", "case", "M",
                     "N", "K", "experts", "weights", "us", "[p10 to p90]", "GFLOP/s", "GB/s", "peak", "read", "bound",
                     "share");
}

std::string BenchTableLine(const bench::CaseResult& c) {
  const auto or_dash = [](std::int64_t value) { return value > 0 ? fmt::format("{}", value) : std::string("-"); };
  const bench::Judgement j = c.judgement();
  const bench::Summary& s = c.measured.seconds;
  return fmt::format(
      "{:<33}{:>5} {:>7} {:>7} {:>8}{:>8}{:>11.1f} {:<23}{:>9.1f}{:>8.1f}{:>9.1f}{:>8.1f}  {:<8}{:>5.2f}\n", c.name,
      c.rows, or_dash(c.n), or_dash(c.k), or_dash(c.experts), c.format, s.median * 1e6,
      fmt::format("[{:.1f} to {:.1f}]", s.p10 * 1e6, s.p90 * 1e6), c.operations() / s.median / 1e9,
      c.work.bytes / s.median / 1e9, c.measured.rates.peak / 1e9, c.measured.rates.read / 1e9,
      bench::BoundName(j.bound), j.share);
}

std::string BenchCaseText(const bench::CaseResult& c) {
  std::string text = BenchTableLine(c);
  if (c.profile) text += ProfileText(*c.profile, c.measured.rates);
  if (!c.kernels.empty()) text += KernelsText(c);
  return text;
}

std::string BenchJson(const BenchReport& report) {
  Json json;
  json["bench"] = report.what;
  AddMachine(report.machine, &json);
  json["peaks"] = Json::array();
  for (const bench::PeakRate& p : report.limits.peaks) json["peaks"].push_back(PeakJson(p));
  json["reads"] = Json::array();
  for (const bench::ReadRate& r : report.limits.reads) json["reads"].push_back(ReadJson(r));
  if (report.what != "peak") json["cases"] = Json::array();
  for (const bench::CaseResult& c : report.cases) {
    json["cases"].push_back(CaseJson(c));
    for (const bench::KernelAlone& k : c.kernels) json["cases"].back()["kernels"][k.name] = SummaryJson(k.seconds);
    if (c.profile) json["cases"].back()["profile"] = ProfileJson(*c.profile, c.measured.rates);
  }
  return Dump(json);
}

std::string BenchCsv(const BenchReport& report) {
  if (report.what == "peak") return LimitsCsv(report);
  std::vector<Json> lines;
  for (const bench::CaseResult& c : report.cases) {
    Json line;
    AddMachine(report.machine, &line);
    line.update(CaseJson(c));
    if (c.profile) {
      AddPhaseLines(*c.profile, c.measured.rates, std::move(line), &lines);
    } else {
      lines.push_back(std::move(line));
    }
  }
  return Csv(lines);
}

std::string ModelText(const ModelReport& r) {
  const auto [decode, prompt] = TimedRuns(r);
  const bench::ModelBenchOptions& o = r.options;
  std::string text = BenchMachineText(r.machine);
  text += fmt::format("{}: weights {} ({}), cache rows {}, mode {}\n", r.model, r.weights, HumanBytes(r.weight_bytes),
                      r.kv_dtype, r.mode);
  text += fmt::format("decode at context {:<6}{:>10.2f} tokens/s [{:.2f} to {:.2f}], {} tokens{}\n", o.context,
                      decode.rate.median, decode.rate.p10, decode.rate.p90, decode.rate.count,
                      o.sequences > 1 ? fmt::format(" of each of {} sequences", o.sequences) : "");
  text += LeastText(decode);
  text += fmt::format("prompt of {:<6}        {:>10.2f} tokens/s [{:.2f} to {:.2f}], {} prompts, {}{}\n", o.prompt,
                      prompt.rate.median, prompt.rate.p10, prompt.rate.p90, prompt.rate.count,
                      FormName(r.result.prompt_form),
                      o.prompt_after > 0 ? fmt::format(", after {} cached", o.prompt_after) : "");
  text += LeastText(prompt);
  for (const auto& [what, profile] : ProfilesOf(r)) {
    text += fmt::format("\n{}, {} steps, {}:\n", what, profile->counts.steps, HumanSeconds(profile->seconds));
    text += ProfileText(*profile, {});
  }
  return text;
}

std::string ModelJson(const ModelReport& r) {
  Json json = {{"bench", "model"}};
  json.update(ModelFields(r));
  json["decode_tokens_per_second"] = SummaryJson(DecodeRate(r));
  json["prompt_tokens_per_second"] = SummaryJson(PromptRate(r));
  for (const TimedRun& run : TimedRuns(r)) AddLeast(run, &json);
  for (const auto& [what, profile] : ProfilesOf(r)) {
    Json& part = json[fmt::format("{}_profile", what)] = {{"steps", profile->counts.steps}};
    part.update(ProfileJson(*profile, {}));
  }
  return Dump(json);
}

std::string ModelCsv(const ModelReport& r) {
  Json line = ModelFields(r);
  for (const TimedRun& run : TimedRuns(r)) {
    line[fmt::format("{}_tokens_per_second", run.name)] = run.rate.median;
    line[fmt::format("{}_p10", run.name)] = run.rate.p10;
    line[fmt::format("{}_p90", run.name)] = run.rate.p90;
    line[fmt::format("{}_repeats", run.name)] = run.rate.count;
    AddLeast(run, &line);
  }
  std::vector<Json> lines;
  for (const auto& [what, profile] : ProfilesOf(r)) {
    line["profile_of"] = what;
    line["steps"] = profile->counts.steps;
    AddPhaseLines(*profile, {}, line, &lines);
  }
  return Csv(lines.empty() ? std::vector<Json>{line} : lines);
}

}  // namespace mla::cli
