#include "bench/random_fill.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/check.h"

namespace mla::bench {
namespace {

// x with Phi(x) = p, for p in (0, 1/2], by halving an interval.
double NormalQuantile(double p) {
  double low = -10;
  double high = 0;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::numbers::sqrt2) / 2 < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

std::array<double, kLevels> MakeNormalQuantiles() {
  std::array<double, kLevels> z{};
  double squares = 0;
  for (std::size_t i = 0; i < kLevels / 2; ++i) {
    z[i] = NormalQuantile((static_cast<double>(i) + 0.5) / kLevels);
    squares += 2 * z[i] * z[i];
  }
  const double scale = std::sqrt(kLevels / squares);
  for (std::size_t i = 0; i < kLevels / 2; ++i) {
    z[i] *= scale;
    z[kLevels - 1 - i] = -z[i];
  }
  return z;
}

// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// Four elements share the 64 bits of one counter.
std::array<std::size_t, 4> Levels(std::uint64_t key, std::uint64_t counter) {
  const std::uint64_t bits = RandomBits(key, counter);
  return {bits & 4095, (bits >> 16) & 4095, (bits >> 32) & 4095, (bits >> 48) & 4095};
}

template <class T>
void FillAs(const std::array<std::uint32_t, kLevels>& values, std::uint64_t key, std::int64_t first,
            std::span<std::byte> out) {
  auto counter = static_cast<std::uint64_t>(first / 4);
  const std::size_t elements = out.size() / sizeof(T);
  for (std::size_t i = 0; i < elements; i += 4, ++counter) {
    const auto levels = Levels(key, counter);
    std::array<T, 4> four{};
    for (std::size_t lane = 0; lane < 4; ++lane) four[lane] = static_cast<T>(values[levels[lane]]);
    std::memcpy(out.data() + i * sizeof(T), four.data(), std::min<std::size_t>(4, elements - i) * sizeof(T));
  }
}

std::uint32_t BitsOf(DType dtype, float value) {
  switch (dtype) {
    case DType::kF32: return std::bit_cast<std::uint32_t>(value);
    case DType::kBF16: return Bf16FromFloat(value);
    case DType::kF8E4M3: return E4M3FromFloat(value);
    default: break;
  }
  MLA_CHECK(false && "a type that weights are not drawn in");
  return 0;
}

}  // namespace

const std::array<double, kLevels>& NormalQuantiles() {
  static const std::array<double, kLevels> kQuantiles = MakeNormalQuantiles();
  return kQuantiles;
}

double LargestNormal() { return NormalQuantiles().back(); }

std::uint8_t E4M3FromFloat(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80U);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7fU;
  if (magnitude >= 448) return sign | 0x7eU;
  // In units of the last place: 2^-9 below the smallest normal number, 2^-6, else 2^(exponent - 3). nearbyint rounds
  // ties to even, and a sum that reaches the next power of two is that code in turn.
  const int exponent = magnitude < 0x1p-6F ? -6 : std::ilogb(magnitude);
  const auto units = static_cast<unsigned>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));
  return static_cast<std::uint8_t>(sign | (static_cast<unsigned>(exponent + 6) * 8 + units));
}

std::uint64_t RandomBits(std::uint64_t key, std::uint64_t counter) {
  return Mix(key + (counter + 1) * 0x9e3779b97f4a7c15U);
}

std::uint64_t TensorKey(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return Mix(hash ^ Mix(seed));
}

ValueTable::ValueTable(DType dtype, std::span<const double, kLevels> values) : dtype_(dtype) {
  for (std::size_t i = 0; i < kLevels; ++i) bits_[i] = BitsOf(dtype, static_cast<float>(values[i]));
}

void ValueTable::Fill(std::uint64_t key, std::int64_t first, std::span<std::byte> out) const {
  MLA_CHECK_EQ(first % 4, 0);
  switch (DTypeBytes(dtype_)) {
    case 1: return FillAs<std::uint8_t>(bits_, key, first, out);
    case 2: return FillAs<std::uint16_t>(bits_, key, first, out);
    default: return FillAs<std::uint32_t>(bits_, key, first, out);
  }
}

}  // namespace mla::bench
