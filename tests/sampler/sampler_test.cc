// The sampler against brute force, published vectors and counts.
#include "sampler/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mla::sampler {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

double FromWords(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32 | low) >> 11;
  return std::ldexp(static_cast<double>(bits), -53);
}

// Known answers of Random123 1.14 (kat_vectors, philox4x32 10): counter, key -> first two words.
TEST(CounterUniform, PublishedVectors) {
  EXPECT_EQ(CounterUniform(0, 0, 0), FromWords(0x6627e8d5, 0xe169c58d));
  EXPECT_EQ(CounterUniform(~0ULL, ~0ULL, ~0ULL), FromWords(0x408f276d, 0x41c83b0e));
  // Counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0: words of a pair are low, then high.
  EXPECT_EQ(CounterUniform(0x299f31d0a4093822ULL, 0x0370734413198a2eULL, 0x85a308d3243f6a88ULL),
            FromWords(0xd16cfe09, 0x94fdcceb));
}

std::int32_t Greedy(const std::vector<float>& logits, SamplingParams params = {}, std::vector<std::int32_t> seen = {}) {
  params.temperature = 0;
  Sampler sampler(static_cast<std::int64_t>(logits.size()));
  return sampler.Choose(params, {}, logits, seen, 0, 0);
}

TEST(Greedy, TakesTheLargestAndTheLowestAmongEquals) {
  EXPECT_EQ(Greedy({1, 3, 2}), 1);
  EXPECT_EQ(Greedy({1, 3, 3, 3}), 1);
  EXPECT_EQ(Greedy({-0.0F, 0.0F}), 0);
  EXPECT_EQ(Greedy({-5, -kInf, -4}), 2);
  EXPECT_EQ(Greedy({7}), 0);
}

TEST(Greedy, IgnoresEveryParameterButThePenalty) {
  SamplingParams params;
  params.top_k = 1;
  params.top_p = 0.01;
  params.min_p = 1;
  params.seed = 99;
  EXPECT_EQ(Greedy({1, 3, 2}, params), 1);
  params.repetition_penalty = 2;
  EXPECT_EQ(Greedy({1, 3, 2}, params, {1}), 2);
}

TEST(Penalty, DividesPositiveMultipliesNegativeOnceForEachToken) {
  SamplingParams params;
  params.repetition_penalty = 2;
  EXPECT_EQ(Greedy({1.1F, 4, 1.5F}, params, {1, 1, 1}), 1) << "4 / 2 leads, 4 / 8 would not";
  EXPECT_EQ(Greedy({-1, -1.5F}, params, {0}), 1) << "-1 becomes -2";
  EXPECT_EQ(Greedy({-kInf, -1}, params, {0, 1}), 1);
  EXPECT_EQ(Greedy({0, -1}, params, {0}), 0);
  params.repetition_penalty = 0.5;
  EXPECT_EQ(Greedy({1, 1.5F}, params, {0}), 0) << "below one it rewards";
  // The marks of one call are gone in the next.
  Sampler sampler(2);
  const std::vector<float> logits = {1, 1.5F};
  const std::vector<std::int32_t> seen = {0, 0};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(sampler.Choose(params, {}, logits, seen, 0, 0), 0);
}

TEST(NotANumber, IsNeverChosen) {
  EXPECT_EQ(Greedy({kNaN, 1, kNaN, 2}), 3);
  EXPECT_EQ(Greedy({kNaN, kNaN}), 0);
  Sampler sampler(4);
  for (const std::int64_t top_k : {0, 2}) {
    SamplingParams params;
    params.temperature = 1;
    params.top_k = top_k;
    for (std::uint64_t position = 0; position < 200; ++position) {
      const std::int32_t id = sampler.Choose(params, {}, std::vector<float>{kNaN, 1, kNaN, 2}, {}, 0, position);
      EXPECT_TRUE(id == 1 || id == 3) << id;
    }
  }
}

TEST(Extremes, RowsWithoutANumberGiveTheFirstAndInfinityWins) {
  Sampler sampler(3);
  SamplingParams params;
  for (const double temperature : {0.0, 1.0}) {
    for (const std::int64_t top_k : {0, 2}) {
      for (const double top_p : {1.0, 0.5}) {
        params.temperature = temperature;
        params.top_k = top_k;
        params.top_p = top_p;
        EXPECT_EQ(sampler.Choose(params, {}, std::vector<float>{-kInf, -kInf, -kInf}, {}, 0, 1), 0);
        EXPECT_EQ(sampler.Choose(params, {}, std::vector<float>{kNaN, -kInf, kNaN}, {}, 0, 1), 0);
        EXPECT_EQ(sampler.Choose(params, {}, std::vector<float>{1, kInf, 2}, {}, 0, 1), 1);
        EXPECT_EQ(sampler.Choose(params, {}, std::vector<float>{-kInf, -kInf, 5}, {}, 0, 1), 2);
      }
    }
  }
}

