#include "verify/report.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace mla::verify {

const char* LevelName(int level) {
  constexpr const char* kNames[] = {"projection", "absorption", "position", "cache", "kernel", "end to end", "reading"};
  return kNames[level - 1];
}

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass: return "pass";
    case Verdict::kFail: return "FAIL";
    case Verdict::kNotRun: return "NOT RUN";
    case Verdict::kInfo: return "info";
  }
  return "?";
}

const char* SummaryName(Verdict summary) {
  return summary == Verdict::kPass ? "PASS" : summary == Verdict::kFail ? "FAIL" : "PARTIAL";
}

void Report::NotRun(int level, std::string name, std::string why) {
  Check check;
  check.level = level;
  check.name = std::move(name);
  check.verdict = Verdict::kNotRun;
  check.note = std::move(why);
  Add(std::move(check));
}

Verdict Report::OfLevel(int level) const {
  bool not_run = false;
  bool passed = false;
  for (const Check& check : checks) {
    if (check.level != level) continue;
    if (check.verdict == Verdict::kFail) return Verdict::kFail;
    not_run |= check.verdict == Verdict::kNotRun;
    passed |= check.verdict == Verdict::kPass;
  }
  return not_run || !passed ? Verdict::kNotRun : Verdict::kPass;
}

Verdict Report::Summary() const {
  Verdict summary = Verdict::kPass;
  for (int level = 1; level <= kLevels; ++level) {
    const Verdict verdict = OfLevel(level);
    if (verdict == Verdict::kFail) return verdict;
    if (verdict == Verdict::kNotRun) summary = verdict;
  }
  return summary;
}

std::string Place::Text() const {
  std::string text(what);
  const auto add = [&](const char* name, std::int64_t value) {
    if (value >= 0) fmt::format_to(std::back_inserter(text), "{}{} {}", text.empty() ? "" : ", ", name, value);
  };
  add("layer", layer);
  add("position", position);
  add("head", head);
  add("channel", channel);
  return text;
}

void Tally::Add(double error, double bound, double size, const Place& place) {
  double ratio = error == 0 ? 0 : error / bound;
  if (!(ratio >= 0)) ratio = std::numeric_limits<double>::infinity();
  const std::lock_guard lock(mutex_);
  ++check_.values;
  if (check_.values > 1 && ratio <= check_.ratio) return;
  check_.ratio = ratio;
  check_.error = size > 0 ? error / size : error;
  check_.bound = size > 0 ? bound / size : bound;
  check_.where = place.Text();
}

Check Tally::Finish(std::string_view why_empty) {
  const std::lock_guard lock(mutex_);
  check_.verdict = check_.values == 0 ? Verdict::kNotRun : check_.ratio <= 1 ? Verdict::kPass : Verdict::kFail;
  if (check_.values == 0) check_.note = why_empty;
  return check_;
}

}  // namespace mla::verify
