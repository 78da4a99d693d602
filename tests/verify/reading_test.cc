// Level 7 on the demo, with text that it was trained on: the config as read is not beaten, and wrong readings of it
// are. Those that take minutes of text to tell (docs/verify.md has them) are left out.
#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "mla/tokenizer.h"
#include "verify/levels.h"
#include "verify/under_proof.h"

namespace mla::testing {
namespace {

using contract::ModelConfig;

const UnderProof& Demo() {
  static const UnderProof demo(DemoDir(), WeightDType::kBF16, DType::kBF16);
  return demo;
}

const std::vector<std::int32_t>& SeenText() {
  static const std::vector<std::int32_t> ids = [] {
    std::ifstream in(DemoDir() + "/seen.txt");
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    return Need(Need(Tokenizer::Load(DemoDir())).Encode(text, Tokenizer::AddedTokens::kAsText));
  }();
  return ids;
}

verify::Report Read(const ModelConfig& config, std::int64_t windows) {
  const verify::Budget budget(600, {});
  verify::Report report;
  const verify::Subject subject(Demo().subject(), config);
  const auto ids = std::span(SeenText()).first(static_cast<std::size_t>(512 * windows));
  Need(verify::ProveReading(subject, ids, budget, &report));
  return report;
}

struct WrongReading {
  std::string name;
  std::int64_t windows;  // of the text, that tell
  std::function<void(ModelConfig&)> change;
};

class Wrong : public ::testing::TestWithParam<WrongReading> {};

TEST_P(Wrong, Loses) {
  if (kUnderSanitizer && GetParam().windows > 1) GTEST_SKIP() << "minutes of the same code";
  ModelConfig config = Demo().opened.config;
  GetParam().change(config);
  const verify::Report report = Read(config, GetParam().windows);
  EXPECT_EQ(report.OfLevel(7), verify::Verdict::kFail);
  for (const verify::Check& c : report.checks) {
    if (c.verdict != verify::Verdict::kFail) continue;
    fmt::print("| 7 | {} | {} | {:.4f} | {:.4f} | {} |\n", GetParam().name, c.name, c.error, c.bound, c.where);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Demo, Wrong,
    ::testing::Values(WrongReading{"HalfSplitRope", 1, [](ModelConfig& c) { c.rope.layout = RopeLayout::kHalfSplit; }},
                      WrongReading{"SoftmaxScores", 4,
                                   [](ModelConfig& c) { c.moe->scoring_func = contract::ScoringFunc::kSoftmax; }},
                      WrongReading{"WeightsNotNormed", 1, [](ModelConfig& c) { c.moe->norm_topk_prob = false; }}),
    [](const auto& test) { return test.param.name; });

TEST(Right, IsNotBeaten) {
  const verify::Report report = Read(Demo().opened.config, 1);
  EXPECT_NE(report.OfLevel(7), verify::Verdict::kFail);
  const auto decided = std::count_if(report.checks.begin(), report.checks.end(),
                                     [](const auto& c) { return c.verdict == verify::Verdict::kPass; });
  EXPECT_GE(decided, 3);
}

TEST(Text, MayBeMissingOrShort) {
  verify::Report report;
  Need(verify::ProveReading(Demo().subject(), {}, verify::Budget(600, {}), &report));
  EXPECT_EQ(report.OfLevel(7), verify::Verdict::kNotRun);
  report = {};
  Need(verify::ProveReading(Demo().subject(), std::span(SeenText()).first(8), verify::Budget(600, {}), &report));
  EXPECT_EQ(report.OfLevel(7), verify::Verdict::kNotRun);
}

}  // namespace
}  // namespace mla::testing
