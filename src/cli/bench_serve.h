// The subcommand `serve` of `mla bench`.
#ifndef MLA_CLI_BENCH_SERVE_H_
#define MLA_CLI_BENCH_SERVE_H_

#include "cli/command.h"

namespace mla::cli {

Action AddBenchServe(CLI::App& bench, const Log& log);

}  // namespace mla::cli

#endif  // MLA_CLI_BENCH_SERVE_H_
