// RopeTable against float64, far out; YaRN against DeepSeek-V3's published parameters; the two layouts against each
// other.
#include <cmath>
#include <cstdint>
#include <set>

#include <gtest/gtest.h>

#include "attention/harness.h"

namespace mla::testing {
namespace {

constexpr double kPi = 3.14159265358979323846;

RopeSpec Plain(RopeLayout layout, std::int64_t dim, double theta = 10000) {
  RopeSpec spec;
  spec.layout = layout;
  spec.dim = dim;
  spec.theta = theta;
  return spec;
}

// config.json of DeepSeek-V3.
RopeSpec DeepSeekV3() {
  RopeSpec spec = Plain(RopeLayout::kInterleaved, 64);
  spec.scaling = RopeScaling::kYarn;
  spec.factor = 40;
  spec.original_max_position_embeddings = 4096;
  spec.beta_fast = 32;
  spec.beta_slow = 1;
  spec.mscale = 1;
  spec.mscale_all_dim = 1;
  return spec;
}

// Frequencies of a pair, written from the paper: a pair of wavelength w makes L / w turns over the original context.
// Above beta_fast turns it is kept, below beta_slow it is stretched; between, a ramp over the pair's index whose ends
// are the (whole) indices at which those counts are reached.
double YarnFrequency(const RopeSpec& s, std::int64_t pair) {
  const double d = static_cast<double>(s.dim);
  const double base = std::exp(-2 * static_cast<double>(pair) / d * std::log(s.theta));
  // Turns of index i over L: L theta^(-2i/d) / 2 pi = turns, solved for i.
  const auto index_of = [&](double turns) {
    return d / 2 * (std::log(static_cast<double>(s.original_max_position_embeddings)) - std::log(2 * kPi * turns)) /
           std::log(s.theta);
  };
  const double low = std::floor(index_of(s.beta_fast));
  const double high = std::ceil(index_of(s.beta_slow));
  const auto i = static_cast<double>(pair);
  const double stretched = i <= low ? 0 : i >= high ? 1 : (i - low) / (high - low);
  return base * (1 - stretched) + base / s.factor * stretched;
}

double Frequency(const RopeSpec& s, std::int64_t pair) {
  if (s.scaling == RopeScaling::kYarn) return YarnFrequency(s, pair);
  return std::exp(-2 * static_cast<double>(pair) / static_cast<double>(s.dim) * std::log(s.theta));
}

// Rotates random channels at positions up to 200,000 and compares with float64.
//
// The bound: cos and sin are float64 values of an angle p f, rounded to fp32: u = 2^-24 of a value at most `scale`. The
// angle's own error, in the table and in the test, is p f times a few 2^-53 (the exponential and the logarithm, whose
// argument is at most 2 ln theta): 24 p f 2^-53, 5e-10 at 200,000. A rotated channel is two products and a sum in fp32:
// 2 u (|a| + |b|) scale on top of u (|a| + |b|) scale from the table.
void ExpectMatches(const RopeSpec& spec, double scale) {
  const std::int64_t positions = 200001;
  Result<RopeTable> table = RopeTable::Create(spec, positions);
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->positions(), positions);
  EXPECT_EQ(table->bytes(), RopeTable::Bytes(spec, positions));
  std::mt19937_64 rng(61);
  const std::int64_t pairs = spec.dim / 2;
  for (const std::int64_t p : {0, 1, 2, 63, 4095, 4096, 4097, 32768, 131071, 163840, 199999, 200000}) {
    const std::vector<float> x = RandomFloats(spec.dim, rng);
    std::vector<float> y = x;
    table->Rotate(y.data(), p);
    for (std::int64_t i = 0; i < pairs; ++i) {
      const bool halves = spec.layout == RopeLayout::kHalfSplit;
      const auto first = static_cast<std::size_t>(halves ? i : 2 * i);
      const auto second = static_cast<std::size_t>(halves ? i + pairs : 2 * i + 1);
      const double angle = static_cast<double>(p) * Frequency(spec, i);
      const double a = x[first];
      const double b = x[second];
      const double bound = (3.1 * 0x1p-24 + 24 * angle * 0x1p-53) * (std::abs(a) + std::abs(b)) * scale;
      EXPECT_NEAR(y[first], (a * std::cos(angle) - b * std::sin(angle)) * scale, bound) << p << " " << i;
      EXPECT_NEAR(y[second], (a * std::sin(angle) + b * std::cos(angle)) * scale, bound) << p << " " << i;
    }
  }
}

TEST(Rope, MatchesFloat64) {
  ExpectMatches(Plain(RopeLayout::kInterleaved, 64), 1);
  ExpectMatches(Plain(RopeLayout::kHalfSplit, 64), 1);
  ExpectMatches(Plain(RopeLayout::kInterleaved, 32, 1000000), 1);
  ExpectMatches(Plain(RopeLayout::kHalfSplit, 2), 1);
  ExpectMatches(Plain(RopeLayout::kInterleaved, 6, 50000), 1);
}

TEST(Rope, MatchesFloat64UnderYarn) {
  ExpectMatches(DeepSeekV3(), 1);
  // mscale and mscale_all_dim differ: cos and sin carry the ratio (0.1 m ln(factor) + 1 of each).
  RopeSpec spec = DeepSeekV3();
  spec.layout = RopeLayout::kHalfSplit;
  spec.mscale = 0.707;
  spec.mscale_all_dim = 0;
  ExpectMatches(spec, 0.1 * 0.707 * std::log(40.0) + 1);
  spec.mscale_all_dim = 1.2;
  ExpectMatches(spec, (0.1 * 0.707 * std::log(40.0) + 1) / (0.1 * 1.2 * std::log(40.0) + 1));
}

RopeSpec Longrope() {
  RopeSpec spec = Plain(RopeLayout::kHalfSplit, 8);
  spec.scaling = RopeScaling::kLongrope;
  spec.original_max_position_embeddings = 256;
  spec.short_factor = {1, 1.25, 2, 4};
  spec.long_factor = {3, 5, 7, 11};
  spec.attention_factor = 1.125;
  return spec;
}

// The context that is served picks the factors, for every position alike: a key that was cached early can't change its
// angle when the sequence grows.
TEST(Rope, LongropeFollowsTheContextServed) {
  const RopeSpec spec = Longrope();
  for (const std::int64_t context : {256, 257}) {
    Result<RopeTable> table = RopeTable::Create(spec, context);
    ASSERT_TRUE(table.ok());
    for (const std::int64_t p : {0, 1, 200, 255}) {
      for (std::int64_t pair = 0; pair < 4; ++pair) {
        const auto at = static_cast<std::size_t>(pair);
        std::vector<float> x(8, 0.0F);
        x[at] = 1;
        table->Rotate(x.data(), p);
        const double factor = (context > 256 ? spec.long_factor : spec.short_factor)[at];
        const double angle = static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(pair) / 4) / factor;
        EXPECT_NEAR(x[at], 1.125 * std::cos(angle), 2e-7) << context << " " << p << " " << pair;
        EXPECT_NEAR(x[at + 4], 1.125 * std::sin(angle), 2e-7) << context << " " << p << " " << pair;
      }
    }
  }
}

