// mla, for the tests of this folder.
#ifndef MLA_TESTS_CLI_PROGRAM_H_
#define MLA_TESTS_CLI_PROGRAM_H_

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "testing/process.h"

namespace mla::testing {

// No table that mla tune has left on this machine may choose a form here.
inline const int kHermetic = setenv("XDG_CACHE_HOME", MLA_BINARY_DIR "/no-cache", 1);

inline ProcessResult Mla(std::vector<std::string> arguments, const ProcessOptions& options = {}) {
  arguments.insert(arguments.begin(), MLA_PROGRAM);
  return RunProcess(arguments, options);
}

// A failure as it should be: exit 1, nothing on stdout, and one line on stderr that holds every one of `words`.
inline void ExpectOneLine(const ProcessResult& result, const std::vector<std::string>& words) {
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_EQ(result.err.rfind("mla: error: ", 0), 0U) << result.err;
  for (const std::string& word : words)
    EXPECT_NE(result.err.find(word), std::string::npos) << word << " in " << result.err;
}

}  // namespace mla::testing

#endif  // MLA_TESTS_CLI_PROGRAM_H_
