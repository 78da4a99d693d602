// Any bytes as scales of fp8 blocks, after one that picks their type: those that pass are numbers that keep every code
// finite.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/fp8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  constexpr mla::DType kTypes[] = {mla::DType::kF32, mla::DType::kBF16, mla::DType::kF8E8M0};
  const mla::DType dtype = kTypes[data[0] % 3];
  const bool power_of_two = (data[0] & 0x80) != 0;
  // A copy of the exact size: a read past its end is seen.
  const std::vector<std::uint8_t> bytes(data + 1, data + size);
  const auto* scales = reinterpret_cast<const std::byte*>(bytes.data());
  const auto count = static_cast<std::int64_t>(bytes.size() / mla::DTypeBytes(dtype));
  (void)mla::HasNanE4M3(scales, static_cast<std::int64_t>(bytes.size()));
  if (mla::ScaleFault(dtype, scales, count, 3, power_of_two)) return 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float scale = mla::ScaleAt(dtype, scales, i);
    MLA_CHECK(scale >= 0 && scale <= mla::kMaxBlockScale);
    int exponent = 0;
    MLA_CHECK(!power_of_two || std::frexp(scale, &exponent) == 0.5F);
  }
  return 0;
}
