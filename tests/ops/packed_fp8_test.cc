// Fp8 in blocks, packed: every code, every border of a block, parts and transposes of a matrix.
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "base/buffer.h"
#include "ops/fp8_matrix.h"
#include "ops/ops_testing.h"
#include "ops/packed.h"

namespace mla {
namespace {

using ops::MatrixSource;
using ops::PackedFormat;
using ops::PackedMatrix;
using testing::Fp8Matrix;
using testing::kFormats;
using testing::ValueOf;

float At(const PackedMatrix& m, std::int64_t n, std::int64_t k) {
  const std::int64_t panel = n / 16;
  const std::int64_t lane = n % 16;
  if (m.format == PackedFormat::kF32) return reinterpret_cast<const float*>(m.data)[(panel * m.k + k) * 16 + lane];
  const auto* data = reinterpret_cast<const Bf16Bits*>(m.data);
  return FloatFromBf16(data[((panel * ((m.k + 1) / 2) + k / 2) * 16 + lane) * 2 + k % 2]);
}

struct Room {
  Buffer buffer;
  PackedMatrix matrix;
  Room(PackedFormat format, std::int64_t n, std::int64_t k)
      : buffer(std::move(Buffer::Allocate(ops::PackedBytes(format, n, k), "packed")).value()),
        matrix{format, n, k, buffer.data()} {}
};

void PackAll(const MatrixSource& source, const PackedMatrix& out) {
  ops::PackPanels(source, 0, out.n, out, 0, ops::Panels(out.n));
}

TEST(PackedFp8, EveryCodeIsItsValueTimesTheScale) {
  std::vector<std::byte> codes;
  for (int code = 0; code < 256; ++code) codes.push_back(static_cast<std::byte>(code));
  // A scale of 24 bits: products round in float, and again in bf16.
  const float scale = 0x1.fffffep-3F;
  const MatrixSource source = MatrixSource::Dense(DType::kF8E4M3, codes.data(), 256,
                                                  {DType::kF32, reinterpret_cast<const std::byte*>(&scale), 128, 256});
  for (const PackedFormat format : kFormats) {
    const Room room(format, 1, 256);
    PackAll(source, room.matrix);
    for (std::int64_t code = 0; code < 256; ++code) {
      const float found = At(room.matrix, 0, code);
      if (code % 128 == 127) {
        EXPECT_TRUE(std::isnan(found)) << code;
        continue;
      }
      const float product = static_cast<float>(ValueOf(static_cast<unsigned>(code))) * scale;
      EXPECT_EQ(found, testing::Stored(format, product)) << code;
      EXPECT_EQ(std::signbit(found), code >= 128) << code;
    }
  }
  std::vector<float> row(256);
  ops::ReadRow(source, 0, 256, row.data());
  EXPECT_EQ(row[8], 0x1p-6F * scale);
  EXPECT_EQ(row[1], 0x1p-9F * scale);
}

// Blocks of many sizes, partial ones at the edges, scales of each type; 300 columns are three tiles of the packing.
TEST(PackedFp8, EveryBlockHasItsScale) {
  for (const DType scale_dtype : {DType::kF32, DType::kBF16, DType::kF8E8M0}) {
    for (const auto& [block_rows, block_columns] :
         {std::pair<std::int64_t, std::int64_t>{128, 128}, {1, 1}, {7, 33}, {16, 300}, {1000, 5}, {3, 1 << 24}}) {
      const Fp8Matrix matrix(37, 300, block_rows, block_columns, scale_dtype);
      for (const PackedFormat format : kFormats) {
        const Room room(format, 37, 300);
        PackAll(matrix.Source(), room.matrix);
        const Room turned(format, 300, 37);
        PackAll(matrix.Source().Transposed(), turned.matrix);
        for (std::int64_t i = 0; i < 37; ++i) {
          for (std::int64_t j = 0; j < 300; ++j) {
            const float expected = matrix.Kept(format, i, j);
            ASSERT_EQ(At(room.matrix, i, j), expected)
                << block_rows << " x " << block_columns << ": " << i << ", " << j;
            ASSERT_EQ(At(turned.matrix, j, i), expected)
                << block_rows << " x " << block_columns << ": " << i << ", " << j;
          }
        }
      }
    }
  }
}

// A head's rows, upright and turned: they begin within a block.
TEST(PackedFp8, APartKeepsTheBlocksOfTheWhole) {
  const Fp8Matrix matrix(70, 45, 16, 20);
  for (const std::int64_t first : {5, 16, 31, 60}) {
    const MatrixSource part = matrix.Source().FromRow(first - 2).FromRow(2);
    const std::int64_t rows = std::min<std::int64_t>(10, 70 - first);
    for (const PackedFormat format : kFormats) {
      const Room upright(format, rows, 45);
      PackAll(part, upright.matrix);
      const Room turned(format, 45, rows);
      PackAll(part.Transposed(), turned.matrix);
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < 45; ++j) {
          ASSERT_EQ(At(upright.matrix, i, j), matrix.Kept(format, first + i, j)) << first << ": " << i << ", " << j;
          ASSERT_EQ(At(turned.matrix, j, i), matrix.Kept(format, first + i, j)) << first << ": " << i << ", " << j;
        }
      }
    }
  }
}

// Two sources that meet within a panel, one of them wider.
TEST(PackedFp8, StacksWithOtherTypes) {
  const Fp8Matrix fp8(21, 40, 16, 16);
  const auto wide = testing::RandomFloats(11 * 40, 72);
  const MatrixSource f32 = {DType::kF32, reinterpret_cast<const std::byte*>(wide.data()), 40, 1};
  for (const PackedFormat format : kFormats) {
    const Room room(format, 32, 40);
    ops::PackPanels(f32, 21, 11, room.matrix, 0, 2);
    ops::PackPanels(fp8.Source(), 0, 21, room.matrix, 0, 2);
    for (std::int64_t j = 0; j < 40; ++j) {
      for (std::int64_t i = 0; i < 21; ++i) ASSERT_EQ(At(room.matrix, i, j), fp8.Kept(format, i, j));
      for (std::int64_t i = 0; i < 11; ++i) {
        ASSERT_EQ(At(room.matrix, 21 + i, j), testing::Stored(format, wide[static_cast<std::size_t>(i * 40 + j)]));
      }
    }
  }
}

TEST(PackedFp8DeathTest, ScalesBelongToFp8Alone) {
  const std::byte data[4] = {};
  EXPECT_DEATH(MatrixSource::Dense(DType::kF8E4M3, data, 1, {}), "scales");
  EXPECT_DEATH(MatrixSource::Dense(DType::kBF16, data, 1, {DType::kF32, data, 1, 1}), "scales");
}

}  // namespace
}  // namespace mla
