// Random numbers for weights: fast, and a pure function of (seed, tensor, index), so that neither threads nor the size
// of the pieces changes a byte.
#ifndef MLA_BENCH_RANDOM_FILL_H_
#define MLA_BENCH_RANDOM_FILL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "mla/dtypes.h"

namespace mla::bench {

// A random number picks one of so many values: 12 of its bits.
inline constexpr std::size_t kLevels = 4096;

// The normal distribution's quantiles at (i + 1/2) / kLevels, scaled to variance 1: ascending and symmetric.
const std::array<double, kLevels>& NormalQuantiles();
// The largest of them.
double LargestNormal();

// float -> E4M3 (OCP 8-bit floating point, revision 1.0): round to nearest, ties to even; magnitudes past 448 become
// 448; a NaN stays one.
std::uint8_t E4M3FromFloat(float value);

// The generator SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) by counter: 64 bits.
std::uint64_t RandomBits(std::uint64_t key, std::uint64_t counter);

// The key of a tensor's numbers.
std::uint64_t TensorKey(std::uint64_t seed, std::string_view name);

// The values that a tensor's elements are drawn from, each as likely as another, in the bytes that are stored.
class ValueTable {
 public:
  // `dtype` is kF32, kBF16 or kF8E4M3.
  ValueTable(DType dtype, std::span<const double, kLevels> values);

  // Writes elements [first, first + out.size() / DTypeBytes(dtype)); `first` is a multiple of 4.
  void Fill(std::uint64_t key, std::int64_t first, std::span<std::byte> out) const;

 private:
  DType dtype_;
  std::array<std::uint32_t, kLevels> bits_{};
};

}  // namespace mla::bench

#endif  // MLA_BENCH_RANDOM_FILL_H_
