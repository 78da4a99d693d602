// Every family's fixture passes all levels that need no text, in fp32 and in bf16: bounds raise no false alarm.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "conformance/data.h"
#include "verify/under_proof.h"

namespace mla::testing {
namespace {

std::vector<std::string> Fixtures() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(ConformanceData(""))) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Fixture : public ::testing::TestWithParam<std::string> {};

void ExpectPasses(const UnderProof& fixture) {
  verify::Options options;
  options.budget_seconds = 600;
  const verify::Report report = Need(verify::Verify(fixture.subject(), options));
  for (int level = 1; level <= verify::kLevels; ++level) {
    EXPECT_EQ(report.OfLevel(level), level == 7 ? verify::Verdict::kNotRun : verify::Verdict::kPass) << level;
  }
  for (const verify::Check& c : report.checks) {
    EXPECT_NE(c.verdict, verify::Verdict::kFail) << c.name << ": " << c.ratio << " at " << c.where;
  }
  EXPECT_EQ(report.Summary(), verify::Verdict::kNotRun);
}

TEST_P(Fixture, PassesInBf16) {
  ExpectPasses(UnderProof(ConformanceData(GetParam()), WeightDType::kBF16, DType::kBF16));
}

TEST_P(Fixture, PassesInF32) {
  if (kUnderSanitizer) GTEST_SKIP() << "the same code as in bf16";
  ExpectPasses(UnderProof(ConformanceData(GetParam()), WeightDType::kF32, DType::kF32));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Fixture, ::testing::ValuesIn(Fixtures()),
                         [](const auto& test) { return TestName(test.param); });

}  // namespace
}  // namespace mla::testing