TEST(Temperature, NearZeroIsGreedyAndHugeIsAlmostUniform) {
  Sampler sampler(3);
  SamplingParams params;
  params.temperature = 1e-300;
  const std::vector<float> logits = {0, 1, 0.5F};
  for (std::uint64_t position = 0; position < 50; ++position)
    EXPECT_EQ(sampler.Choose(params, {}, logits, {}, 0, position), 1);
  params.temperature = 100;
  std::set<std::int32_t> drawn;
  for (std::uint64_t position = 0; position < 50; ++position)
    drawn.insert(sampler.Choose(params, {}, logits, {}, 0, position));
  EXPECT_EQ(drawn.size(), 3U);
}

// Probabilities after the filters, in long double, straight from the definitions of mla/sampling.h.
std::vector<long double> BruteForce(const SamplingParams& p, const std::vector<float>& logits) {
  const std::size_t n = logits.size();
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  const auto weight = [&](std::size_t id) {
    return std::exp((static_cast<long double>(logits[id]) - static_cast<long double>(logits[order[0]])) /
                    static_cast<long double>(p.temperature));
  };
  if (p.top_k > 0 && static_cast<std::size_t>(p.top_k) < n) order.resize(static_cast<std::size_t>(p.top_k));
  long double total = 0;
  for (const std::size_t id : order) total += weight(id);
  std::size_t kept = 0;
  for (long double reached = 0; kept < order.size() && (kept == 0 || reached < p.top_p * total);) {
    reached += weight(order[kept++]);
  }
  if (p.top_p == 1) kept = order.size();
  order.resize(kept);
  std::erase_if(order, [&](std::size_t id) { return weight(id) < static_cast<long double>(p.min_p); });
  total = 0;
  for (const std::size_t id : order) total += weight(id);
  std::vector<long double> probabilities(n, 0);
  for (const std::size_t id : order) probabilities[id] = weight(id) / total;
  return probabilities;
}

std::vector<std::int64_t> Draw(const SamplingParams& params, const std::vector<float>& logits, std::int64_t draws) {
  Sampler sampler(static_cast<std::int64_t>(logits.size()));
  std::vector<std::int64_t> counts(logits.size());
  for (std::int64_t i = 0; i < draws; ++i) {
    ++counts[static_cast<std::size_t>(sampler.Choose(params, {}, logits, {}, 0, static_cast<std::uint64_t>(i)))];
  }
  return counts;
}

// Draws of fixed seeds fall only on the brute force's set, on each of its members, and with its frequencies: chi-square
// below its mean plus six of its standard deviations (a tail below 1e-6; the seeds are fixed, so this is no lottery).
TEST(Draws, FollowTheFilteredDistribution) {
  std::mt19937 rng(7);
  std::normal_distribution<float> normal(0, 1.5F);
  constexpr std::int64_t kDraws = 20000;
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<float> logits(trial % 3 == 0 ? 5 : 23);
    for (float& logit : logits)
      logit = trial % 4 == 0 ? std::round(normal(rng)) : normal(rng);  // with ties and without
    SamplingParams params;
    params.temperature = std::vector<double>{0.5, 1, 2.5}[static_cast<std::size_t>(trial % 3)];
    params.top_k = std::vector<std::int64_t>{0, 3, 0, 8, 100}[static_cast<std::size_t>(trial % 5)];
    params.top_p = std::vector<double>{1, 0.7, 0.95, 1}[static_cast<std::size_t>(trial / 2 % 4)];
    params.min_p = std::vector<double>{0, 0.1, 0, 0.3}[static_cast<std::size_t>(trial / 3 % 4)];
    params.seed = static_cast<std::uint64_t>(trial);
    SCOPED_TRACE("trial " + std::to_string(trial));
    const auto probabilities = BruteForce(params, logits);
    const auto counts = Draw(params, logits, kDraws);
    double chi = 0;
    double freedom = -1;
    for (std::size_t id = 0; id < logits.size(); ++id) {
      const double expected = static_cast<double>(probabilities[id]) * kDraws;
      if (expected == 0) {
        ASSERT_EQ(counts[id], 0) << "id " << id << " was filtered out";
        continue;
      }
      if (expected > 30) {
        ASSERT_GT(counts[id], 0) << "id " << id << " belongs to the set";
      }
      chi += (static_cast<double>(counts[id]) - expected) * (static_cast<double>(counts[id]) - expected) / expected;
      freedom += 1;
    }
    // A rare cell's own variance adds 1 / expected.
    EXPECT_LT(chi, freedom + 6 * std::sqrt(2 * freedom + 2) + 6);
  }
}

