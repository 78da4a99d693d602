// mla bench crossover: grid, rules, regret and crossings, over times that are made up.
#include "bench/crossover.h"

#include <cmath>
#include <map>
#include <string>

#include <gtest/gtest.h>

namespace mla::bench {
namespace {

constexpr MlaDims kV3{128, 128, 64, 128, 512};

CrossoverPoint Point(std::int64_t rows, std::int64_t keys, double mha, double absorbed) {
  CrossoverPoint point;
  point.rows = rows;
  point.keys = keys;
  point.pairs = {{mha, mha, mha}, {absorbed, absorbed, absorbed}};
  return point;
}

TEST(Crossover, GridHoldsEveryPower) {
  const std::vector<CrossoverPoint> points = CrossoverGrid(2048, 32768, 2);
  EXPECT_EQ(points.size(), 78U + 4 * 12);  // 1 + ... + 12 up to 2,048 keys, then 12 each
  for (const CrossoverPoint& p : points) EXPECT_LE(p.rows, p.keys);
  EXPECT_EQ(points.back().rows, 2048);
  EXPECT_EQ(points.back().keys, 32768);
  EXPECT_EQ(CrossoverGrid(2048, 32768, 4).size(), 21U + 2 * 6);
}

TEST(Crossover, OtherRulesAtTheirBorders) {
  FormTable table;
  table.id = "measured";
  std::map<std::string, FormRule> rules;
  for (const FormRule& rule : FormRules(table, kV3)) rules[rule.name] = rule;
  const auto mha = [&](const char* name, std::int64_t rows, std::int64_t cached) {
    return rules.at(name).choose(rows, rows + cached) == Form::kMha;
  };
  EXPECT_TRUE(mha("SGLang", 2, 0));
  EXPECT_FALSE(mha("SGLang", 2048, 1));
  EXPECT_FALSE(mha("SGLang", 2048, 8191));
  EXPECT_TRUE(mha("SGLang", 2, 8192));
  EXPECT_FALSE(mha("SGLang", 1, 8192));
  EXPECT_FALSE(mha("vLLM, 128", 128, 0));
  EXPECT_TRUE(mha("vLLM, 128", 129, 9));
  EXPECT_FALSE(mha("vLLM, 512", 512, 100000));
  EXPECT_TRUE(mha("vLLM, 512", 513, 0));
  EXPECT_TRUE(mha("mha", 1, 9));
  EXPECT_FALSE(mha("absorbed", 2048, 0));
  EXPECT_FALSE(mha("auto", 167, 4096 - 167));
  EXPECT_TRUE(mha("auto", 168, 4096 - 168));
  EXPECT_EQ(rules.count("auto, shipped"), 1U);
  EXPECT_EQ(FormRules(FormTable(), kV3).size(), rules.size() - 1);
}

TEST(Crossover, RegretIsTimeOverTheBetterForms) {
  std::vector<CrossoverPoint> points = {Point(1, 64, 3, 1), Point(8, 64, 2, 1), Point(64, 64, 1, 1.5)};
  points.push_back(CrossoverPoint{32, 64, {}});  // not measured
  const FormRule mha = {"mha", "", [](auto, auto) { return Form::kMha; }};
  const RuleResult result = Judge(mha, points);
  EXPECT_EQ(result.points, 3);
  EXPECT_EQ(result.other_form, 2);
  EXPECT_NEAR(result.mean, std::cbrt(6.0) - 1, 1e-12);
  EXPECT_NEAR(result.worst, 2, 1e-12);
  EXPECT_EQ(result.worst_rows, 1);
  EXPECT_EQ(result.worst_keys, 64);
  const FormRule best = {"best", "", [](auto rows, auto) { return rows == 64 ? Form::kMha : Form::kAbsorbed; }};
  EXPECT_EQ(Judge(best, points).mean, 0);
  EXPECT_EQ(Judge(best, points).other_form, 0);
}

// Times whose ratio is a power of the rows: 100 / T crosses 1 at T = 100, between 64 and 128 on logarithmic scales.
TEST(Crossover, CrossingsBetweenPoints) {
  std::vector<CrossoverPoint> points;
  for (std::int64_t rows = 1; rows <= 512; rows *= 2) points.push_back(Point(rows, 4096, 100.0 / rows, 1));
  for (std::int64_t rows = 1; rows <= 512; rows *= 2) points.push_back(Point(rows, 8192, 2, 1));
  // A single point below the others, by noise, is no crossing.
  points[2].pairs.mha = {0.5, 0.5, 0.5};
  const std::vector<Crossings> crossings = CrossingsOf(FormTable(), kV3, points);
  ASSERT_EQ(crossings.size(), 2U);
  EXPECT_NEAR(*crossings[0].measured, 100, 1e-9);
  EXPECT_NEAR(*crossings[0].closed, 163.84, 0.01);
  EXPECT_EQ(*crossings[0].causal, 168);
  EXPECT_EQ(*crossings[0].table, 168);
  EXPECT_FALSE(crossings[1].measured);
  EXPECT_FALSE(CrossingsOf(FormTable(), {8, 64, 16, 64, 64}, points)[0].closed);
}

}  // namespace
}  // namespace mla::bench
