// Layouts, storage and rows.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "mla/cache.h"

namespace mla {
namespace {

TEST(CacheLayout, PublishedModels) {
  const CacheLayout v3 = MakeLatentLayout(512, 64, 61, DType::kBF16);
  EXPECT_EQ(v3.row_bytes, 1152);
  EXPECT_EQ(v3.bytes_per_token(), 70272);
  EXPECT_EQ(v3.page_tokens, 64);
  EXPECT_EQ(v3.page_bytes(), 64 * 1152);
  EXPECT_EQ(v3.StorageBytes(10), std::int64_t{61} * 10 * 64 * 1152);
  ASSERT_EQ(v3.segments.size(), 2U);
  EXPECT_STREQ(v3.segments[0].name, "latent");
  EXPECT_EQ(v3.segments[0].elements, 512);
  EXPECT_EQ(v3.segments[0].offset, 0);
  EXPECT_STREQ(v3.segments[1].name, "rope");
  EXPECT_EQ(v3.segments[1].elements, 64);
  EXPECT_EQ(v3.segments[1].offset, 1024);
  EXPECT_EQ(MakeLatentLayout(512, 64, 61, DType::kF32).row_bytes, 2304);
  // The bundled model: 64 + 16 elements.
  EXPECT_EQ(MakeLatentLayout(64, 16, 4, DType::kBF16).row_bytes, 160);
}

TEST(CacheLayout, RowsArePaddedToTheirAlignment) {
  EXPECT_EQ(MakeLatentLayout(1, 0, 1, DType::kBF16).row_bytes, 32);
  EXPECT_EQ(MakeLatentLayout(16, 0, 1, DType::kBF16).row_bytes, 32);
  EXPECT_EQ(MakeLatentLayout(17, 0, 1, DType::kBF16).row_bytes, 64);
  EXPECT_EQ(MakeLatentLayout(33, 6, 1, DType::kF32).row_bytes, 160);
}

TEST(CacheLayout, WholePages) {
  const CacheLayout layout = MakeLatentLayout(8, 0, 2, DType::kF32, 100);
  EXPECT_EQ(layout.PagesFor(0), 0);
  EXPECT_EQ(layout.PagesFor(1), 1);
  EXPECT_EQ(layout.PagesFor(100), 1);
  EXPECT_EQ(layout.PagesFor(101), 2);
  EXPECT_EQ(layout.StorageBytes(0), 0);
}

TEST(CacheLayoutDeathTest, Misuse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(MakeLatentLayout(0, 2, 1, DType::kF32), "check failed.*kv_lora_rank");
  EXPECT_DEATH(MakeLatentLayout(8, -2, 1, DType::kF32), "check failed.*qk_rope_head_dim");
  EXPECT_DEATH(MakeLatentLayout(8, 2, 0, DType::kF32), "check failed.*layers");
  EXPECT_DEATH(MakeLatentLayout(8, 2, 1, DType::kF32, 0), "check failed.*page_tokens");
  EXPECT_DEATH(MakeLatentLayout(8, 2, 1, DType::kF16), "check failed.*dtype");
}

TEST(LatentCache, AllocatesWhatTheLayoutPlans) {
  for (const std::int64_t pages : {0, 1, 7}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const CacheLayout layout = MakeLatentLayout(33, 6, 3, dtype, 10);
      const Result<LatentCache> cache = LatentCache::Create(layout, pages);
      ASSERT_TRUE(cache.ok());
      EXPECT_EQ(cache->bytes(), layout.StorageBytes(pages));
      EXPECT_EQ(cache->pages(), pages);
      EXPECT_EQ(cache->layout().row_bytes, layout.row_bytes);
    }
  }
}

TEST(LatentCache, MemoryThatCannotBeHadIsAnError) {
  const CacheLayout layout = MakeLatentLayout(512, 64, 61, DType::kBF16);
  const Result<LatentCache> cache = LatentCache::Create(layout, std::int64_t{1} << 36);
  ASSERT_FALSE(cache.ok());
  EXPECT_NE(cache.error().message.find("latent cache"), std::string::npos) << cache.error().message;
}

// Every slot of every layer holds its own row: what is written is read back, and nothing else moves.
TEST(LatentCache, RowsDontOverlap) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const std::int64_t rope : {0, 6}) {
      const Result<LatentCache> cache = LatentCache::Create(MakeLatentLayout(33, rope, 3, dtype, 5), 4);
      const auto value = [&](std::int64_t layer, std::int64_t slot, std::int64_t i) {
        return static_cast<float>((layer * 20 + slot) % 31 * 4 + i % 4 + 1);  // exact in bf16
      };
      for (std::int64_t layer = 0; layer < 3; ++layer) {
        for (std::int64_t slot = 0; slot < 20; ++slot) {
          std::vector<float> row;
          for (std::int64_t i = 0; i < 33 + rope; ++i) row.push_back(value(layer, slot, i));
          WriteCacheRow(cache->Layer(layer), slot, row.data(), row.data() + 33);
        }
      }
      for (std::int64_t layer = 0; layer < 3; ++layer) {
        for (std::int64_t slot = 0; slot < 20; ++slot) {
          std::vector<float> row(static_cast<std::size_t>(33 + rope));
          ReadCacheRow(cache->Layer(layer), slot, row.data(), row.data() + 33);
          for (std::int64_t i = 0; i < 33 + rope; ++i) {
            ASSERT_EQ(row[static_cast<std::size_t>(i)], value(layer, slot, i)) << layer << " " << slot << " " << i;
          }
        }
      }
      EXPECT_EQ(cache->Layer(2).Row(19) + cache->layout().row_bytes, cache->Layer(0).data + cache->bytes());
    }
  }
}

