// Quantiles, limits and shares against numbers worked out by hand.
#include "bench/measure.h"

#include <vector>

#include <gtest/gtest.h>

#include "bench/case_result.h"
#include "mla/executor.h"

namespace mla::bench {
namespace {

TEST(Quantile, LiesBetweenNeighbours) {
  const std::vector<double> samples = {40, 10, 30, 20};  // any order
  EXPECT_DOUBLE_EQ(Quantile(samples, 0), 10);
  EXPECT_DOUBLE_EQ(Quantile(samples, 0.1), 13);  // at 0.3 of the way from the first to the second
  EXPECT_DOUBLE_EQ(Quantile(samples, 0.5), 25);
  EXPECT_DOUBLE_EQ(Quantile(samples, 0.9), 37);
  EXPECT_DOUBLE_EQ(Quantile(samples, 1), 40);
  EXPECT_DOUBLE_EQ(Quantile(std::vector<double>{7}, 0.9), 7);
}

TEST(Summarise, OfElevenIsTheSecondTheSixthAndTheTenth) {
  std::vector<double> samples;
  for (int i = 11; i >= 1; --i) samples.push_back(i * i);
  const Summary s = Summarise(samples);
  EXPECT_DOUBLE_EQ(s.p10, 4);
  EXPECT_DOUBLE_EQ(s.median, 36);
  EXPECT_DOUBLE_EQ(s.p90, 100);
  EXPECT_EQ(s.count, 11);
}

TEST(Judge, TakesTheNearerLimit) {
  Work work;
  work.operations = 600;
  work.bytes = 90;
  const Judgement compute = Judge(work, {100, 0, 30}, 8);  // 6 s of products, 3 s of reading
  EXPECT_DOUBLE_EQ(compute.compute_seconds, 6);
  EXPECT_DOUBLE_EQ(compute.memory_seconds, 3);
  EXPECT_EQ(compute.bound, Bound::kCompute);
  EXPECT_DOUBLE_EQ(compute.share, 0.75);
  const Judgement memory = Judge(work, {100, 0, 10}, 12);  // 9 s of reading
  EXPECT_EQ(memory.bound, Bound::kMemory);
  EXPECT_DOUBLE_EQ(memory.share, 0.75);
}

TEST(Judge, AddsThePartInFp32AtItsOwnRate) {
  Work work;
  work.operations = 600;
  work.f32_operations = 50;
  work.bytes = 30;
  const Judgement j = Judge(work, {100, 25, 30}, 16);
  EXPECT_DOUBLE_EQ(j.compute_seconds, 8);
  EXPECT_DOUBLE_EQ(j.share, 0.5);
}

TEST(CaseResult, CountsBothParts) {
  CaseResult result;
  result.work.operations = 600;
  result.work.f32_operations = 50;
  result.work.peak = PeakKind::kF32Portable;
  result.measured.rates = {100, 25, 30};
  result.measured.seconds.median = 16;
  EXPECT_DOUBLE_EQ(result.operations(), 650);
  EXPECT_DOUBLE_EQ(result.judgement().share, 0.5);
}

struct Calls {
  int prepared = 0;
  int run = 0;
  int read = 0;
};

Measured Count(const Repeats& repeats, Calls* calls) {
  const auto pool = MakeThreadPool(1);
  Probe probe(*pool, CpuInfo{});
  Timed timed;
  timed.prepare = [calls] { EXPECT_EQ(++calls->prepared, calls->run + 1); };  // each run is prepared
  timed.run = [calls] { ++calls->run; };
  timed.read = [calls] { return static_cast<double>(++calls->read); };
  Work work;
  work.bytes = 1;
  return MeasureCase(probe, work, timed, repeats);
}

TEST(MeasureCase, RepeatsAsOftenAsAsked) {
  Calls calls;
  const Measured measured = Count({1000, 10}, &calls);
  EXPECT_EQ(measured.seconds.count, 10);
  EXPECT_EQ(calls.run, 11);  // one to warm up
  EXPECT_EQ(calls.read, 4);
  EXPECT_DOUBLE_EQ(measured.rates.read, 2.5);  // the mean of the four
  EXPECT_EQ(measured.rates.peak, 0);           // nothing to compute, nothing measured
}

TEST(MeasureCase, RepeatsThreeTimesAtLeast) {
  for (const Repeats& repeats : {Repeats{0, 1000}, Repeats{1000, 1}}) {
    Calls calls;
    EXPECT_EQ(Count(repeats, &calls).seconds.count, 3);
  }
}

}  // namespace
}  // namespace mla::bench
