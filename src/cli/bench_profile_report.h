// What `--profile` prints of a case.
#ifndef MLA_CLI_BENCH_PROFILE_REPORT_H_
#define MLA_CLI_BENCH_PROFILE_REPORT_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/measure.h"
#include "bench/profile.h"

namespace mla::cli {

// Numbers by name, for JSON and CSV; nothing where one makes no sense.
using Fields = std::vector<std::pair<std::string, std::optional<double>>>;

// Times and rates of a phase, and their shares of the limits, as far as those are known (not 0).
Fields PhaseFields(const bench::ProfileResult& profile, const bench::PhaseResult& phase, const bench::Rates& limits);
// What the run as a whole took, read and computed.
Fields ProfileFields(const bench::ProfileResult& profile);

// A table of phases, and the rest in words; below the case's own line.
std::string ProfileText(const bench::ProfileResult& profile, const bench::Rates& limits);

}  // namespace mla::cli

#endif  // MLA_CLI_BENCH_PROFILE_REPORT_H_
