// mla bench crossover: both forms over a grid of rows and keys, and who chooses how well.
#ifndef MLA_CLI_BENCH_CROSSOVER_H_
#define MLA_CLI_BENCH_CROSSOVER_H_

#include <string>
#include <utility>
#include <vector>

#include "bench/crossover.h"
#include "cli/bench_options.h"
#include "cli/bench_report.h"
#include "cli/command.h"
#include "mla/result.h"

namespace mla::cli {

Result<int> RunCrossover(const BenchOptions& options, const Log& log);

struct CrossoverReport {
  BenchMachine machine;
  std::string shape;
  MlaDims dims;
  std::string kv_dtype;
  std::string weights;
  std::int64_t layers = 1;
  FormTable table;
  std::vector<bench::CrossoverPoint> points;
  std::vector<bench::FormRule> rules;
};

std::string CrossoverText(const CrossoverReport& report);
std::string CrossoverJson(const CrossoverReport& report);
// A line a point.
std::string CrossoverCsv(const CrossoverReport& report);
// The crossings as a chart, a file of its own. Empty where there are none.
std::string CrossoverSvg(const CrossoverReport& report);

}  // namespace mla::cli

#endif  // MLA_CLI_BENCH_CROSSOVER_H_
