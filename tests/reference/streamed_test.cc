// The model a layer at a time is the model; its rounded runs are as far from it as what they round.
#include "reference/streamed.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "conformance/data.h"
#include "contract/tensors.h"
#include "io/checkpoint.h"
#include "mla/dtypes.h"
#include "reference/reference.h"
#include "reference/rounding.h"
#include "reference/tensor_reader.h"

namespace mla::reference {
namespace {

using testing::ConformanceData;
using testing::Need;

struct Source {
  explicit Source(const std::string& name)
      : config(Need(contract::LoadConfig(ConformanceData(name)))),
        checkpoint(Need(io::Checkpoint::Open(ConformanceData(name)))),
        ids(testing::RandomIds(9, config.vocab_size, 3)) {}

  StreamedResult Run(StreamedOptions options, int threads = 1) const {
    options.context = std::ssize(ids);
    const auto pool = MakeThreadPool(threads);
    return RunStreamed(config, checkpoint, ids, options, *pool).value();
  }

  contract::ModelConfig config;
  io::Checkpoint checkpoint;
  std::vector<std::int32_t> ids;
};

double Norm(const double* x, std::int64_t n) { return std::sqrt(Dot(x, x, n)); }

class Streamed : public ::testing::TestWithParam<std::string> {};

TEST_P(Streamed, IsTheWholeModel) {
  const Source source(GetParam());
  const auto model = Need(ReferenceModel::Load(source.config, source.checkpoint, std::ssize(source.ids)));
  auto state = model.NewState();
  const std::vector<double> whole = model.Append(state, source.ids);
  StreamedOptions options;
  options.rounded_runs = 0;
  EXPECT_EQ(source.Run(options).logits, whole);
  options.first_logits = 5;
  const std::vector<double> last = source.Run(options).logits;
  EXPECT_TRUE(std::equal(last.begin(), last.end(), whole.begin() + 5 * source.config.vocab_size));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Streamed, ::testing::Values("deepseek_v3", "fp8", "minicpm3_long", "moonlight"),
                         [](const auto& test) { return testing::TestName(test.param); });

TEST(Spread, GrowsWithWhatIsRounded) {
  const Source source("fp8");  // its weights are not in bf16
  const auto spread = [&](const Bf16Parts& bf16) {
    StreamedOptions options;
    options.bf16 = bf16;
    const StreamedResult result = source.Run(options);
    // Of the last row, which sees them all.
    return result.spread.back() / Norm(result.logits.data() + 8 * source.config.vocab_size, source.config.vocab_size);
  };
  const double f32 = spread({});
  const double cache = spread({.cache = true});
  const double both = spread({.cache = true, .weights = true});
  const double inputs = spread({.cache = true, .weights = true, .inputs = true});
  const double all = spread({.cache = true, .weights = true, .inputs = true, .attention = true});
  // Weights in fp32, attention in bf16.
  const double attention = spread({.cache = true, .attention = true});
  // fp32's unit times some hundred; bf16's is 2^16 times as large.
  EXPECT_GT(f32, 0x1p-24);
  EXPECT_LT(f32, 0x1p-14);
  EXPECT_GT(cache, 0x1p-12);
  EXPECT_LT(cache, 0x1p-3);
  EXPECT_GT(both, cache);
  EXPECT_GT(inputs, both);
  EXPECT_GT(all, inputs);
  EXPECT_GT(attention, cache);
  EXPECT_LT(attention, all);
  EXPECT_LT(all, 0x1p-1);
}

TEST(Spread, DoesNotDependOnTheWorkers) {
  const Source source("deepseek_v3");
  StreamedOptions options;
  options.bf16 = {.cache = true, .inputs = true};
  const StreamedResult one = source.Run(options, 1);
  const StreamedResult three = source.Run(options, 3);
  EXPECT_EQ(one.spread, three.spread);
  EXPECT_EQ(one.choices, three.choices);
  ASSERT_EQ(one.choices.size(), 3U);
  EXPECT_TRUE(one.choices[0].empty());  // dense
  EXPECT_EQ(one.choices[1].size(), source.ids.size());
}

TEST(Stop, EndsTheRun) {
  const Source source("moonlight");
  StreamedOptions options;
  options.stop = [] { return true; };
  const auto pool = MakeThreadPool(1);
  EXPECT_FALSE(RunStreamed(source.config, source.checkpoint, source.ids, options, *pool).has_value());
}

TEST(Rounding, TakesEitherNeighbour) {
  Rounding rounding(1, {.cache = true, .weights = true});
  for (const double exact : {0.0, 1.0, -1.5, 0x1.02p10, -0x1.fep-20}) EXPECT_EQ(rounding.ToBf16(exact), exact);
  // 1 + 2^-9 lies between 1 and 1 + 2^-7; just below 2 the next one up is 2.
  const auto expect_both = [&](double x, double below, double above) {
    int up = 0;
    for (int i = 0; i < 1000; ++i) {
      const double rounded = rounding.ToBf16(x);
      ASSERT_TRUE(rounded == below || rounded == above) << rounded;
      up += rounded == above ? 1 : 0;
    }
    EXPECT_GT(up, 400);
    EXPECT_LT(up, 600);
  };
  expect_both(1 + 0x1p-9, 1, 1 + 0x1p-7);
  expect_both(-2 + 0x1p-20, -2 + 0x1p-7, -2);
}

TEST(NearestBf16, IsTheNearestAndOfTwoTheEvenOne) {
  const std::pair<double, double> cases[] = {{0, 0},
                                             {1, 1},
                                             {-1.5, -1.5},
                                             {1 + 0x1p-8, 1},                     // as near: the even one
                                             {1 + 3 * 0x1p-8, 1 + 0x1p-6},        // as near: the even one
                                             {1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-7},  // nearer above
                                             {1 + 3 * 0x1p-8 - 0x1p-40, 1 + 0x1p-7},
                                             {-2 + 0x1p-20, -2},
                                             {-2 + 0x1p-8, -2},
                                             {0x1.fffp100, 0x1p101},
                                             {0x1p-126, 0x1p-126},
                                             {-0x1.8p-127, 0}};
  for (const auto& [x, nearest] : cases) EXPECT_EQ(NearestBf16(x), nearest) << x;
  std::mt19937_64 rng(4);
  for (int i = 0; i < 10000; ++i) {
    const auto x = static_cast<float>(std::ldexp(static_cast<double>(rng() % 100000) - 50000.0, int(rng() % 40) - 20));
    EXPECT_EQ(NearestBf16(static_cast<double>(x)), static_cast<double>(FloatFromBf16(Bf16FromFloat(x)))) << x;
  }
}

TEST(Rounding, ErrorsHaveTheSizeAskedFor) {
  Rounding rounding(2, {});
  double sum = 0;
  double squares = 0;
  constexpr int kCount = 20000;
  for (int i = 0; i < kCount; ++i) {
    const double error = (rounding.WithError(3, 5) - 3) / (kUnitF32 * 5);
    sum += error / kCount;
    squares += error * error / kCount;
  }
  EXPECT_NEAR(sum, 0, 0.03);  // four standard errors
  EXPECT_NEAR(squares, 1, 0.03);
}

TEST(DotWithSquares, AreThreeSums) {
  const std::vector<double> a = {1, -2, 3, 0.5, 4, -1, 2};
  const std::vector<double> b = {2, 1, -1, 4, 0.25, 3, 1};
  const DotSums sums = DotWithSquares(a.data(), b.data(), 7);
  EXPECT_EQ(sums.sum, 2 - 2 - 3 + 2 + 1 - 3 + 2);
  EXPECT_EQ(sums.absolute, 2 + 2 + 3 + 2 + 1 + 3 + 2);
  EXPECT_EQ(sums.squares, 4 + 4 + 9 + 4 + 1 + 9 + 4);
}

}  // namespace
}  // namespace mla::reference