TEST(Rope, FingerprintsDifferWhereRowsWould) {
  std::set<std::uint64_t> seen;
  const auto fresh = [&](const RopeSpec& spec, std::int64_t context) {
    return seen.insert(RopeFingerprint(spec, context)).second;
  };
  RopeSpec spec = DeepSeekV3();
  EXPECT_TRUE(fresh(spec, 4096));
  EXPECT_FALSE(fresh(spec, 163840));  // yarn does not follow the context
  const auto changed = [&](auto change) {
    RopeSpec other = DeepSeekV3();
    change(other);
    return fresh(other, 4096);
  };
  EXPECT_TRUE(changed([](RopeSpec& s) { s.layout = RopeLayout::kHalfSplit; }));
  EXPECT_TRUE(changed([](RopeSpec& s) { s.layout = RopeLayout::kNone; }));
  EXPECT_TRUE(changed([](RopeSpec& s) { s.dim = 32; }));
  EXPECT_TRUE(changed([](RopeSpec& s) { s.theta = 50000; }));
  EXPECT_TRUE(changed([](RopeSpec& s) { s.scaling = RopeScaling::kNone; }));
  EXPECT_TRUE(changed([](RopeSpec& s) { s.factor = 32; }));
  EXPECT_TRUE(changed([](RopeSpec& s) { s.original_max_position_embeddings = 8192; }));
  EXPECT_TRUE(changed([](RopeSpec& s) { s.beta_fast = 31; }));
  EXPECT_TRUE(changed([](RopeSpec& s) { s.beta_slow = 2; }));
  EXPECT_TRUE(changed([](RopeSpec& s) { s.mscale = 0.5; }));
  EXPECT_TRUE(changed([](RopeSpec& s) { s.mscale_all_dim = 0.5; }));
  // What a scaling does not use says nothing.
  RopeSpec plain = Plain(RopeLayout::kInterleaved, 64);
  EXPECT_EQ(RopeFingerprint(plain, 1), RopeFingerprint(plain, 1 << 20));
  const std::uint64_t before = RopeFingerprint(plain, 1);
  plain.factor = 40;
  EXPECT_EQ(RopeFingerprint(plain, 1), before);

  EXPECT_TRUE(fresh(Longrope(), 256));
  EXPECT_FALSE(fresh(Longrope(), 1));
  EXPECT_TRUE(fresh(Longrope(), 257));
  EXPECT_FALSE(fresh(Longrope(), 100000));
  RopeSpec longer = Longrope();
  longer.attention_factor = 1;
  EXPECT_TRUE(fresh(longer, 256));
}

