// The flags of `mla plan`.
#ifndef MLA_CLI_PLAN_OPTIONS_H_
#define MLA_CLI_PLAN_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "mla/result.h"
#include "plan/report.h"

namespace CLI {
class App;
}

namespace mla::cli {

struct PlanOptions {
  std::vector<std::string> models;
  std::vector<std::string> as;  // attentions to compare
  std::int64_t context = 0;
  std::int64_t users = 1;
  std::string memory;
  std::string reserve;
  std::string kv_dtype = "bf16";
  std::string weights = "auto";
  std::string weight_bytes;
  std::int64_t page_tokens = 64;
  std::int64_t draft_tokens = 0;
  std::int64_t prefill_chunk = 512;
  std::string keep_expanded;
  int threads = 0;
  std::int64_t tp = 1;
  std::int64_t dp = 1;
  std::int64_t dcp = 1;
  bool spread_experts = false;
  bool shard_latent = false;
  std::int64_t rows = 1;
  std::int64_t keys = 0;
  std::string flops;
  std::vector<std::string> rates;  // "absorbed=1.2T"
  std::string read_rate;
  std::string tune_table;
  std::string link;
  bool json = false;
  bool csv = false;
  std::string html;
};

void AddPlanFlags(CLI::App& command, PlanOptions* options);

// The options as the plan's types. Fails where rates are given by halves. Precondition: the flags' own checks passed.
Result<plan::ReportOptions> ReportOptionsOf(const PlanOptions& options);

// "40G", "1.5T", "2e12" -> a number; letters are powers of 1,000.
Result<double> ParseRate(const std::string& text);

}  // namespace mla::cli

#endif  // MLA_CLI_PLAN_OPTIONS_H_
