#include "base/kernel_check.h"

#include <cmath>

#include <fmt/format.h>

namespace mla {

std::string FirstFault(const float* got, const double* want, const double* bound, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    // Equality covers infinities, whose difference is no number.
    if (static_cast<double>(got[i]) == want[i]) continue;
    const double allowed = bound == nullptr ? 0 : bound[i];
    if (std::fabs(static_cast<double>(got[i]) - want[i]) <= allowed) continue;
    return fmt::format("element {} is {:.9g}, expected {:.9g} within {:.2g}", i, got[i], want[i], allowed);
  }
  return "";
}

}  // namespace mla
