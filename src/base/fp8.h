// What of a block-scaled fp8 matrix can be used: its values come from outside, and no dtype or shape shows a bad one.
#ifndef MLA_BASE_FP8_H_
#define MLA_BASE_FP8_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "mla/dtypes.h"

namespace mla {

// Scale i, widened exactly. Precondition: its dtype is one that BlockScales allows.
float ScaleAt(DType dtype, const std::byte* scales, std::int64_t i);

// The largest scale that is taken: times 448, the largest E4M3, it is still finite in bf16.
inline constexpr double kMaxBlockScale = 0x1.fep127 / 448;

// Scales are finite, not negative and at most kMaxBlockScale; powers of two where `power_of_two`. 0 is an all-zero
// block's largest magnitude over 448, and decodes to it exactly; a negative one, which no encoder writes, would turn
// signs. The first fault as "expected ..., found ... at [i, j]"; empty where there is none. `grid_columns` scales make
// a row.
std::optional<std::string> ScaleFault(DType dtype, const std::byte* scales, std::int64_t count,
                                      std::int64_t grid_columns, bool power_of_two);

// Whether a NaN (0x7f, 0xff) is among `count` E4M3 codes.
bool HasNanE4M3(const std::byte* codes, std::int64_t count);

}  // namespace mla

#endif  // MLA_BASE_FP8_H_
