// Biases, penalties, the likeliest and the order of many candidates, against plain loops.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sampler/sampler.h"

namespace mla::sampler {
namespace {

using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

// mla/sampling.h's order in float64, rounded to float after each change as the sampler's comment says.
std::vector<float> Changed(const SamplingParams& p, const std::vector<LogitBias>& biases, std::vector<float> logits,
                           const std::vector<std::int32_t>& seen, std::size_t prompt_size) {
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const auto same = [&](std::int32_t other) { return static_cast<std::size_t>(other) == id; };
    const auto output = seen.begin() + static_cast<std::ptrdiff_t>(prompt_size);
    double x = logits[id];
    for (const LogitBias& b : biases) {
      if (same(b.id)) x = static_cast<float>(x + static_cast<double>(b.bias));
    }
    if (p.repetition_penalty != 1 && std::any_of(seen.begin(), seen.end(), same)) {
      x = static_cast<float>(x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty);
    }
    const auto times = static_cast<double>(std::count_if(output, seen.end(), same));
    if (times > 0) x = static_cast<float>(x - (p.presence_penalty + p.frequency_penalty * times));
    logits[id] = static_cast<float>(x);
  }
  return logits;
}

TEST(Penalties, InTheirOrderOverPromptAndOutput) {
  std::mt19937 rng(11);
  std::normal_distribution<float> normal(0, 2);
  const auto pick = [&](std::vector<double> values) { return values[rng() % values.size()]; };
  Sampler sampler(12);  // one for all: no call leaves marks for the next
  int moved = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<float> logits(12);
    for (float& logit : logits) logit = normal(rng);
    std::vector<std::int32_t> seen(rng() % 20);
    for (std::int32_t& id : seen) id = static_cast<std::int32_t>(rng() % 12);
    const std::size_t prompt_size = seen.empty() ? 0 : rng() % (seen.size() + 1);
    SamplingParams p;
    p.repetition_penalty = pick({1, 1.3, 0.7});
    p.presence_penalty = pick({0, 0.9, -1.1});
    p.frequency_penalty = pick({0, 0.6, -0.4});
    std::vector<LogitBias> biases;
    if (trial % 3 == 0) biases = {{3, 1.5F}, {7, -kInfinity}, {1, -2}};
    const std::vector<float> expected = Changed(p, biases, logits, seen, prompt_size);
    const auto best = std::max_element(expected.begin(), expected.end()) - expected.begin();
    ASSERT_EQ(sampler.Choose(p, biases, logits, seen, static_cast<std::int64_t>(prompt_size), 0), best) << trial;
    moved += best != std::max_element(logits.begin(), logits.end()) - logits.begin() ? 1 : 0;
  }
  EXPECT_GT(moved, 300) << "the changes decide often enough to be seen";
}

TEST(Bias, BarsATokenWhateverItsLogit) {
  Sampler sampler(4);
  const std::vector<LogitBias> bar = {{1, -kInfinity}, {2, 5}};
  SamplingParams p;
  EXPECT_EQ(sampler.Choose(p, bar, std::vector<float>{0, kInfinity, kNotANumber, 1}, {}, 0, 0), 3) << "a NaN stays out";
  for (const std::int64_t top_k : {0, 3, 4}) {
    for (const double top_p : {1.0, 0.999999}) {
      p.temperature = 1;
      p.top_k = top_k;
      p.top_p = top_p;
      for (std::uint64_t at = 0; at < 500; ++at) {
        ASSERT_NE(sampler.Choose(p, bar, std::vector<float>{0, 9, -6, 1}, {}, 0, at), 1);
      }
    }
  }
}

// Draws over a large vocabulary, flat, peaked and full of ties, are those of sorting all of it.
std::int32_t DrawSlowly(const SamplingParams& p, const std::vector<float>& logits, std::uint64_t position) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  const double largest = logits[order[0]];
  const auto weight = [&](std::size_t id) { return std::exp((logits[id] - largest) / p.temperature); };
  if (p.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(p.top_k)));
  double total = 0;
  for (const std::size_t id : order) total += weight(id);
  double reached = 0;
  std::size_t kept = 0;
  while (kept < order.size() && (kept == 0 || reached < p.top_p * total)) {
    const double w = weight(order[kept]);
    if (kept > 0 && w < p.min_p) break;
    reached += w;
    ++kept;
  }
  double left = CounterUniform(p.seed, p.sample, position) * reached;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    left -= weight(order[i]);
    if (left < 0) return static_cast<std::int32_t>(order[i]);
  }
  return static_cast<std::int32_t>(order[kept - 1]);
}

TEST(Order, DrawsOfManyAreThoseOfASortOfAll) {
  constexpr std::int64_t kVocab = 20000;
  std::mt19937 rng(5);
  std::normal_distribution<float> normal(0, 1);
  Sampler sampler(kVocab);
  for (int trial = 0; trial < 48; ++trial) {
    std::vector<float> logits(kVocab);
    const float width = std::vector<float>{0, 0.01F, 1, 6}[static_cast<std::size_t>(trial % 4)];
    for (float& logit : logits) {
      logit = width * normal(rng) * (rng() % 50 == 0 ? 1.5F : 1);
      if (trial % 3 == 1) logit = std::round(4 * logit) / 4;  // ties, and zeros of both signs
    }
    SamplingParams p;
    p.temperature = trial % 5 == 0 ? 0.3 : 1;
    p.top_k = std::vector<std::int64_t>{0, 0, 40, 5000}[static_cast<std::size_t>(trial / 4 % 4)];
    p.top_p = std::vector<double>{0.9, 0.4, 0.999}[static_cast<std::size_t>(trial / 2 % 3)];
    p.min_p = trial % 7 == 0 ? 0.05 : 0;
    p.seed = static_cast<std::uint64_t>(trial);
    for (std::uint64_t position = 0; position < 6; ++position) {
      ASSERT_EQ(sampler.Choose(p, {}, logits, {}, 0, position), DrawSlowly(p, logits, position))
          << "trial " << trial << " position " << position;
    }
  }
}

