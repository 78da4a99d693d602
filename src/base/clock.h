// How long things take.
#ifndef MLA_BASE_CLOCK_H_
#define MLA_BASE_CLOCK_H_

#include <chrono>

namespace mla {

using Clock = std::chrono::steady_clock;

// Seconds from then to now.
inline double Since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace mla

#endif  // MLA_BASE_CLOCK_H_
