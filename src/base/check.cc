#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace mla::internal {

void CheckFailed(const char* file, int line, const char* condition, const std::string& detail) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s%s\n", file, line, condition, detail.empty() ? "" : ": ",
               detail.c_str());
  std::abort();
}

}  // namespace mla::internal
