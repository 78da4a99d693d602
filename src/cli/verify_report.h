// A report of the proofs, for people and for programs.
#ifndef MLA_CLI_VERIFY_REPORT_H_
#define MLA_CLI_VERIFY_REPORT_H_

#include <string>

#include "cli/compute_options.h"
#include "verify/report.h"

namespace mla::cli {

struct VerifyReport {
  verify::Report proofs;
  bool interrupted = false;
  int threads = 0;
  double load_seconds = 0;
  double seconds = 0;
};

// One JSON object and a newline. Numbers that are none are null.
std::string VerifyJson(const ComputeOptions& options, const VerifyReport& report);

// A table: a line for each check, the verdict of each level, what was sampled, the summary.
std::string VerifyText(const ComputeOptions& options, const VerifyReport& report);

}  // namespace mla::cli

#endif  // MLA_CLI_VERIFY_REPORT_H_
