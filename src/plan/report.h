// Everything that a plan says of one model, computed: the program shows it as text, JSON, CSV and a page.
#ifndef MLA_PLAN_REPORT_H_
#define MLA_PLAN_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mla/result.h"
#include "plan/memory.h"
#include "plan/ranks.h"
#include "plan/shape.h"
#include "plan/work.h"

namespace mla::plan {

struct ReportOptions {
  MemoryOptions memory;
  std::int64_t context = 0;           // 0: the model's
  std::int64_t users = 1;             // sequences at a time, of all groups of ranks
  std::optional<std::int64_t> limit;  // bytes of memory that a rank has
  std::int64_t rows = 1;              // T of the step that is priced
  std::optional<std::int64_t> keys;   // S; the context, if not said
  std::optional<Rates> rates;         // of one rank
};

// A step in one form.
struct FormReport {
  Form form = Form::kAbsorbed;
  std::vector<PartWork> parts;
  std::int64_t multiply_adds = 0;
  std::int64_t bytes = 0;
  double seconds = 0;  // 0 without rates; collectives not counted
};

// Where expanding begins to need less than absorbing.
struct Crossing {
  std::int64_t keys = 0;                // cached before the step
  double closed = 0;                    // a S / (S + a), S = keys
  std::optional<std::int64_t> causal;   // multiply-adds, exactly
  std::optional<std::int64_t> seconds;  // at the given rates
};

// Seconds of serving; zeros without rates.
struct Times {
  std::int64_t context = 0;
  std::int64_t users = 1;        // of one group of ranks
  double prompt_mha = 0;         // time to the first token of a prompt of `context` tokens, alone
  double prompt_absorbed = 0;    // the same, absorbed; equal where there is one form
  double token = 0;              // of a decoding step
  double tokens_per_second = 0;  // of all groups
  double first_token() const { return prompt_mha < prompt_absorbed ? prompt_mha : prompt_absorbed; }
};

// One point of the curves over contexts.
struct Point {
  std::int64_t context = 0;
  std::int64_t sequence_bytes = 0;
  std::optional<std::int64_t> users;  // that fit
  std::optional<double> token_seconds;
};

struct BatchPoint {
  std::int64_t users = 0;
  double token_seconds = 0;
  double tokens_per_second = 0;
};

struct Report {
  Shape shape;
  Shape rank;
  ReportOptions options;            // with every default filled in
  std::int64_t elements = 0;        // a token, all layers, of the whole model
  std::int64_t token_bytes = 0;     // of a rank, without whole pages
  std::int64_t sequence_bytes = 0;  // of a rank, at the context
  MemoryUse memory;
  std::optional<std::int64_t> longest_context;  // for `users`
  std::optional<std::int64_t> most_users;       // at `context`
  std::optional<std::int64_t> ranks_needed;     // for both
  std::vector<Placement> placements;
  std::vector<Collective> collectives;  // of the step
  Step step;                            // of one group of ranks
  std::vector<FormReport> forms;        // absorbed first; one where there is no other
  std::optional<double> crossing_constant;
  std::vector<Crossing> crossings;
  std::optional<Times> times;
  std::vector<Point> contexts;
  std::vector<BatchPoint> batches;
};

// Fails, in one line, where the options don't fit the model or a number leaves its range. Deterministic.
Result<Report> MakeReport(const Subject& subject, const ReportOptions& options);

// Seconds of a decoding step of `users` sequences, collectives counted; of a prompt in chunks, in one form.
Result<double> TokenSeconds(const Planner& planner, const Shape& whole, std::int64_t context, std::int64_t users,
                            const Rates& rates);
Result<double> PromptSeconds(const Planner& planner, const Shape& whole, std::int64_t prompt, Form form,
                             const Rates& rates);

}  // namespace mla::plan

#endif  // MLA_PLAN_REPORT_H_
