// Fp8 that is kept: its layout against the definition in ops/packed.h, and products, which are to the bit those of the
// same matrix kept in bf16.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "base/buffer.h"
#include "ops/f8_decode.h"
#include "ops/fp8_matrix.h"
#include "ops/gemm.h"
#include "ops/ops_testing.h"
#include "ops/packed.h"

namespace mla {
namespace {

using ops::PackedFormat;
using ops::PackedMatrix;
using testing::Fp8Matrix;

// Rows of `parts`, stacked, in a format.
testing::Packed PackStacked(PackedFormat format, const std::vector<const Fp8Matrix*>& parts) {
  testing::Packed packed;
  PackedMatrix m{format, 0, parts[0]->columns, nullptr, 0};
  if (format == PackedFormat::kF8) m.scale_block = parts[0]->block_columns;
  for (const Fp8Matrix* part : parts) m.n += part->rows;
  packed.buffer = std::move(Buffer::Allocate(m.bytes(), "packed")).value();
  m.data = packed.buffer.data();
  std::int64_t first = 0;
  for (const Fp8Matrix* part : parts) {
    ops::PackPanels(part->Source(), first, part->rows, m, 0, ops::Panels(m.n));
    first += part->rows;
  }
  packed.matrix = m;
  return packed;
}

TEST(PackedF8, BytesAreThoseOfTheLayout) {
  const auto bytes = [](std::int64_t n, std::int64_t k, std::int64_t block) {
    return ops::PackedBytes(PackedFormat::kF8, n, k, block);
  };
  EXPECT_EQ(bytes(16, 128, 128), 64 + 128 * 16);
  EXPECT_EQ(bytes(17, 129, 128), 2 * (2 * 64 + 65 * 32));  // a block of one column, which is a pair
  EXPECT_EQ(bytes(16, 100, 128), 64 + 50 * 32);
  EXPECT_EQ(bytes(1, 48, 16), 3 * (64 + 8 * 32));
  EXPECT_EQ(bytes(0, 128, 128), 0);
  // DeepSeek-V3's gate and up: 3 % over the codes.
  EXPECT_EQ(bytes(4096, 7168, 128), 4096 * 7168 + 256 * 56 * 64);
}

TEST(PackedF8, EveryCodeAndScaleLandsInItsLaneAndPaddingStaysZero) {
  for (const DType scale_dtype : {DType::kF32, DType::kBF16, DType::kF8E8M0}) {
    for (const auto& [block_rows, block] :
         {std::pair<std::int64_t, std::int64_t>{128, 128}, {7, 34}, {1, 16}, {5, 300}, {16, 1 << 24}}) {
      for (const std::int64_t k : {1, 34, 257}) {
        const Fp8Matrix w(37, k, block_rows, block, scale_dtype);
        const testing::Packed packed = PackStacked(PackedFormat::kF8, {&w});
        std::vector<std::byte> left(packed.matrix.data, packed.matrix.data + packed.matrix.bytes());
        const std::byte* data = left.data();
        const auto take = [&](std::int64_t at, void* to, std::size_t width) {
          std::memcpy(to, data + at, width);
          std::fill_n(left.begin() + at, width, std::byte{0});
        };
        for (std::int64_t i = 0; i < 37; ++i) {
          for (std::int64_t j = 0; j < k; ++j) {
            const std::int64_t panel = i / 16 * packed.matrix.panel_bytes() + j / block * (64 + block * 16);
            std::byte code{};
            take(panel + 64 + (j % block / 2 * 16 + i % 16) * 2 + j % 2, &code, 1);
            ASSERT_EQ(code, w.codes[1 + static_cast<std::size_t>(i * k + j)]) << i << ", " << j;
            if (j % block != 0) continue;
            float scale = 0;
            take(panel + i % 16 * 4, &scale, 4);
            ASSERT_EQ(scale, w.scale_values[static_cast<std::size_t>(i / block_rows * w.GridColumns() + j / block)]);
          }
        }
        EXPECT_TRUE(std::all_of(left.begin(), left.end(), [](std::byte b) { return b == std::byte{0}; }));
      }
    }
  }
}

TEST(PackedF8DeathTest, OtherSourcesAreOurBug) {
  const Fp8Matrix w(16, 64, 16, 32);
  testing::Packed packed = PackStacked(PackedFormat::kF8, {&w});
  EXPECT_DEATH(ops::PackPanels(w.Source().Transposed(), 0, 16, packed.matrix, 0, 1), "column_stride");
  packed.matrix.scale_block = 16;
  EXPECT_DEATH(ops::PackPanels(w.Source(), 0, 16, packed.matrix, 0, 1), "32 vs 16");
  packed.matrix.scale_block = 33;
  EXPECT_DEATH(ops::PackPanels(w.Source(), 0, 16, packed.matrix, 0, 1), "CanKeepF8");
}

using Decode = void (*)(const void*, std::int64_t, std::int64_t, std::int64_t, std::uint16_t*, std::int64_t);

Decode DecodeOf(Isa isa) {
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
  if (isa == Isa::kAvx2) return ops::DecodeF8Avx2;
  if (isa != Isa::kPortable) return ops::DecodeF8Avx512;
#endif
  return ops::DecodeF8Portable;
}

class DecodeF8Test : public ::testing::TestWithParam<Isa> {};

// Every code by scales of all magnitudes: rounding, denormal products, zeros; lanes of one scale and of several.
TEST_P(DecodeF8Test, IsWhatBf16Holds) {
  std::mt19937 random(5);
  std::vector<float> scales = {0.0F, 1.0F, 0x1p-117F, 0x1.fffffep-118F, 0x1p-140F, 0x1p-149F, 0x1.23p119F, 0x1p-127F};
  while (scales.size() < 300) {
    const float fraction = 1 + static_cast<float>(random() % (1U << 23)) * 0x1p-23F;
    scales.push_back(std::ldexp(fraction, static_cast<int>(random() % 238) - 120));
  }
  constexpr std::int64_t kBlock = 32;  // 16 pairs of 32 codes: all of them, twice
  for (std::size_t at = 0; at < scales.size(); ++at) {
    for (const bool same : {true, false}) {
      alignas(64) std::byte panel[64 + kBlock * 16];
      alignas(64) Bf16Bits found[kBlock * 16];
      for (std::size_t lane = 0; lane < 16; ++lane) {
        std::memcpy(panel + lane * 4, &scales[same ? at : (at + lane / 5) % scales.size()], 4);
      }
      for (std::size_t i = 0; i < kBlock * 16; ++i) {
        const std::size_t code = (i * 7 + at) % 256;
        panel[64 + i] = static_cast<std::byte>(code % 128 == 127 ? 0 : code);
      }
      DecodeOf(GetParam())(panel, kBlock, 0, kBlock / 2, found, 64);
      for (std::size_t i = 0; i < kBlock * 16; ++i) {
        float scale = 0;
        std::memcpy(&scale, panel + i / 2 % 16 * 4, 4);
        const auto code = std::to_integer<unsigned>(panel[64 + i]);
        const Bf16Bits expected = Bf16FromFloat(static_cast<float>(testing::ValueOf(code)) * scale);
        ASSERT_EQ(found[i], code == 0x80 ? 0x8000 : expected) << code << " times " << scale;
      }
    }
  }
}

// Pieces of a panel that begin and end anywhere, and write nothing past their end.
TEST_P(DecodeF8Test, PiecesAreTheWhole) {
  for (const auto& [block_rows, block] : {std::pair<std::int64_t, std::int64_t>{16, 32}, {3, 18}, {16, 1 << 20}}) {
    constexpr std::int64_t kK = 101;
    const Fp8Matrix w(16, kK, block_rows, block);
    const testing::Packed f8 = PackStacked(PackedFormat::kF8, {&w});
    const testing::Packed bf16 = PackStacked(PackedFormat::kBF16, {&w});
    constexpr std::int64_t kPairs = (kK + 1) / 2;
    for (std::int64_t first = 0; first < kPairs; ++first) {
      for (std::int64_t pairs = 0; first + pairs <= kPairs; ++pairs) {
        alignas(64) std::uint16_t found[(kPairs + 1) * 32];
        std::memset(found, 0xff, sizeof found);
        DecodeOf(GetParam())(f8.matrix.data, block, first, pairs, found, 64);
        ASSERT_EQ(std::memcmp(found, bf16.matrix.data + first * 64, static_cast<std::size_t>(pairs * 64)), 0)
            << first << " + " << pairs;
        ASSERT_EQ(found[pairs * 32], 0xffff);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, DecodeF8Test, ::testing::ValuesIn(testing::MachineIsas()),
                         [](const auto& test) { return IsaName(test.param); });

class GemmF8Test : public ::testing::TestWithParam<Isa> {};

// Sets some scales to 0, and some so small that products are denormal.
void SetOddScales(Fp8Matrix* w) {
  for (std::size_t i = 0; i < w->scale_values.size(); i += 3) {
    w->scale_values[i] = i % 2 == 0 ? 0.0F : 0x1.8p-121F;
    std::memcpy(w->scales.data() + 1 + i * 4, &w->scale_values[i], 4);
  }
}

void ExpectSameProducts(Isa isa, const std::vector<const Fp8Matrix*>& parts, std::span<const std::int64_t> rows,
                        std::span<const int> threads) {
  const auto& kernels = ops::KernelsFor(isa);
  const testing::Packed f8 = PackStacked(PackedFormat::kF8, parts);
  const testing::Packed bf16 = PackStacked(PackedFormat::kBF16, parts);
  const std::int64_t n = f8.matrix.n;
  const std::int64_t k = f8.matrix.k;
  const std::int64_t most = *std::max_element(rows.begin(), rows.end());
  const std::vector<float> x = testing::RandomFloats(most * k, 3);
  for (const int workers : threads) {
    const auto pool = MakeThreadPool(workers);
    for (const std::int64_t m : rows) {
      // One more column than is written.
      std::vector<float> found(static_cast<std::size_t>(m * (n + 1)), testing::kQuietNan);
      std::vector<float> expected = found;
      testing::Products products(*pool, kernels);
      products({.x = x.data(), .ldx = k, .y = found.data(), .ldy = n + 1, .m = m, .w = f8.matrix});
      products({.x = x.data(), .ldx = k, .y = expected.data(), .ldy = n + 1, .m = m, .w = bf16.matrix});
      ASSERT_TRUE(testing::SameBits(found.data(), expected.data(), m * (n + 1)))
          << IsaName(isa) << " n " << n << " k " << k << " m " << m << " threads " << workers;
      ASSERT_FALSE(std::isnan(found[0]));
    }
  }
}

TEST_P(GemmF8Test, HasTheBitsOfBf16ForEveryShape) {
  struct Shape {
    std::int64_t n, k, block_rows, block;
  };
  // k: none of a block, odd, whole blocks, several of the kernels' own pieces.
  for (const Shape& s :
       {Shape{1, 1, 128, 128}, Shape{16, 128, 128, 128}, Shape{150, 129, 128, 128}, Shape{149, 513, 128, 128},
        Shape{40, 1100, 7, 34}, Shape{257, 300, 16, 16}, Shape{130, 2304, 128, 128}}) {
    Fp8Matrix w(s.n, s.k, s.block_rows, s.block);
    for (const bool odd : {false, true}) {
      if (odd) SetOddScales(&w);
      const std::int64_t rows[] = {1, 2, 3, 6, 17, 33};
      const int threads[] = {1, 3};
      ExpectSameProducts(GetParam(), {&w}, rows, threads);
    }
  }
}

TEST_P(GemmF8Test, HasTheBitsOfBf16ForManyRowsAndThreads) {
  const Fp8Matrix w(290, 700, 128, 128);
  const std::int64_t rows[] = {1, 64, 1000};
  const int threads[] = {1, 2, 3, 8};
  ExpectSameProducts(GetParam(), {&w}, rows, threads);
}

// [q_a; kv_a]: the border falls within a panel, whose lanes then have several scales.
TEST_P(GemmF8Test, HasTheBitsOfBf16WhereSourcesAreStacked) {
  const Fp8Matrix q_a(53, 290, 20, 64);
  const Fp8Matrix kv_a(70, 290, 20, 64);
  const std::int64_t rows[] = {1, 5, 40};
  const int threads[] = {2};
  ExpectSameProducts(GetParam(), {&q_a, &kv_a}, rows, threads);
}

// Gathered and scattered rows, added to what is there, scaled.
TEST_P(GemmF8Test, TakesWhatOtherFormatsTake) {
  constexpr std::int64_t kN = 70;
  constexpr std::int64_t kK = 1030;
  constexpr std::int64_t kM = 29;
  const Fp8Matrix w(kN, kK, 128, 128);
  const std::vector<float> x = testing::RandomFloats(kM * kK, 7);
  std::vector<std::int32_t> x_rows;
  std::vector<std::int32_t> y_rows;
  for (std::int32_t r = 0; r < kM; ++r) {
    x_rows.push_back(r * 5 % kM);
    y_rows.push_back((r * 8 + 1) % kM);
  }
  const auto pool = MakeThreadPool(2);
  std::vector<std::vector<float>> results;
  for (const PackedFormat format : {PackedFormat::kF8, PackedFormat::kBF16}) {
    const testing::Packed packed = PackStacked(format, {&w});
    results.push_back(testing::RandomFloats(kM * kN, 8));
    testing::Products(*pool, ops::KernelsFor(GetParam()))({.x = x.data(),
                                                           .ldx = kK,
                                                           .y = results.back().data(),
                                                           .ldy = kN,
                                                           .m = kM,
                                                           .w = packed.matrix,
                                                           .add = true,
                                                           .scale = 0.75F,
                                                           .x_rows = x_rows.data(),
                                                           .y_rows = y_rows.data()});
  }
  EXPECT_TRUE(testing::SameBits(results[0].data(), results[1].data(), kM * kN));
}

// No inputs: zeros are written, as by other formats.
TEST_P(GemmF8Test, WithoutInputsIsZero) {
  std::vector<float> y(20, testing::kQuietNan);
  const auto pool = MakeThreadPool(1);
  std::byte none{};
  testing::Products(*pool, ops::KernelsFor(GetParam()))(
      {.x = y.data(), .ldx = 0, .y = y.data(), .ldy = 20, .m = 1, .w = {PackedFormat::kF8, 20, 0, &none, 128}});
  EXPECT_EQ(y, std::vector<float>(20, 0.0F));
}

INSTANTIATE_TEST_SUITE_P(Isa, GemmF8Test, ::testing::ValuesIn(testing::MachineIsas()),
                         [](const auto& test) { return IsaName(test.param); });

}  // namespace
}  // namespace mla
