// Both forms, every kernel table, against float64.
#include <cmath>
#include <tuple>

#include <gtest/gtest.h>

#include "attention/harness.h"

namespace mla::testing {
namespace {

class Heads : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(Heads, AnyCount) {
  std::mt19937_64 rng(11 + static_cast<std::uint64_t>(GetParam()));
  const MlaDims dims{GetParam(), 12, 4, 10, 24};
  for (const WeightDType keep : {WeightDType::kF32, WeightDType::kBF16}) {
    const TestWeights weights = RandomWeights(dims, keep, rng);
    std::vector<TestSequence> sequences;
    for (const Form form : {Form::kMha, Form::kAbsorbed}) {
      sequences.push_back(RandomSequence(dims, 1, 131, form, rng));
      sequences.push_back(RandomSequence(dims, 7, 70, form, rng));
    }
    const DType dtype = keep == WeightDType::kF32 ? DType::kBF16 : DType::kF32;
    ExpectEveryTableWithin(weights, sequences, {.dtype = dtype}, ScaleOf(dims), "heads " + std::to_string(GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(Attention, Heads, ::testing::Values(1, 3, 8, 9, 20, 63, 64, 126, 128));

class Dims : public ::testing::TestWithParam<MlaDims> {};

// Widths that fill no vector, no rope, V != N, and the published ones.
TEST_P(Dims, AnyWidth) {
  const MlaDims dims = GetParam();
  std::mt19937_64 rng(12);
  for (const WeightDType keep : {WeightDType::kF32, WeightDType::kBF16}) {
    const TestWeights weights = RandomWeights(dims, keep, rng);
    std::vector<TestSequence> sequences;
    for (const Form form : {Form::kMha, Form::kAbsorbed}) {
      sequences.push_back(RandomSequence(dims, 1, 1, form, rng));
      sequences.push_back(RandomSequence(dims, 3, 67, form, rng));
      sequences.push_back(RandomSequence(dims, 5, 128, form, rng));
    }
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      ExpectEveryTableWithin(weights, sequences, {.dtype = dtype, .page_tokens = 16}, ScaleOf(dims), DTypeName(dtype));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Attention, Dims,
                         ::testing::Values(MlaDims{2, 24, 8, 16, 40}, MlaDims{3, 7, 6, 13, 33},
                                           MlaDims{2, 16, 0, 20, 40}, MlaDims{1, 1, 2, 1, 1}, MlaDims{2, 5, 0, 3, 17},
                                           MlaDims{2, 33, 14, 81, 97}, MlaDims{2, 128, 64, 128, 512},
                                           MlaDims{1, 64, 32, 64, 256}),
                         [](const auto& test) {
                           const MlaDims& d = test.param;
                           return "H" + std::to_string(d.num_attention_heads) + "N" +
                                  std::to_string(d.qk_nope_head_dim) + "P" + std::to_string(d.qk_rope_head_dim) + "V" +
                                  std::to_string(d.v_head_dim) + "R" + std::to_string(d.kv_lora_rank);
                         });

using Storage = std::tuple<std::int64_t, DType, WeightDType>;
class Lengths : public ::testing::TestWithParam<Storage> {};

// Every T and S of interest, in both forms, side by side in one call: borders of tiles, pages and segments.
TEST_P(Lengths, BothFormsInOneCall) {
  const auto [page_tokens, dtype, keep] = GetParam();
  std::mt19937_64 rng(13);
  const MlaDims dims{3, 7, 6, 13, 33};
  const TestWeights weights = RandomWeights(dims, keep, rng);
  std::vector<TestSequence> sequences;
  for (const std::int64_t rows : {1, 2, 7, 64, 100}) {
    for (const std::int64_t keys : {rows, std::int64_t{63}, std::int64_t{64}, std::int64_t{65}, std::int64_t{1023},
                                    std::int64_t{1024}, std::int64_t{1025}, std::int64_t{2100}}) {
      if (keys < rows || (rows == 64 && keys > 1025)) continue;
      const Form form = sequences.size() % 2 == 0 ? Form::kMha : Form::kAbsorbed;
      const Form other = form == Form::kMha ? Form::kAbsorbed : Form::kMha;
      sequences.push_back(RandomSequence(dims, rows, keys, form, rng));
      sequences.push_back(sequences.back());
      sequences.back().form = other;
      if (rows == 7) sequences.push_back(RandomSequence(dims, 0, keys, form, rng));  // brings nothing, gets nothing
    }
  }
  sequences.push_back(RandomSequence(dims, 0, 0, Form::kAbsorbed, rng));
  sequences.push_back(RandomSequence(dims, 0, 0, Form::kMha, rng));
  ExpectEveryTableWithin(weights, sequences, {.dtype = dtype, .page_tokens = page_tokens}, ScaleOf(dims), "lengths");
}

INSTANTIATE_TEST_SUITE_P(Attention, Lengths,
                         ::testing::Values(Storage{1, DType::kBF16, WeightDType::kF32},
                                           Storage{16, DType::kF32, WeightDType::kBF16},
                                           Storage{64, DType::kBF16, WeightDType::kBF16},
                                           Storage{100, DType::kF32, WeightDType::kF32}));

// Scores of +-10,000 and more, made of integers so that they are exact: what is left is the softmax.
TEST(Attention, LargeScores) {
  const MlaDims dims{3, 8, 2, 10, 20};
  std::mt19937_64 rng(14);
  TestWeights weights = RandomWeights(dims, WeightDType::kBF16, rng);
  const auto whole = [&](std::int64_t limit) {
    return static_cast<float>(static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(2 * limit + 1)) - limit);
  };
  for (float& w : weights.raw) w = whole(1);
  std::vector<TestSequence> sequences;
  for (const Form form : {Form::kMha, Form::kAbsorbed}) {
    for (const int pattern : {0, 1, 2}) {
      TestSequence s = RandomSequence(dims, 9, 1200, form, rng);
      for (float& x : s.latent) x = whole(2);
      for (float& x : s.q) x = whole(3);
      for (std::int64_t j = 0; j < s.keys; ++j) {
        // All low; low with a few high; rising from low to high, so that every tile raises the maximum.
        const float far = 1024;
        float level = -far;
        if (pattern == 1 && j % 97 == 5) level = far;
        if (pattern == 2) level = std::round(2 * far * static_cast<float>(j) / 1200 / 8) * 8 - far;
        s.rope[static_cast<std::size_t>(2 * j)] = RoundToBf16(level);
        s.rope[static_cast<std::size_t>(2 * j + 1)] = 0;
      }
      const std::int64_t width = dims.qk_nope_head_dim + dims.qk_rope_head_dim;
      for (std::size_t at = 0; at < s.q.size(); at += static_cast<std::size_t>(width)) {
        s.q[at + static_cast<std::size_t>(dims.qk_nope_head_dim)] = 80;
      }
      sequences.push_back(std::move(s));
    }
  }
  ExpectEveryTableWithin(weights, sequences, {.dtype = DType::kBF16}, 0.125, "large scores", true);
}

// Half of the latent makes keys and half makes values that alternate in sign: the sum is small beside its terms.
TEST(Attention, ValuesThatCancel) {
  const MlaDims dims{2, 16, 4, 12, 40};
  std::mt19937_64 rng(15);
  TestWeights weights = RandomWeights(dims, WeightDType::kF32, rng);
  for (std::size_t i = 0; i < weights.raw.size(); ++i) {
    const bool for_key = i / 40 % 28 < 16;
    if (for_key != (i % 40 < 20)) weights.raw[i] = 0;
  }
  std::vector<TestSequence> sequences;
  for (const Form form : {Form::kMha, Form::kAbsorbed}) {
    TestSequence s = RandomSequence(dims, 4, 1500, form, rng);
    for (std::size_t j = 0; j < 1500; ++j) {
      for (std::size_t r = 20; r < 40; ++r) s.latent[j * 40 + r] += j % 2 == 0 ? 1000.0F : -1000.0F;
    }
    for (float& x : s.q) x *= 0.01F;  // nearly equal weights
    sequences.push_back(std::move(s));
  }
  ExpectEveryTableWithin(weights, sequences, {.dtype = DType::kF32}, 0.2, "cancelling");
}

TEST(Attention, LseMayBeLeftOut) {
  const MlaDims dims{2, 8, 4, 6, 16};
  std::mt19937_64 rng(16);
  const TestWeights weights = RandomWeights(dims, WeightDType::kF32, rng);
  const CacheLayout layout = MakeLatentLayout(16, 4, 1, DType::kF32);
  Result<LatentCache> cache = LatentCache::Create(layout, 1);
  PoisonPages(*cache);
  const std::vector<float> row = RandomFloats(20, rng);
  WriteCacheRow(cache->Layer(0), 0, row.data(), row.data() + 16);
  const std::unique_ptr<Executor> pool = MakeThreadPool(1);
  Result<KvBWeights> packed = KvBWeights::Pack(
      dims, DType::kF32, reinterpret_cast<const std::byte*>(weights.raw.data()), WeightDType::kF32, *pool);
  const MlaAttention::Options options = OptionsFor(dims, 2, 10);
  Result<MlaAttention> attention = MlaAttention::Create(options);
  const std::vector<std::int32_t> pages = {0, kNoPage, kNoPage};
  for (const Form form : {Form::kMha, Form::kAbsorbed}) {
    const AttentionSequence s{pages, 0, 1, 1, form};
    const std::vector<float> q = RandomFloats(24, rng);
    std::vector<float> with(12);
    std::vector<float> without(12);
    std::vector<float> lse(2);
    attention->Run(cache->Layer(0), *packed, {&s, 1}, q.data(), with.data(), lse.data(), *pool);
    attention->Run(cache->Layer(0), *packed, {&s, 1}, q.data(), without.data(), nullptr, *pool);
    ExpectSameBits(with, without, FormName(form));
  }
}

TEST(Attention, UnknownKernelsAreRefused) {
  MlaAttention::Options options = OptionsFor({1, 8, 4, 6, 16}, 1, 1);
  options.kernels = "avx9000";
  const Result<MlaAttention> attention = MlaAttention::Create(options);
  ASSERT_FALSE(attention.ok());
  EXPECT_NE(attention.error().message.find("avx9000"), std::string::npos);
  EXPECT_NE(attention.error().message.find("portable"), std::string::npos);
  for (const std::string& kernels : KernelTables()) {
    options.kernels = kernels;
    Result<MlaAttention> known = MlaAttention::Create(options);
    ASSERT_TRUE(known.ok());
    EXPECT_EQ(known->kernels(), kernels);
  }
}

using AttentionDeathTest = ::testing::Test;

TEST(AttentionDeathTest, CallsThatDontFit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const MlaDims dims{1, 4, 2, 4, 8};
  const std::vector<float> zero(64, 0.0F);
  const std::unique_ptr<Executor> pool = MakeThreadPool(1);
  Result<KvBWeights> packed =
      KvBWeights::Pack(dims, DType::kF32, reinterpret_cast<const std::byte*>(zero.data()), WeightDType::kF32, *pool);
  Result<LatentCache> cache = LatentCache::Create(MakeLatentLayout(8, 2, 1, DType::kF32), 1);
  const MlaAttention::Options options = OptionsFor(dims, 2, 8);
  Result<MlaAttention> attention = MlaAttention::Create(options);
  const std::int32_t page = 0;
  std::vector<float> out(64);
  const auto run = [&](std::int64_t rows, std::int64_t keys, Executor& executor) {
    const AttentionSequence s{{&page, 1}, 0, rows, keys, Form::kMha};
    attention->Run(cache->Layer(0), *packed, {&s, 1}, zero.data(), out.data(), nullptr, executor);
  };
  run(2, 8, *pool);
  EXPECT_DEATH(run(2, 1, *pool), "check failed.*rows.*keys.*2 vs 1");
  EXPECT_DEATH(run(1, 9, *pool), "check failed.*max_keys.*9 vs 8");
  EXPECT_DEATH(run(3, 8, *pool), "check failed.*max_rows.*3 vs 2");
  const std::unique_ptr<Executor> two = MakeThreadPool(2);
  EXPECT_DEATH(run(1, 1, *two), "check failed.*workers.*2 vs 1");
}

}  // namespace
}  // namespace mla::testing
