// What a subcommand's file offers to the program.
#ifndef MLA_CLI_COMMAND_H_
#define MLA_CLI_COMMAND_H_

#include <functional>
#include <memory>

#include "mla/result.h"

namespace CLI {
class App;
}
namespace spdlog {
class logger;
}

namespace mla::cli {

// Warnings and notes, to stderr.
using Log = std::shared_ptr<spdlog::logger>;

// Adds a subcommand with its flags, and returns what runs it once flags are parsed: an exit code, or the error that the
// program then shows.
using Action = std::function<Result<int>()>;
Action AddRun(CLI::App& app, const Log& log);
Action AddChat(CLI::App& app, const Log& log);
Action AddInspect(CLI::App& app);
Action AddPerplexity(CLI::App& app, const Log& log);
Action AddVerify(CLI::App& app, const Log& log);
Action AddSynth(CLI::App& app, const Log& log);
Action AddPermuteRope(CLI::App& app, const Log& log);
Action AddKernels(CLI::App& app);
Action AddPlan(CLI::App& app);
Action AddTune(CLI::App& app, const Log& log);
Action AddBench(CLI::App& app, const Log& log);
Action AddServe(CLI::App& app, const Log& log);

}  // namespace mla::cli

#endif  // MLA_CLI_COMMAND_H_
