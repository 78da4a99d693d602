// What `--profile` prints of a case.
#ifndef MLA_CLI_BENCH_PROFILE_REPORT_H_
#define MLA_CLI_BENCH_PROFILE_REPORT_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/case_result.h"
#include "bench/profile.h"

namespace mla::cli {

// Numbers by name, for JSON and CSV; nothing where one makes no sense.
using Fields = std::vector<std::pair<std::string, std::optional<double>>>;

// Times, rates and shares of a phase of that case. Precondition: it has a profile.
Fields PhaseFields(const bench::CaseResult& result, const bench::PhaseResult& phase);
// What the run as a whole read and computed.
Fields ProfileFields(const bench::CaseResult& result);

// A table of phases, and the rest in words; below the case's own line.
std::string ProfileText(const bench::CaseResult& result);

}  // namespace mla::cli

#endif  // MLA_CLI_BENCH_PROFILE_REPORT_H_
