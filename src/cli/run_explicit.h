// `mla run --mode explicit`: the float64 reference in place of the engine.
#ifndef MLA_CLI_RUN_EXPLICIT_H_
#define MLA_CLI_RUN_EXPLICIT_H_

#include <cstdint>
#include <functional>

#include "cli/compute_options.h"
#include "cli/output.h"
#include "cli/streamer.h"
#include "mla/engine.h"
#include "mla/result.h"
#include "model/model.h"

namespace mla::cli {

struct ExplicitRun {
  const ComputeOptions& options;
  const model::Opened& opened;
  const Request& request;
  std::int64_t context;
};

// As the engine's run, one token after another; fills the report. True where `stop` ended it. Fails as LoadReference
// does, and where stdout can't be written.
Result<bool> RunExplicit(const ExplicitRun& run, const std::function<bool()>& stop, Streamer& streamer,
                         RunReport* report);

}  // namespace mla::cli

#endif  // MLA_CLI_RUN_EXPLICIT_H_
