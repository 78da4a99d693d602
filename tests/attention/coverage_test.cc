// Every kernel table over every kind of head count, in both forms, against float64: lengths around the borders of tiles
// and segments, no rope, scores of 10,000 either way, values that cancel. Dead slots hold NaN, and page tables end in
// an index that no cache has (harness.h): a kernel that reads past a row's keys, or a head too few, shows at any
// length.
#include <cmath>

#include <gtest/gtest.h>

#include "attention/harness.h"
#include "testing/models.h"

namespace mla::testing {
namespace {

class EveryTable : public ::testing::TestWithParam<std::int64_t> {
 protected:
  std::mt19937_64 rng_{101 + static_cast<std::uint64_t>(GetParam())};
  std::string Label(const std::string& what) const { return what + ", heads " + std::to_string(GetParam()); }

  // One row and three at each length, and none at all, in both forms side by side in one call. Small dims of no whole
  // vector.
  void ExpectEveryLength(std::int64_t rope, DType dtype, WeightDType keep) {
    const MlaDims dims{GetParam(), 5, rope, 3, 9};
    const TestWeights weights = RandomWeights(dims, keep, rng_);
    std::vector<TestSequence> sequences;
    for (const std::int64_t keys : {0, 1, 63, 64, 65, 1023, 1024, 1025}) {
      // The oracle is slow under sanitizers. What many heads add to a border is seen at 1,025 keys as well.
      if (kUnderSanitizer && GetParam() > 20 && (keys == 1023 || keys == 1024)) continue;
      for (const std::int64_t rows : {0, 1, 3}) {
        if (rows > keys || (rows == 0 && keys > 1)) continue;
        sequences.push_back(RandomSequence(dims, rows, keys, Form::kMha, rng_));
        sequences.push_back(sequences.back());
        sequences.back().form = Form::kAbsorbed;
      }
    }
    ExpectEveryTableWithin(weights, sequences, {.dtype = dtype}, ScaleOf(dims), Label("lengths"));
  }

  // Whole numbers from -limit to limit.
  float Whole(std::int64_t limit) {
    return static_cast<float>(static_cast<std::int64_t>(rng_() % static_cast<std::uint64_t>(2 * limit + 1)) - limit);
  }
};

TEST_P(EveryTable, EveryLength) { ExpectEveryLength(4, DType::kBF16, WeightDType::kBF16); }

TEST_P(EveryTable, EveryLengthWithoutRope) { ExpectEveryLength(0, DType::kF32, WeightDType::kF32); }

// All scores near -10,240, near 10,240, or rising from one to the other, so that every tile raises the maximum. Made of
// whole numbers, so that they are exact and only the softmax is at stake.
TEST_P(EveryTable, ScoresOfTenThousandEitherWay) {
  const MlaDims dims{GetParam(), 4, 2, 5, 10};
  TestWeights weights = RandomWeights(dims, WeightDType::kBF16, rng_);
  for (float& w : weights.raw) w = Whole(1);
  constexpr std::int64_t kKeys = 140;
  std::vector<TestSequence> sequences;
  for (const int pattern : {0, 1, 2}) {
    TestSequence s = RandomSequence(dims, 2, kKeys, Form::kMha, rng_);
    for (float& x : s.latent) x = Whole(2);
    for (float& x : s.q) x = Whole(3);
    for (std::int64_t j = 0; j < kKeys; ++j) {
      const std::int64_t rising = j * 2048 / kKeys / 8 * 8 - 1024;
      const float levels[] = {-1024, 1024, static_cast<float>(rising)};
      s.rope[static_cast<std::size_t>(2 * j)] = levels[pattern];  // exact in bf16: multiples of 8 up to 1024
      s.rope[static_cast<std::size_t>(2 * j + 1)] = 0;
    }
    for (std::size_t at = 0; at < s.q.size(); at += 6) s.q[at + 4] = 80;
    sequences.push_back(s);
    s.form = Form::kAbsorbed;
    sequences.push_back(std::move(s));
  }
  const Expected low = Oracle(weights, sequences[0], DType::kBF16, 0.125, {.exact_scores = true});
  const Expected high = Oracle(weights, sequences[2], DType::kBF16, 0.125, {.exact_scores = true});
  EXPECT_LT(low.lse[0], -9900);
  EXPECT_GT(high.lse[0], 9900);
  ExpectEveryTableWithin(weights, sequences, {.dtype = DType::kBF16}, 0.125, Label("large scores"), true);
}

// Values of about a thousand that alternate in sign, under nearly equal weights: the sum is small beside its terms. The
// bound is a count of roundings of sum |p v|, so a kernel may lose digits of the result but none of the terms'.
TEST_P(EveryTable, ValuesThatCancel) {
  const MlaDims dims{GetParam(), 6, 2, 5, 12};
  TestWeights weights = RandomWeights(dims, WeightDType::kF32, rng_);
  // Half of the latent makes keys, and half values.
  for (std::size_t i = 0; i < weights.raw.size(); ++i) {
    const bool for_key = i / 12 % 11 < 6;
    if (for_key != (i % 12 < 6)) weights.raw[i] = 0;
  }
  constexpr std::size_t kKeys = 1100;
  TestSequence s = RandomSequence(dims, 2, kKeys, Form::kMha, rng_);
  for (std::size_t j = 0; j < kKeys; ++j) {
    for (std::size_t r = 6; r < 12; ++r) s.latent[j * 12 + r] += j % 2 == 0 ? 1000.0F : -1000.0F;
  }
  for (float& x : s.q) x *= 0.01F;
  TestSequence other = s;
  other.form = Form::kAbsorbed;
  TestSequence same_sign = s;
  for (std::size_t j = 0; j < kKeys; ++j) {
    for (std::size_t r = 6; r < 12; ++r) same_sign.latent[j * 12 + r] += j % 2 == 0 ? 0.0F : 2000.0F;
  }
  double largest = 0;
  double largest_same_sign = 0;
  for (const double x : Oracle(weights, s, DType::kF32, 0.2).out) largest = std::max(largest, std::fabs(x));
  for (const double x : Oracle(weights, same_sign, DType::kF32, 0.2).out) {
    largest_same_sign = std::max(largest_same_sign, std::fabs(x));
  }
  EXPECT_LT(largest, largest_same_sign / 100) << "they do cancel";
  ExpectEveryTableWithin(weights, {s, other}, {.dtype = DType::kF32}, 0.2, Label("cancelling"));
}

INSTANTIATE_TEST_SUITE_P(Heads, EveryTable, ::testing::Values(1, 3, 9, 20, 63, 64, 126, 128));

}  // namespace
}  // namespace mla::testing
