// Runs a program as a user would, and sees what it printed and how it ended.
#ifndef MLA_TESTS_TESTING_PROCESS_H_
#define MLA_TESTS_TESTING_PROCESS_H_

#include <functional>
#include <string>
#include <vector>

namespace mla::testing {

struct ProcessResult {
  int exit_code = -1;  // 128 + signal where a signal ended it
  std::string out;
  std::string err;
};

struct ProcessOptions {
  std::string input;        // stdin; a closed pipe after it
  std::string stdout_path;  // "" to collect it
  // Called once with the process id when the first bytes of stdout have come; stdout must be collected.
  std::function<void(int pid)> on_first_output;
};

// Waits for the end; a run of more than two minutes is killed, and its exit code is 137.
ProcessResult RunProcess(const std::vector<std::string>& command, const ProcessOptions& options = {});

}  // namespace mla::testing

#endif  // MLA_TESTS_TESTING_PROCESS_H_
