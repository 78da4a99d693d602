// What `mla bench` prints: a table, one JSON object, or CSV, all of the same numbers.
#ifndef MLA_CLI_BENCH_REPORT_H_
#define MLA_CLI_BENCH_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/case_result.h"
#include "bench/limits.h"
#include "bench/model_bench.h"

namespace mla::cli {

// Who measured, and on what.
struct BenchMachine {
  std::string processor;
  std::string kernels;  // "" where none ran
  int threads = 1;
};

// gemm, moe and peak: limits, then cases.
struct BenchReport {
  std::string what;  // the subcommand
  BenchMachine machine;
  bench::MachineLimits limits;
  std::vector<bench::CaseResult> cases;
};

// The table in pieces, so that each line can be shown once it is measured. Rates are medians; times have their 10th and
// 90th percentile in brackets.
std::string BenchMachineText(const BenchMachine& machine);
std::string BenchLimitsText(const bench::MachineLimits& limits);
std::string BenchTableHead();
std::string BenchTableLine(const bench::CaseResult& result);
// The line, and the case's profile below it where there is one.
std::string BenchCaseText(const bench::CaseResult& result);

// One object with a newline.
std::string BenchJson(const BenchReport& report);
// A line of names, then one a case (of peak: one a limit; with profiles: one a phase), with the machine in each. RFC
// 4180, but for plain newlines.
std::string BenchCsv(const BenchReport& report);

struct ModelReport {
  BenchMachine machine;
  std::string model;
  std::string weights;   // how they are kept: "bf16"
  std::string kv_dtype;  // cache rows
  std::string mode;
  std::string form_table;
  std::int64_t weight_bytes = 0;
  bench::ModelBenchOptions options;
  bench::ModelBenchResult result;
};
std::string ModelText(const ModelReport& report);
std::string ModelJson(const ModelReport& report);
// One line; with profiles, one a phase.
std::string ModelCsv(const ModelReport& report);

}  // namespace mla::cli

#endif  // MLA_CLI_BENCH_REPORT_H_