TEST(Likeliest, AreThoseOfASortWithTheLogProbabilitiesOfEach) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0, 3);
  for (const std::size_t vocab : {1U, 5U, 20U, 21U, 1000U}) {
    for (const std::size_t count : {0U, 1U, 4U, 20U, 25U}) {
      std::vector<float> logits(vocab);
      for (float& logit : logits) logit = std::round(normal(rng));  // many ties
      logits[vocab / 2] = -kInfinity;
      logits[vocab - 1] = 1;
      std::vector<std::int32_t> order(vocab);
      std::iota(order.begin(), order.end(), 0);
      const auto at = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return at(a) > at(b); });
      std::vector<TokenLogprob> top(count);
      const LogProbabilities<float> all{std::span<const float>(logits)};
      ASSERT_EQ(Likeliest(logits, all, top), std::min({count, vocab, std::size_t{20}}));
      long double sum = 0;
      for (const float logit : logits) sum += std::exp(static_cast<long double>(logit));
      for (std::size_t i = 0; i < std::min({count, vocab, std::size_t{20}}); ++i) {
        EXPECT_EQ(top[i].id, order[i]);
        EXPECT_EQ(top[i].logprob, static_cast<float>(LogProbability(logits, order[i]))) << "the bits of one alone";
        const auto expected = static_cast<float>(static_cast<long double>(at(order[i])) - std::log(sum));
        if (std::isinf(expected)) {
          EXPECT_EQ(top[i].logprob, expected);
        } else {
          EXPECT_NEAR(top[i].logprob, expected, 1e-6 * (1 + std::fabs(expected))) << "float's rounding";
        }
      }
    }
  }
}

TEST(Likeliest, NaNComesLast) {
  const std::vector<float> logits = {kNotANumber, 1, kNotANumber, 2};
  std::vector<TokenLogprob> top(3);
  EXPECT_EQ(Likeliest(logits, LogProbabilities<float>{std::span<const float>(logits)}, top), 3U);
  EXPECT_EQ(top[0].id, 3);
  EXPECT_EQ(top[1].id, 1);
  EXPECT_EQ(top[2].id, 0);
}

TEST(ValidateRequest, NamesWhatIsOutOfRange) {
  const auto message = [](const Status& s) { return s.ok() ? std::string() : s.error().message; };
  const auto bias = [&](std::vector<LogitBias> b) { return message(ValidateBias(b, 3)); };
  EXPECT_EQ(bias({}), "");
  EXPECT_EQ(bias({{0, -kInfinity}, {2, 1e30F}, {1, -100}}), "");
  EXPECT_THAT(bias({{3, 1}}), HasSubstr("expected ids from 0 to 2, found 3"));
  EXPECT_THAT(bias({{-1, 1}}), HasSubstr("expected ids from 0 to 2, found -1"));
  EXPECT_THAT(bias({{1, kNotANumber}}), HasSubstr("logit bias of id 1: expected a finite number or -inf"));
  EXPECT_THAT(bias({{1, kInfinity}}), HasSubstr("logit bias of id 1: expected a finite number or -inf"));
  EXPECT_THAT(bias({{2, 1}, {0, 1}, {2, 1}}), HasSubstr("each id once, found 2 twice"));
  EXPECT_THAT(bias({{0, 1}, {1, 1}, {2, 1}, {0, 1}}), HasSubstr("at most one for each of 3 ids, found 4"));
  EXPECT_THAT(bias({{0, -kInfinity}, {1, -kInfinity}, {2, -kInfinity}}),
              HasSubstr("expected a token that may be chosen"));
  EXPECT_EQ(message(ValidateTopLogprobs(0)) + message(ValidateTopLogprobs(20)), "");
  EXPECT_THAT(message(ValidateTopLogprobs(21)), HasSubstr("from 0 to 20, found 21"));
  EXPECT_THAT(message(ValidateTopLogprobs(-1)), HasSubstr("from 0 to 20, found -1"));
  for (const double value : {-2.5, 2.01, std::numeric_limits<double>::quiet_NaN()}) {
    SamplingParams p;
    p.presence_penalty = value;
    EXPECT_THAT(message(Validate(p)), HasSubstr("presence penalty: expected a number from -2 to 2, found "));
    p = {};
    p.frequency_penalty = value;
    EXPECT_THAT(message(Validate(p)), HasSubstr("frequency penalty: expected a number from -2 to 2, found "));
  }
  SamplingParams p;
  p.presence_penalty = -2;
  p.frequency_penalty = 2;
  EXPECT_EQ(message(Validate(p)), "");
}

}  // namespace
}  // namespace mla::sampler
