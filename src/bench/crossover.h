// Where the forms cross, measured; what `auto` and the rules of other engines choose there, and what that costs.
#ifndef MLA_BENCH_CROSSOVER_H_
#define MLA_BENCH_CROSSOVER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/form_bench.h"
#include "mla/attention.h"

namespace mla::bench {

// T new rows of S keys in all.
struct CrossoverPoint {
  std::int64_t rows = 0;
  std::int64_t keys = 0;
  FormPairs pairs;

  bool measured() const { return !pairs.mha.empty(); }
  double Seconds(Form form) const { return pairs.Seconds(form); }
  Form Better() const { return Seconds(Form::kMha) < Seconds(Form::kAbsorbed) ? Form::kMha : Form::kAbsorbed; }
  // How much longer than the better form this one takes: 0.02 for 2 %.
  double Regret(Form form) const;
};

// Powers of `base` (2 or 4): T from 1 to max_rows, S from T to max_keys; by keys, then by rows.
std::vector<CrossoverPoint> CrossoverGrid(std::int64_t max_rows, std::int64_t max_keys, std::int64_t base);

struct CrossoverEffort {
  double seconds = 240;     // go on for so long,
  std::int64_t most = 200;  // or until every point has so many pairs
};

// Fills in the points, in passes over all of them. What the first pass has no time for stays unmeasured. `step` is told
// of each point in it.
void MeasureCrossover(FormBench* bench, const CrossoverEffort& effort, const std::function<void(std::size_t)>& step,
                      std::vector<CrossoverPoint>* points);

// A way to choose the form.
struct FormRule {
  std::string name;   // "auto"
  std::string about;  // a few words
  std::function<Form(std::int64_t rows, std::int64_t keys)> choose;
};

// auto by the table, auto by the shipped one where that is another, one form always, and the constants of other engines
// as they stood in 2025. Both let a single row after others decode absorbed.
//   SGLang: MHA where no prefix is cached, or 8,192 tokens of it or more.
//   vLLM: absorbed up to a number of new rows (reorder_batch_threshold): 128 with FlashMLA, 512 with FlashAttention's
//   MLA kernel; MHA beyond.
std::vector<FormRule> FormRules(const FormTable& table, const MlaDims& dims);

struct RuleResult {
  double mean = 0;   // geometric, of time over the better form's time, minus 1
  double worst = 0;  // the largest regret
  std::int64_t worst_rows = 0;
  std::int64_t worst_keys = 0;
  std::int64_t other_form = 0;  // points where the rule takes the slower form
  std::int64_t points = 0;
};
// Over the measured points.
RuleResult Judge(const FormRule& rule, std::span<const CrossoverPoint> points);

// Rows where the forms cross at so many keys. Nothing where they don't.
struct Crossings {
  std::int64_t keys = 0;
  std::optional<double> closed;  // a S / (S + a), a = R (N + V) / (2 R - N - V)
  std::optional<double>
      causal;  // the fewest rows from which MHA needs fewer multiply-adds, each row's own keys counted
  std::optional<double> measured;  // between two points, where the logarithm of the ratio of times passes 0
  std::optional<double> table;     // by the table
};
// One for each number of keys on the grid.
std::vector<Crossings> CrossingsOf(const FormTable& table, const MlaDims& dims, std::span<const CrossoverPoint> points);

}  // namespace mla::bench

#endif  // MLA_BENCH_CROSSOVER_H_
