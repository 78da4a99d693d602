// What `mla perplexity` measures and prints.
#ifndef MLA_CLI_PERPLEXITY_REPORT_H_
#define MLA_CLI_PERPLEXITY_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/compute_options.h"
#include "mla/engine.h"

namespace mla::cli {

// Tokens [begin, end) of the text are run together; those from `first_scored` on count, each with the window's tokens
// before it as its context.
struct Window {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t first_scored = 0;
};

// Windows of at most `window` tokens that begin at multiples of `stride` (from 1 to `window`) and cover `tokens`. A
// token is scored in the first window that holds it, unless it is that window's first: it has no context there.
// Windows with nothing to score are left out.
std::vector<Window> CutWindows(std::int64_t tokens, std::int64_t window, std::int64_t stride);

// Mean and variance of token losses, in one pass (Welford, Technometrics 4, 1962).
class LossStatistics {
 public:
  void Add(double nats);
  std::int64_t count() const { return count_; }
  double sum() const { return mean_ * static_cast<double>(count_); }
  double mean() const { return mean_; }
  // Of the mean: sd / sqrt(n), losses taken as independent; NaN below two.
  double standard_error() const;

 private:
  std::int64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;  // sum of (x - mean)^2
};

struct PerplexityReport {
  std::int64_t tokens = 0;  // of the text, BOS too
  bool bos = false;
  std::int64_t window = 0;
  std::int64_t stride = 0;
  std::int64_t windows = 0;      // run
  std::int64_t rows = 0;         // tokens run: those of overlapping windows count each time
  std::int64_t bytes = 0;        // of text that the scored tokens stand for
  std::int64_t mha_windows = 0;  // by the form that computed them
  LossStatistics losses;
  double load_seconds = 0;
  double seconds = 0;
  int threads = 1;
  std::string kernels;
  std::int64_t kernels_rejected = 0;  // instruction sets that failed their self-test
  std::string form_table;
  MemoryPlan memory;
  bool interrupted = false;
};

// As one JSON object with a newline. Numbers that are none (a standard error of one token) are null.
std::string PerplexityJson(const ComputeOptions& options, const PerplexityReport& report);
// As a few lines for a person.
std::string PerplexityText(const ComputeOptions& options, const PerplexityReport& report);

}  // namespace mla::cli

#endif  // MLA_CLI_PERPLEXITY_REPORT_H_
