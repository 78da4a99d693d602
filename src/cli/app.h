// The program `mla`: subcommands, exit codes.
#ifndef MLA_CLI_APP_H_
#define MLA_CLI_APP_H_

#include <cstddef>

namespace mla::cli {

// What the process exits with.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kInterrupted = 130;

// Errors are cut after so many characters: a checkpoint's faults are listed by name.
inline constexpr std::size_t kLongestError = 20000;

// Parses the command line, runs the subcommand, and returns the exit code. Never throws.
int Main(int argc, char** argv);

}  // namespace mla::cli

#endif  // MLA_CLI_APP_H_
