#include "bench/serve_load.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mla::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

LoadOptions Options() {
  LoadOptions o;
  o.requests = 4000;
  o.rate = 50;
  o.prompt = {3, 48};
  o.output = {1, 16};
  return o;
}

TEST(ServeLoad, PoissonGapsHaveTheRateAndItsSpread) {
  const auto load = MakeLoad(Options());
  std::vector<double> gaps;
  for (std::size_t i = 1; i < load.size(); ++i) gaps.push_back(load[i].arrival - load[i - 1].arrival);
  double mean = 0;
  for (const double gap : gaps) mean += gap / static_cast<double>(gaps.size());
  double variance = 0;
  for (const double gap : gaps) variance += (gap - mean) * (gap - mean) / static_cast<double>(gaps.size());
  // Of n exponential gaps the mean deviates by 1 / (rate sqrt(n)), and so does the standard deviation, twice as far.
  const double deviation = 1 / (50 * std::sqrt(4000.0));
  EXPECT_NEAR(mean, 1.0 / 50, 4 * deviation);
  EXPECT_NEAR(std::sqrt(variance), 1.0 / 50, 8 * deviation);
}

TEST(ServeLoad, EvenArrivalsAndAllAtOnce) {
  LoadOptions o = Options();
  o.arrivals = Arrivals::kEven;
  const auto even = MakeLoad(o);
  EXPECT_DOUBLE_EQ(even[100].arrival, 2);
  o.rate = 0;
  for (const LoadRequest& r : MakeLoad(o)) EXPECT_EQ(r.arrival, 0);
}

TEST(ServeLoad, LengthsFillTheirRange) {
  LoadOptions o = Options();
  for (const Lengths lengths : {Lengths::kUniform, Lengths::kLogUniform}) {
    o.lengths = lengths;
    std::set<std::int64_t> seen;
    std::int64_t short_ones = 0;
    for (const LoadRequest& r : MakeLoad(o)) {
      seen.insert(r.prompt_tokens);
      // 3 to 11 of 3 to 48: two of the four doublings, but a fifth of the numbers.
      short_ones += r.prompt_tokens < 12 ? 1 : 0;
    }
    EXPECT_EQ(seen.size(), 46U);
    const std::vector<std::int64_t> drawn = DrawLengths(4000, o.prompt, lengths, 7);
    EXPECT_EQ(std::set<std::int64_t>(drawn.begin(), drawn.end()), seen);
    EXPECT_EQ(drawn, DrawLengths(4000, o.prompt, lengths, 7));
    EXPECT_NE(drawn, DrawLengths(4000, o.prompt, lengths, 8));
    EXPECT_EQ(*seen.begin(), 3);
    EXPECT_EQ(*seen.rbegin(), 48);
    const double expected = lengths == Lengths::kUniform ? 9.0 / 46 : std::log(12.0 / 3) / std::log(49.0 / 3);
    EXPECT_NEAR(static_cast<double>(short_ones) / 4000, expected, 4 * std::sqrt(expected * (1 - expected) / 4000));
  }
}

TEST(ServeLoad, SharesOfPrefixesAndCancels) {
  LoadOptions o = Options();
  o.prefix_tokens = 100;
  o.prefix_share = 0.25;
  o.prefixes = 3;
  o.cancelled = 0.1;
  std::int64_t prefixed = 0;
  std::int64_t cancelled = 0;
  for (const LoadRequest& r : MakeLoad(o)) {
    prefixed += r.prefix >= 0 ? 1 : 0;
    EXPECT_EQ(r.prefix_tokens, r.prefix >= 0 ? 100 : 0);
    EXPECT_LT(r.prefix, 3);
    EXPECT_GT(r.prompt_tokens, r.prefix_tokens);
    cancelled += r.cancel_after >= 0 ? 1 : 0;
    EXPECT_NE(r.cancel_after, 0);
    EXPECT_LE(r.cancel_after, r.output_tokens);
  }
  EXPECT_NEAR(prefixed, 1000, 4 * std::sqrt(750));
  EXPECT_NEAR(cancelled, 400, 4 * std::sqrt(360));
}

