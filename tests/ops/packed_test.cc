// The packed layout against its definition in ops/packed.h, from every kind of source.
#include "ops/packed.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "ops/ops_testing.h"

namespace mla {
namespace {

using ops::MatrixSource;
using ops::PackedFormat;
using ops::PackedMatrix;
using testing::kFormats;

// Bytes of stored elements that make bits of every kind: the element at i is a hash of it, NaNs left out.
std::vector<std::byte> Elements(DType dtype, std::int64_t count) {
  const std::size_t width = DTypeBytes(dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * width);
  std::mt19937 random(31);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t bits = static_cast<std::uint32_t>(random());
    if (dtype == DType::kF16) bits &= 0xfbffU;              // exponent below 31: no NaN, no infinity
    if (dtype == DType::kBF16) bits &= 0xff7fU;             // exponent below 255
    if (dtype == DType::kF32) bits = (bits & 0xbfffffffU);  // magnitudes below 2: all bits of a fraction matter
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * width, &bits, width);
  }
  return bytes;
}

float Widened(DType dtype, const std::byte* p) {
  std::uint16_t half = 0;
  float value = 0;
  if (dtype == DType::kF32) {
    std::memcpy(&value, p, 4);
    return value;
  }
  std::memcpy(&half, p, 2);
  return dtype == DType::kBF16 ? FloatFromBf16(half) : FloatFromF16(half);
}

// Memory for a packed [n, k], a multiple of 64 bytes and aligned, filled with a mark.
struct Room {
  Buffer buffer;
  PackedMatrix matrix;
  Room(PackedFormat format, std::int64_t n, std::int64_t k)
      : buffer(std::move(Buffer::Allocate(ops::PackedBytes(format, n, k), "packed")).value()),
        matrix{format, n, k, buffer.data()} {}
};

// Element (n, k) of a packed matrix, by the layout's definition.
float At(const PackedMatrix& m, std::int64_t n, std::int64_t k) {
  const std::int64_t panel = n / 16;
  const std::int64_t lane = n % 16;
  if (m.format == PackedFormat::kF32) return reinterpret_cast<const float*>(m.data)[(panel * m.k + k) * 16 + lane];
  const auto* data = reinterpret_cast<const Bf16Bits*>(m.data);
  return FloatFromBf16(data[((panel * ((m.k + 1) / 2) + k / 2) * 16 + lane) * 2 + k % 2]);
}

TEST(Packed, BytesAreThoseOfTheLayout) {
  EXPECT_EQ(ops::PackedBytes(PackedFormat::kF32, 1, 1), 16 * 4);
  EXPECT_EQ(ops::PackedBytes(PackedFormat::kF32, 17, 3), 2 * 3 * 16 * 4);
  EXPECT_EQ(ops::PackedBytes(PackedFormat::kBF16, 17, 3), 2 * 2 * 16 * 2 * 2);
  EXPECT_EQ(ops::PackedBytes(PackedFormat::kBF16, 16, 4), 1 * 2 * 16 * 2 * 2);
  EXPECT_EQ(ops::PackedBytes(PackedFormat::kF32, 0, 5), 0);
}

TEST(Packed, EverySourceLandsInItsLaneAndPaddingStaysZero) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const PackedFormat format : kFormats) {
      for (const std::int64_t n : {1, 15, 16, 17, 40}) {
        for (const std::int64_t k : {1, 2, 7, 32, 128, 257}) {  // 257: two tiles of columns, and one more
          const auto bytes = Elements(dtype, n * k);
          const Room room(format, n, k);
          ops::PackPanels({dtype, bytes.data(), k, 1}, 0, n, room.matrix, 0, ops::Panels(n));
          for (std::int64_t i = 0; i < n; ++i) {
            for (std::int64_t j = 0; j < k; ++j) {
              const float value =
                  Widened(dtype, bytes.data() + static_cast<std::size_t>(i * k + j) * DTypeBytes(dtype));
              ASSERT_EQ(At(room.matrix, i, j), testing::Stored(format, value))
                  << DTypeName(dtype) << " " << i << ", " << j;
            }
          }
          // What is no element is zero: as many non-zero bytes in all as in the elements alone.
          std::int64_t inside = 0;
          const std::size_t width = format == PackedFormat::kF32 ? 4 : 2;
          for (std::int64_t i = 0; i < n; ++i) {
            for (std::int64_t j = 0; j < k; ++j) {
              const float value = At(room.matrix, i, j);
              std::byte raw[4];
              std::memcpy(raw, &value, 4);
              inside += std::count_if(raw + 4 - width, raw + 4, [](std::byte b) { return b != std::byte{0}; });
            }
          }
          const std::int64_t all = std::count_if(room.matrix.data, room.matrix.data + room.matrix.bytes(),
                                                 [](std::byte b) { return b != std::byte{0}; });
          ASSERT_EQ(all, inside) << testing::FormatName(format) << " n " << n << " k " << k;
        }
      }
    }
  }
}