TEST(LatentCache, PagesAreZeroUntilWritten) {
  const Result<LatentCache> cache = LatentCache::Create(MakeLatentLayout(8, 2, 2, DType::kBF16, 4), 3);
  const CacheLayerView view = cache->Layer(0);
  for (std::int64_t i = 0; i < cache->bytes(); ++i) ASSERT_EQ(view.data[i], std::byte{0});
}

// bf16 rows hold the nearest bf16 (ties to even), NaN stays NaN, infinity infinity; f32 rows hold every bit.
TEST(CacheRow, RoundsToTheStoredType) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> latent = {1.0F, 1.00390625F, 1.01171875F, 1.0039064F, -3.4e38F, nan, inf, 1e-40F};
  const std::vector<float> rope = {-0.0F, -inf};
  Result<LatentCache> half = LatentCache::Create(MakeLatentLayout(8, 2, 1, DType::kBF16), 1);
  WriteCacheRow(half->Layer(0), 5, latent.data(), rope.data());
  std::vector<float> c(8);
  std::vector<float> k(2);
  ReadCacheRow(half->Layer(0), 5, c.data(), k.data());
  // 1 + 2^-8 lies between 1 and 1 + 2^-7: the even one is 1. 1 + 3 2^-8 goes up to 1 + 2^-6. Just above a tie goes up.
  EXPECT_EQ(c[0], 1.0F);
  EXPECT_EQ(c[1], 1.0F);
  EXPECT_EQ(c[2], 1.015625F);
  EXPECT_EQ(c[3], 1.0078125F);
  EXPECT_EQ(c[4], -inf);  // past the largest bf16's half step
  EXPECT_TRUE(std::isnan(c[5]));
  EXPECT_EQ(c[6], inf);
  EXPECT_NEAR(c[7], 1e-40, 0x1p-134);  // subnormal: a step is 2^-133
  EXPECT_TRUE(std::signbit(k[0]));
  EXPECT_EQ(k[1], -inf);

  Result<LatentCache> full = LatentCache::Create(MakeLatentLayout(8, 2, 1, DType::kF32), 1);
  WriteCacheRow(full->Layer(0), 63, latent.data(), rope.data());
  ReadCacheRow(full->Layer(0), 63, c.data(), k.data());
  EXPECT_EQ(std::memcmp(c.data(), latent.data(), 32), 0);
  EXPECT_EQ(std::memcmp(k.data(), rope.data(), 8), 0);
}

TEST(CacheRow, WritingWhatWasReadChangesNothing) {
  std::mt19937 rng(5);
  Result<LatentCache> cache = LatentCache::Create(MakeLatentLayout(40, 8, 1, DType::kBF16, 4), 1);
  std::vector<float> row(48);
  for (float& x : row) x = std::ldexp(static_cast<float>(rng()) * 0x1p-31F - 1.0F, static_cast<int>(rng() % 40) - 20);
  WriteCacheRow(cache->Layer(0), 0, row.data(), row.data() + 40);
  std::vector<float> again(48);
  ReadCacheRow(cache->Layer(0), 0, again.data(), again.data() + 40);
  for (std::size_t i = 0; i < 48; ++i) EXPECT_LE(std::abs(again[i] - row[i]), std::abs(row[i]) * 0x1p-8F);
  WriteCacheRow(cache->Layer(0), 1, again.data(), again.data() + 40);
  const CacheLayerView view = cache->Layer(0);
  EXPECT_EQ(std::memcmp(view.Row(0), view.Row(1), static_cast<std::size_t>(view.row_bytes)), 0);
}

#ifdef MLA_ENABLE_DCHECKS
TEST(CacheRowDeathTest, SlotPastTheEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Result<LatentCache> cache = LatentCache::Create(MakeLatentLayout(8, 2, 1, DType::kF32, 4), 2);
  std::vector<float> row(10);
  EXPECT_DEATH(WriteCacheRow(cache->Layer(0), 8, row.data(), row.data() + 8), "check failed.*slot");
  EXPECT_DEATH(ReadCacheRow(cache->Layer(0), 8, row.data(), row.data() + 8), "check failed.*slot");
  EXPECT_DEATH(cache->Layer(1), "check failed.*layer");
}
#endif

}  // namespace
}  // namespace mla
