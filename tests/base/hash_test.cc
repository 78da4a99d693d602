// XXH64 against the values of another implementation (python-xxhash 4.1), whole and in pieces.
#include "base/hash.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace mla {
namespace {

// What the values below are of: byte i is (167 i + 31 floor(i / 256) + 13) mod 256.
std::vector<std::byte> Bytes(std::size_t n) {
  std::vector<std::byte> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>((i * 167 + (i >> 8) * 31 + 13) & 0xff);
  return bytes;
}

// Every branch of the tail: eights, a four, single bytes; none, one and several stripes of 32.
const std::vector<std::pair<std::size_t, std::uint64_t>> kKnown = {
    {0, 0xef46db3751d8e999U},    {1, 0x2078e1ad38ad738bU},    {3, 0x634d95fc01a189cdU},  {4, 0xeed340908a1ac6c6U},
    {7, 0x0da493621d6dc898U},    {8, 0x76f916c7bb523126U},    {11, 0x8beae4d88d350b4bU}, {12, 0xfb52f89a1dc449d2U},
    {16, 0x7bbeff67699312f6U},   {31, 0x65c5feb01da7464dU},   {32, 0x7665c921c9bf2ec7U}, {33, 0xb5a9d9ef259ae821U},
    {63, 0xb0289cd9324034f0U},   {64, 0xfff2525c99bf2005U},   {65, 0x01fbd6d6ac20fbafU}, {100, 0x74e502db362efd4cU},
    {1000, 0xecc74128ca8a7a5aU}, {70000, 0x0c7277d417fe9ebbU}};

TEST(Hash64, HasKnownValues) {
  for (const auto& [size, value] : kKnown) EXPECT_EQ(HashOf(Bytes(size)), value) << size;
  const std::string_view abc = "abc";
  EXPECT_EQ(HashOf(std::as_bytes(std::span(abc))), 0x44bc2cf5ad770999U);
}

TEST(Hash64, PiecesMakeTheWhole) {
  std::mt19937 rng(5);
  for (const auto& [size, value] : kKnown) {
    const std::vector<std::byte> bytes = Bytes(size);
    for (const std::size_t most : {1, 5, 31, 32, 33, 100}) {
      Hash64 hash;
      for (std::span<const std::byte> left = bytes; !left.empty();) {
        const std::size_t piece = std::min<std::size_t>(1 + rng() % most, left.size());
        hash.Add(left.first(piece));
        hash.Add({});
        left = left.subspan(piece);
      }
      EXPECT_EQ(hash.Value(), value) << size << " in pieces of up to " << most;
    }
  }
}

// Asking for the value in between changes nothing.
TEST(Hash64, GoesOnAfterAValue) {
  const std::vector<std::byte> bytes = Bytes(100);
  Hash64 hash;
  hash.Add(std::span(bytes).first(33));
  EXPECT_EQ(hash.Value(), 0xb5a9d9ef259ae821U);
  hash.Add(std::span(bytes).subspan(33));
  EXPECT_EQ(hash.Value(), 0x74e502db362efd4cU);
}

}  // namespace
}  // namespace mla
