// `mla bench model`: a model's speed through the engine, beside the least time that the machine's limits allow.
#ifndef MLA_CLI_BENCH_MODEL_H_
#define MLA_CLI_BENCH_MODEL_H_

#include "cli/bench_options.h"
#include "cli/command.h"
#include "mla/result.h"

namespace mla::cli {

Result<int> RunModel(const BenchOptions& options, const Log& log);

}  // namespace mla::cli

#endif  // MLA_CLI_BENCH_MODEL_H_