TEST(Packed, UnalignedAndTransposedSources) {
  constexpr std::int64_t kN = 21;
  constexpr std::int64_t kK = 11;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::size_t width = DTypeBytes(dtype);
    const auto bytes = Elements(dtype, kN * kK);
    std::vector<std::byte> moved(1);  // the elements begin at an odd address
    for (const std::byte b : bytes) moved.push_back(b);
    std::vector<std::byte> turned(bytes.size());  // [k, n]
    for (std::int64_t i = 0; i < kN; ++i) {
      for (std::int64_t j = 0; j < kK; ++j) {
        std::memcpy(turned.data() + static_cast<std::size_t>(j * kN + i) * width,
                    bytes.data() + static_cast<std::size_t>(i * kK + j) * width, width);
      }
    }
    for (const PackedFormat format : kFormats) {
      const Room plain(format, kN, kK);
      const Room unaligned(format, kN, kK);
      const Room transposed(format, kN, kK);
      ops::PackPanels({dtype, bytes.data(), kK, 1}, 0, kN, plain.matrix, 0, 2);
      ops::PackPanels({dtype, moved.data() + 1, kK, 1}, 0, kN, unaligned.matrix, 0, 2);
      ops::PackPanels({dtype, turned.data(), 1, kN}, 0, kN, transposed.matrix, 0, 2);
      const auto size = static_cast<std::size_t>(plain.matrix.bytes());
      EXPECT_EQ(std::memcmp(plain.matrix.data, unaligned.matrix.data, size), 0) << DTypeName(dtype);
      EXPECT_EQ(std::memcmp(plain.matrix.data, transposed.matrix.data, size), 0) << DTypeName(dtype);
    }
    std::vector<float> row(kK);
    ops::ReadRow({dtype, turned.data(), 1, kN}, 20, kK, row.data());
    EXPECT_EQ(row[7], Widened(dtype, bytes.data() + (20 * kK + 7) * width));
  }
}

// [q_a; kv_a]: the border falls within a panel, so two sources share one.
TEST(Packed, TwoStackedSourcesAreOneMatrix) {
  constexpr std::int64_t kFirst = 21;
  constexpr std::int64_t kSecond = 30;
  constexpr std::int64_t kK = 9;
  const auto w = testing::RandomFloats((kFirst + kSecond) * kK, 41);
  const auto* data = reinterpret_cast<const std::byte*>(w.data());
  for (const PackedFormat format : kFormats) {
    const Room whole(format, kFirst + kSecond, kK);
    const Room stacked(format, kFirst + kSecond, kK);
    const std::int64_t panels = ops::Panels(kFirst + kSecond);
    ops::PackPanels({DType::kF32, data, kK, 1}, 0, kFirst + kSecond, whole.matrix, 0, panels);
    ops::PackPanels({DType::kF32, data + kFirst * kK * 4, kK, 1}, kFirst, kSecond, stacked.matrix, 0, panels);
    ops::PackPanels({DType::kF32, data, kK, 1}, 0, kFirst, stacked.matrix, 0, panels);
    EXPECT_EQ(std::memcmp(whole.matrix.data, stacked.matrix.data, static_cast<std::size_t>(whole.matrix.bytes())), 0);
  }
}

TEST(Packed, PanelsPackedInParallelEqualSerial) {
  constexpr std::int64_t kN = 333;
  constexpr std::int64_t kK = 50;
  const auto w = testing::RandomFloats(kN * kK, 42);
  const MatrixSource source = {DType::kF32, reinterpret_cast<const std::byte*>(w.data()), kK, 1};
  const auto pool = MakeThreadPool(3);
  for (const PackedFormat format : kFormats) {
    const Room serial(format, kN, kK);
    const Room parallel(format, kN, kK);
    ops::PackPanels(source, 0, kN, serial.matrix, 0, ops::Panels(kN));
    ParallelFor(*pool, ops::Panels(kN),
                [&](std::int64_t panel, int) { ops::PackPanels(source, 0, kN, parallel.matrix, panel, panel + 1); });
    EXPECT_EQ(std::memcmp(serial.matrix.data, parallel.matrix.data, static_cast<std::size_t>(serial.matrix.bytes())),
              0);
  }
}

TEST(Packed, TouchesItsPanelsAlone) {
  const auto w = testing::RandomFloats(64 * 4, 43);
  const Room room(PackedFormat::kF32, 64, 4);
  ops::PackPanels({DType::kF32, reinterpret_cast<const std::byte*>(w.data()), 4, 1}, 0, 64, room.matrix, 1, 3);
  for (std::int64_t n = 0; n < 64; ++n) EXPECT_EQ(At(room.matrix, n, 1) != 0, n >= 16 && n < 48) << n;
}

TEST(PackedDeathTest, RowsPastTheMatrixAreOurBug) {
  const auto w = testing::RandomFloats(20, 44);
  const Room room(PackedFormat::kF32, 4, 4);
  EXPECT_DEATH(
      ops::PackPanels({DType::kF32, reinterpret_cast<const std::byte*>(w.data()), 4, 1}, 1, 4, room.matrix, 0, 1),
      "5 vs 4");
}

}  // namespace
}  // namespace mla
