// What `mla bench serve` prints.
#ifndef MLA_CLI_SERVE_BENCH_REPORT_H_
#define MLA_CLI_SERVE_BENCH_REPORT_H_

#include <cstdint>
#include <string>

#include "bench/serve_bench.h"
#include "cli/bench_report.h"
#include "mla/engine.h"

namespace mla::cli {

struct ServeBenchReport {
  BenchMachine machine;
  std::string model;
  std::string weights;  // how they are kept
  std::string trace;    // "": drawn
  bench::LoadOptions drawn;
  EngineOptions engine;  // as the engine resolved them
  MemoryPlan memory;
  std::int64_t resident_begin = 0;  // bytes of the process in memory before the first request,
  std::int64_t resident_end = 0;    // and after the last
  std::int64_t cache_bytes_per_token = 0;
  std::int64_t pages = 0;
  bench::ServeBenchOptions options;
  bench::ServeBenchResult result;
};

std::string ServeBenchText(const ServeBenchReport& report);
// One object with a newline.
std::string ServeBenchJson(const ServeBenchReport& report);
std::string ServeBenchHtml(const ServeBenchReport& report);

}  // namespace mla::cli

#endif  // MLA_CLI_SERVE_BENCH_REPORT_H_
