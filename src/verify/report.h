// What the proofs found: checks with their largest error and its bound, by level.
#ifndef MLA_VERIFY_REPORT_H_
#define MLA_VERIFY_REPORT_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace mla::verify {

inline constexpr int kLevels = 7;
// "projection", "absorption", "position", "cache", "kernel", "end to end", "reading" for 1 to 7.
const char* LevelName(int level);

enum class Verdict : std::uint8_t { kPass, kFail, kNotRun, kInfo };
// "pass", "FAIL", "NOT RUN", "info".
const char* VerdictName(Verdict verdict);

struct Check {
  int level = 0;
  std::string name;
  Verdict verdict = Verdict::kPass;
  // Where error / bound is largest: both as parts of the root mean square of the numbers beside it (a row, or a head's
  // part of one). 0 / 0 where bits are compared and agree.
  double error = 0;
  double bound = 0;
  double ratio = 0;         // error / bound; infinite where NaN was found, or bits differ
  std::string where;        // "layer 3, position 17, head 5, channel 9"
  std::int64_t values = 0;  // numbers compared
  std::string note;         // what was found, of kInfo and kNotRun
};

struct Report {
  std::vector<Check> checks;
  std::vector<std::string> sampled;  // what was looked at, where not everything was

  void Add(Check check) { checks.push_back(std::move(check)); }
  void NotRun(int level, std::string name, std::string why);
  // kFail where a check of the level failed, kNotRun where one was not run or there is none, else kPass.
  Verdict OfLevel(int level) const;
  // The same over all levels: kNotRun is PARTIAL.
  Verdict Summary() const;
};

// "PASS", "FAIL", "PARTIAL".
const char* SummaryName(Verdict summary);

// Where a number stands; negative parts are left out.
struct Place {
  std::int64_t layer = -1;
  std::int64_t position = -1;
  std::int64_t head = -1;
  std::int64_t channel = -1;
  std::string_view what = {};  // put before the rest
  std::string Text() const;
};

// Gathers one check. Thread-safe.
class Tally {
 public:
  Tally(int level, std::string name) { check_.level = level, check_.name = std::move(name); }

  // A number off by `error` where `bound` is allowed, both absolute; `size` is what they are told relative to. NaN
  // never passes.
  void Add(double error, double bound, double size, const Place& place);
  bool empty() const { return check_.values == 0; }
  // Sets the verdict; kNotRun, with that note, where nothing was compared.
  Check Finish(std::string_view why_empty = "nothing to compare");

 private:
  std::mutex mutex_;
  Check check_;
};

}  // namespace mla::verify

#endif  // MLA_VERIFY_REPORT_H_