TEST(Draws, AreAFunctionOfSeedSampleAndPosition) {
  const std::vector<float> logits(1000, 0.0F);
  Sampler sampler(1000);
  SamplingParams params;
  params.temperature = 1;
  std::set<std::int32_t> by_seed;
  std::set<std::int32_t> by_sample;
  std::set<std::int32_t> by_position;
  for (std::uint64_t i = 0; i < 40; ++i) {
    params.seed = i << 32;
    params.sample = 0;
    by_seed.insert(sampler.Choose(params, {}, logits, {}, 0, 5));
    params.seed = 1;
    params.sample = i << 32;
    by_sample.insert(sampler.Choose(params, {}, logits, {}, 0, 5));
    params.sample = 0;
    by_position.insert(sampler.Choose(params, {}, logits, {}, 0, i));
  }
  // 40 draws of 1,000: fewer than 34 different ones have a probability below 1e-4.
  EXPECT_GE(by_seed.size(), 34U);
  EXPECT_GE(by_sample.size(), 34U);
  EXPECT_GE(by_position.size(), 34U);
}

TEST(LogProbability, IsThatOfTheRawLogits) {
  const std::vector<float> logits = {0.5F, -2, 3, 700};
  for (std::size_t id = 0; id < logits.size(); ++id) {
    long double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<long double>(logit) - 700);
    const long double expected = static_cast<long double>(logits[id]) - 700 - std::log(sum);
    EXPECT_NEAR(LogProbability(logits, static_cast<std::int32_t>(id)), static_cast<double>(expected), 1e-12);
  }
  EXPECT_EQ(LogProbability(std::vector<float>{1, -kInf}, 1), -static_cast<double>(kInf));
  EXPECT_EQ(LogProbability(std::vector<float>{-1000}, 0), 0);
}

SamplingParams With(void (*change)(SamplingParams*)) {
  SamplingParams params;
  change(&params);
  return params;
}

TEST(Validate, NamesTheParameterItsRangeAndItsValue) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(Validate({}).ok());
  struct Bad {
    SamplingParams params;
    const char* message;
  };
  std::vector<Bad> bad;
  for (const double value : {-0.5, 100.5, nan, std::numeric_limits<double>::infinity()}) {
    SamplingParams p;
    p.temperature = value;
    bad.push_back({p, "temperature: expected a number from 0 to 100, found "});
    p = {};
    p.repetition_penalty = value;
    bad.push_back({p, "repetition penalty: expected a number above 0 and up to 100, found "});
    p = {};
    p.top_p = value;
    bad.push_back({p, "top-p: expected a number above 0 and up to 1, found "});
    p = {};
    p.min_p = value;
    bad.push_back({p, "min-p: expected a number from 0 to 1, found "});
  }
  bad.push_back(
      {With([](SamplingParams* p) { p->top_p = 0; }), "top-p: expected a number above 0 and up to 1, found 0"});
  bad.push_back({With([](SamplingParams* p) { p->repetition_penalty = 0; }), "above 0 and up to 100, found 0"});
  bad.push_back({With([](SamplingParams* p) { p->top_k = -1; }), "top-k: expected 0 (off) or more, found -1"});
  for (const Bad& b : bad) {
    const Status status = Validate(b.params);
    ASSERT_FALSE(status.ok()) << b.message;
    EXPECT_THAT(status.error().message, ::testing::HasSubstr(b.message));
  }
  for (const auto change :
       {+[](SamplingParams* p) { p->temperature = 100; }, +[](SamplingParams* p) { p->top_p = 1e-9; },
        +[](SamplingParams* p) { p->min_p = 1; }, +[](SamplingParams* p) { p->top_k = 1LL << 40; }}) {
    EXPECT_TRUE(Validate(With(change)).ok());
  }
}

}  // namespace
}  // namespace mla::sampler
