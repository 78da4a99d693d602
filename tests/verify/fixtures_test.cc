// Every family's fixture passes all levels that need no text, in fp32 and in bf16: bounds raise no false alarm.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "conformance/data.h"
#include "verify/under_proof.h"

namespace mla::testing {
namespace {

class EveryFixture : public ::testing::TestWithParam<std::string> {};

void ExpectPasses(const UnderProof& fixture, const std::string& kernels = "") {
  verify::Options options;
  options.budget_seconds = 600;
  options.most_tokens = 24;  // a page of 16 and a part, in a test's time
  verify::Subject subject = fixture.subject();
  subject.kernels = kernels;
  const verify::Report report = Need(verify::Verify(subject, options));
  for (int level = 1; level <= verify::kLevels; ++level) {
    EXPECT_EQ(report.OfLevel(level), level == 7 ? verify::Verdict::kNotRun : verify::Verdict::kPass) << level;
  }
  for (const verify::Check& c : report.checks) {
    EXPECT_NE(c.verdict, verify::Verdict::kFail) << c.name << ": " << c.ratio << " at " << c.where;
  }
  EXPECT_EQ(report.Summary(), verify::Verdict::kNotRun);
}

TEST_P(EveryFixture, PassesInBf16) {
  ExpectPasses(UnderProof(ConformanceData(GetParam()), WeightDType::kBF16, DType::kBF16));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, EveryFixture, ::testing::ValuesIn(ConformanceFixtures()),
                         [](const auto& test) { return TestName(test.param); });

TEST(InFp8, Passes) { ExpectPasses(UnderProof(ConformanceData("fp8"), WeightDType::kFp8, DType::kBF16)); }

// What bf16 hides: whole products in fp32, fp8 widened, tied embeddings with three scales.
TEST(InF32, Passes) {
  for (const char* name : {"deepseek_v3", "fp8", "minicpm3_long"}) {
    SCOPED_TRACE(name);
    ExpectPasses(UnderProof(ConformanceData(name), WeightDType::kF32, DType::kF32));
  }
}

// With nothing else in bf16, what products do to their inputs is all the spread there is; or fp32's own errors are.
TEST(InBf16, PassesWithAnF32Cache) {
  for (const char* name : {"deepseek_v3", "fp8"}) {
    SCOPED_TRACE(name);
    const UnderProof fixture(ConformanceData(name), WeightDType::kBF16, DType::kF32);
    ExpectPasses(fixture);
    ExpectPasses(fixture, "portable");
  }
}

}  // namespace
}  // namespace mla::testing