TEST(ServeLoad, PromptsShareTheirPrefixesAndNothingElse) {
  LoadRequest r;
  r.prefix = 1;
  r.prefix_tokens = 40;
  r.prompt_tokens = 100;
  const auto a = PromptIds(r, 0, 1000, 7);
  const auto b = PromptIds(r, 1, 1000, 7);
  r.prefix = 0;
  const auto c = PromptIds(r, 0, 1000, 7);
  ASSERT_EQ(a.size(), 100U);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 40, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + 40, a.begin() + 50, b.begin() + 40));
  EXPECT_FALSE(std::equal(a.begin(), a.begin() + 10, c.begin()));
  EXPECT_TRUE(std::all_of(a.begin(), a.end(), [](std::int32_t id) { return id >= 0 && id < 1000; }));
  EXPECT_EQ(a, PromptIds({.prefix = 1, .prefix_tokens = 40, .prompt_tokens = 100}, 0, 1000, 7));
  EXPECT_NE(a, PromptIds({.prefix = 1, .prefix_tokens = 40, .prompt_tokens = 100}, 0, 1000, 8));
}

TEST(ServeLoad, ATraceIsReadAndSorted) {
  const auto load = ParseTrace(R"({"arrival": 2, "prompt_tokens": 5, "output_tokens": 6}

{"arrival": 0.5, "prompt_tokens": 9, "output_tokens": 1, "prefix": "b", "prefix_tokens": 8}
{"arrival": 1, "prompt_tokens": 9, "output_tokens": 1, "prefix": "a", "prefix_tokens": 9}
{"arrival": 1, "prompt_tokens": 10, "output_tokens": 1, "prefix": "b", "prefix_tokens": 8})",
                               "trace");
  ASSERT_TRUE(load.ok()) << load.error().message;
  ASSERT_EQ(load->size(), 4U);
  EXPECT_EQ((*load)[0].arrival, 0.5);
  EXPECT_EQ((*load)[3].prompt_tokens, 5);
  EXPECT_EQ((*load)[3].prefix, -1);
  EXPECT_EQ((*load)[0].prefix, (*load)[2].prefix);
  EXPECT_NE((*load)[0].prefix, (*load)[1].prefix);
}

TEST(ServeLoad, ATraceThatIsNoneIsRefusedByLine) {
  const auto fault = [](const std::string& text) {
    const auto load = ParseTrace(text, "trace");
    return load.ok() ? "accepted" : load.error().message;
  };
  const std::string good = R"({"arrival": 0, "prompt_tokens": 5, "output_tokens": 6})";
  EXPECT_EQ(fault(good), "accepted");
  EXPECT_THAT(fault("\n \n"), HasSubstr("found none"));
  EXPECT_THAT(fault(good + "\n{"), StartsWith("trace: line 2"));
  EXPECT_THAT(fault("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(fault(R"({"arrival": -1, "prompt_tokens": 5, "output_tokens": 6})"), HasSubstr("arrival: expected"));
  EXPECT_THAT(fault(R"({"arrival": 0, "prompt_tokens": 0, "output_tokens": 6})"), HasSubstr("prompt_tokens: expected"));
  EXPECT_THAT(fault(R"({"arrival": 0, "prompt_tokens": 5})"), HasSubstr("output_tokens: expected"));
  EXPECT_THAT(fault(R"({"arrival": 0, "prompt_tokens": 5, "output_tokens": 6, "prefix": 1, "prefix_tokens": 2})"),
              HasSubstr("prefix: expected a name"));
  EXPECT_THAT(fault(R"({"arrival": 0, "prompt_tokens": 5, "output_tokens": 6, "prefix": "a", "prefix_tokens": 6})"),
              HasSubstr("at most the 5"));
}

}  // namespace
}  // namespace mla::bench