// The value is the same on every machine: it goes wherever cache rows go.
TEST(Rope, FingerprintIsFixed) { EXPECT_EQ(RopeFingerprint(DeepSeekV3(), 4096), 0x6b9d80e3bc05c5abULL); }

// Numbers worked out by hand from DeepSeek-V3's config: the ramp runs from pair 10 to pair 23.
// ln(4096 / (32 2 pi)) 32 / ln 10000 = 10.47, and ln(4096 / (2 pi)) 32 / ln 10000 = 22.51.
TEST(Rope, DeepSeekV3Ramp) {
  Result<RopeTable> table = RopeTable::Create(DeepSeekV3(), 2);
  ASSERT_TRUE(table.ok());
  const auto frequency = [&](std::size_t pair) {
    std::vector<float> x(64, 0.0F);
    x[2 * pair] = 1;
    table->Rotate(x.data(), 1);
    return std::atan2(static_cast<double>(x[2 * pair + 1]), static_cast<double>(x[2 * pair]));
  };
  const auto plain = [](std::size_t pair) { return std::pow(10000.0, -static_cast<double>(pair) / 32); };
  for (const std::size_t pair : {0U, 5U, 10U}) EXPECT_NEAR(frequency(pair) / plain(pair), 1, 1e-6) << pair;
  for (const std::size_t pair : {23U, 24U, 31U}) EXPECT_NEAR(frequency(pair) / plain(pair), 1.0 / 40, 1e-6) << pair;
  // Pair 16: 6 of 13 steps up the ramp: 1 - 6/13 (1 - 1/40) = 0.55.
  EXPECT_NEAR(frequency(16) / plain(16), 0.55, 1e-6);
}

// Half-split on channels (even ones, then odd ones) is interleaved on the channels in turn, bit for bit.
TEST(Rope, LayoutsDifferByAPermutation) {
  std::mt19937_64 rng(62);
  RopeSpec spec = DeepSeekV3();
  Result<RopeTable> interleaved = RopeTable::Create(spec, 5000);
  spec.layout = RopeLayout::kHalfSplit;
  Result<RopeTable> halves = RopeTable::Create(spec, 5000);
  ASSERT_TRUE(interleaved.ok() && halves.ok());
  std::vector<float> x = RandomFloats(64, rng);
  std::vector<float> permuted(64);
  for (std::size_t i = 0; i < 32; ++i) {
    permuted[i] = x[2 * i];
    permuted[i + 32] = x[2 * i + 1];
  }
  const std::vector<float> before = x;
  interleaved->Rotate(x.data(), 4321);
  halves->Rotate(permuted.data(), 4321);
  EXPECT_NE(x, before);
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(permuted[i], x[2 * i]);
    EXPECT_EQ(permuted[i + 32], x[2 * i + 1]);
  }
}

TEST(Rope, NoneLeavesChannelsAndTakesNoMemory) {
  std::mt19937_64 rng(63);
  for (const std::int64_t dim : {0, 8}) {
    const RopeSpec spec = Plain(RopeLayout::kNone, dim);
    Result<RopeTable> table = RopeTable::Create(spec, 1000);
    ASSERT_TRUE(table.ok());
    EXPECT_EQ(table->bytes(), 0);
    EXPECT_EQ(RopeTable::Bytes(spec, 1000), 0);
    std::vector<float> x = RandomFloats(8, rng);
    const std::vector<float> before = x;
    table->Rotate(x.data(), 999);
    EXPECT_EQ(x, before);
  }
}

TEST(Rope, PositionZeroIsTheIdentity) {
  std::mt19937_64 rng(64);
  Result<RopeTable> table = RopeTable::Create(Plain(RopeLayout::kInterleaved, 64), 1);
  std::vector<float> x = RandomFloats(64, rng);
  const std::vector<float> before = x;
  table->Rotate(x.data(), 0);
  EXPECT_EQ(x, before);
}

TEST(RopeDeathTest, Misuse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Result<RopeTable> table = RopeTable::Create(Plain(RopeLayout::kInterleaved, 4), 10);
  std::vector<float> x(4);
  EXPECT_DEATH(table->Rotate(x.data(), 10), "check failed.*position.*10 vs 10");
  EXPECT_DEATH((void)RopeTable::Create(Plain(RopeLayout::kInterleaved, 3), 10), "check failed.*dim");
  EXPECT_DEATH((void)RopeTable::Create(Plain(RopeLayout::kHalfSplit, 0), 10), "check failed.*dim");
}

}  // namespace
}  // namespace mla::testing
