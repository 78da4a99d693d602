// Verdicts and summaries, and the sums that bounds are made of.
#include "verify/report.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "verify/bounds.h"

namespace mla::verify {
namespace {

Check Of(int level, Verdict verdict) {
  Check check;
  check.level = level;
  check.verdict = verdict;
  return check;
}

Report All(Verdict verdict) {
  Report report;
  for (int level = 1; level <= kLevels; ++level) report.Add(Of(level, verdict));
  return report;
}

TEST(Summary, OfLevels) {
  EXPECT_EQ(All(Verdict::kPass).Summary(), Verdict::kPass);
  Report report = All(Verdict::kPass);
  report.Add(Of(3, Verdict::kInfo));
  EXPECT_EQ(report.Summary(), Verdict::kPass);
  report.NotRun(7, "reading", "no text");
  EXPECT_EQ(report.OfLevel(7), Verdict::kNotRun);
  EXPECT_EQ(report.Summary(), Verdict::kNotRun);
  report.Add(Of(2, Verdict::kFail));
  EXPECT_EQ(report.OfLevel(2), Verdict::kFail);
  EXPECT_EQ(report.Summary(), Verdict::kFail);
  // A level that nobody looked at, or that told something without a verdict, was not run.
  EXPECT_EQ(Report().OfLevel(1), Verdict::kNotRun);
  EXPECT_EQ(All(Verdict::kInfo).Summary(), Verdict::kNotRun);
}

TEST(Tally, KeepsTheWorstPlaceByItsOwnBound) {
  Tally tally(1, "x");
  tally.Add(3, 10, 2, {4, 5});
  tally.Add(1, 2, 2, {7, 8, 9});
  tally.Add(0, 0, 0, {1});
  const Check check = tally.Finish();
  EXPECT_EQ(check.verdict, Verdict::kPass);
  EXPECT_EQ(check.ratio, 0.5);
  EXPECT_EQ(check.error, 0.5);
  EXPECT_EQ(check.bound, 1);
  EXPECT_EQ(check.where, "layer 7, position 8, head 9");
  EXPECT_EQ(check.values, 3);
}

TEST(Tally, NoNumberPasses) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto& [error, bound] : {std::pair{nan, 1.0}, {1.0, nan}, {nan, nan}, {infinity, infinity}, {1e-30, 0.0}}) {
    Tally tally(1, "x");
    tally.Add(error, bound, 1, {});
    tally.Add(0, 1, 1, {});
    EXPECT_EQ(tally.Finish().verdict, Verdict::kFail) << error << " " << bound;
  }
}

TEST(Tally, OfNothingIsNotRun) {
  Tally tally(1, "x");
  EXPECT_EQ(tally.Finish("why").verdict, Verdict::kNotRun);
  EXPECT_EQ(tally.Finish("why").note, "why");
}

// Sums in fp32, in order: within the bound, and not so far within it that it could hide a fault.
TEST(SumError, HoldsForSumsInOrder) {
  std::uint64_t state = 1;
  const auto next = [&] {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<float>(static_cast<std::int64_t>(state) >> 40) * 0x1p-24F;
  };
  for (const std::int64_t n : {1, 2, 63, 1000, 20000}) {
    double worst = 0;
    for (int trial = 0; trial < 50; ++trial) {
      float sum = 0;
      double exact = 0;
      double absolute = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        const float a = next();
        const float b = next();
        const double product = static_cast<double>(a) * static_cast<double>(b);
        sum = std::fma(a, b, sum);
        exact += product;
        absolute += std::abs(product);
      }
      worst = std::max(worst, std::abs(static_cast<double>(sum) - exact) / (SumError(n) * absolute));
    }
    EXPECT_LE(worst, 1) << n;
    EXPECT_GE(worst, 1e-3) << n;
  }
}

}  // namespace
}  // namespace mla::verify
