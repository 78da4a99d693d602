#include "cli/verify_report.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace mla::cli {
namespace {

nlohmann::ordered_json Number(double x) {
  return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json(nullptr);
}

std::string Line(const verify::Check& c) {
  std::string line = fmt::format("  {:<40} {:<7}", c.name, verify::VerdictName(c.verdict));
  if (c.values == 0 || c.verdict == verify::Verdict::kInfo || (c.verdict == verify::Verdict::kNotRun && c.level != 7)) {
    return line + " " + c.note + "\n";
  }
  if (c.level == 7) {
    if (c.values > 0) line += fmt::format(" {:>9.4f} < {:>9.4f}   {}", c.error, c.bound, c.where);
    return line + (c.note.empty() ? "" : (c.values > 0 ? "; " : " ") + c.note) + "\n";
  }
  if (c.bound == 0) {
    return line + (c.error == 0 && c.ratio == 0 ? fmt::format(" the same, of {}\n", c.values)
                                                : fmt::format(" differs by {:.2e} at {}\n", c.error, c.where));
  }
  return line + fmt::format(" {:>9.2e} < {:>9.2e}   {:<8.3g} {}\n", c.error, c.bound, c.ratio, c.where);
}

}  // namespace

std::string VerifyJson(const ComputeOptions& options, const VerifyReport& r) {
  nlohmann::ordered_json j;
  j["summary"] = r.interrupted ? "INTERRUPTED" : verify::SummaryName(r.proofs.Summary());
  j["levels"] = nlohmann::ordered_json::array();
  for (int level = 1; level <= verify::kLevels; ++level) {
    j["levels"].push_back({{"level", level},
                           {"name", verify::LevelName(level)},
                           {"verdict", verify::VerdictName(r.proofs.OfLevel(level))}});
  }
  j["checks"] = nlohmann::ordered_json::array();
  for (const verify::Check& c : r.proofs.checks) {
    j["checks"].push_back({{"level", c.level},
                           {"name", c.name},
                           {"verdict", verify::VerdictName(c.verdict)},
                           {"error", Number(c.error)},
                           {"bound", Number(c.bound)},
                           {"ratio", Number(c.ratio)},
                           {"where", c.where},
                           {"values", c.values},
                           {"note", c.note}});
  }
  j["sampled"] = r.proofs.sampled;
  j["weights"] = options.weights;
  j["kv_dtype"] = options.kv_dtype;
  j["threads"] = r.threads;
  j["timings"] = {{"load_seconds", r.load_seconds}, {"seconds", r.seconds}};
  return j.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string VerifyText(const ComputeOptions& options, const VerifyReport& r) {
  std::string text = fmt::format(
      "{}: {} weights, {} cache; largest error as a part of its bound, each relative to the "
      "numbers beside it\n",
      options.model, options.weights, options.kv_dtype);
  for (int level = 1; level <= verify::kLevels; ++level) {
    text += fmt::format("\n{} {}: {}\n", level, verify::LevelName(level), verify::VerdictName(r.proofs.OfLevel(level)));
    for (const verify::Check& c : r.proofs.checks) {
      if (c.level == level) text += Line(c);
    }
  }
  for (const std::string& sampled : r.proofs.sampled) text += fmt::format("\nsampled, {}", sampled);
  text += fmt::format("\n{} in {:.1f} s, {} thread{}\n",
                      r.interrupted ? "INTERRUPTED" : verify::SummaryName(r.proofs.Summary()), r.seconds, r.threads,
                      r.threads == 1 ? "" : "s");
  return text;
}

}  // namespace mla::cli
