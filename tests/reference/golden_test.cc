// The reference against values that a PyTorch model computed (tools/demo_training/golden.py), also in float64.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reference/demo.h"
#include "reference/reference.h"

namespace mla::reference {
namespace {

using testing::ArgMax;
using testing::Field;
using testing::Golden;
using testing::Ids;

// Golden values are rounded to 9 decimals: 5e-10. float64 itself adds some 1e-13.
constexpr double kTolerance = 1e-9;

constexpr std::int32_t kEndOfSentence = 1;

const ReferenceModel& Demo() {
  static const ReferenceModel model = testing::DemoModel(testing::DemoConfig());
  return model;
}

double LogSumExp(std::span<const double> row) {
  const double largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const double value : row) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

// One prompt, run once: each test is a process of its own under ctest, and the prompt is what takes the time.
class GoldenPrompt : public ::testing::TestWithParam<std::string> {
 protected:
  const io::JsonValue& golden() const { return Field(Golden(), GetParam()); }
  std::span<const double> Row(const std::vector<double>& rows, std::size_t i) const {
    return std::span(rows).subspan(i * vocab_, vocab_);
  }

  void ExpectLogProbabilitiesOfThePrompt() const {
    const auto& expected = Field(golden(), "next_logprobs").items();
    ASSERT_EQ(expected.size(), ids_.size() - 1);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto row = Row(logits_, i);
      const double found = row[static_cast<std::size_t>(ids_[i + 1])] - LogSumExp(row);
      ASSERT_NEAR(found, expected[i].number(), kTolerance) << "position " << i;
    }
  }

  void ExpectLargestLogitsOfTheLastPosition() const {
    const auto expected_ids = Ids(Field(golden(), "last_top8_ids"));
    const auto& expected = Field(golden(), "last_top8_logits").items();
    ASSERT_EQ(expected_ids.size(), 8U);
    ASSERT_EQ(expected.size(), 8U);
    const auto row = Row(logits_, ids_.size() - 1);
    std::vector<std::int32_t> order(vocab_);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + 8, order.end(), [&](std::int32_t a, std::int32_t b) {
      return row[static_cast<std::size_t>(a)] > row[static_cast<std::size_t>(b)];
    });
    order.resize(8);
    EXPECT_EQ(order, expected_ids);
    for (std::size_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(row[static_cast<std::size_t>(expected_ids[i])], expected[i].number(), kTolerance) << "rank " << i;
    }
  }

  void ExpectDraftsOfTheMtpLayer() const {
    const auto expected = Ids(Field(golden(), "mtp_argmax"));
    ASSERT_EQ(expected.size(), ids_.size() - 1);
    const std::vector<double> drafts = Demo().Draft(ids_, hidden_);
    ASSERT_EQ(drafts.size(), expected.size() * vocab_);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(ArgMax(Row(drafts, i)), expected[i]) << "position " << i;
    }
  }

  void ExpectGreedyTokensOneAtATime() {
    const auto expected = Ids(Field(golden(), "greedy"));
    ASSERT_FALSE(expected.empty());
    ASSERT_TRUE(expected.size() == 48 || expected.back() == kEndOfSentence);
    std::vector<std::int32_t> found = {ArgMax(Row(logits_, ids_.size() - 1))};
    while (found.size() < expected.size()) {
      found.push_back(ArgMax(Demo().Append(state_, std::span(found).last(1))));
    }
    EXPECT_EQ(found, expected);
  }

  const std::size_t vocab_ = static_cast<std::size_t>(Demo().config().vocab_size);
  ReferenceModel::State state_ = Demo().NewState();
  std::vector<std::int32_t> ids_;
  std::vector<double> hidden_;
  std::vector<double> logits_;
};

TEST_P(GoldenPrompt, IsWhatPyTorchComputed) {
  ids_ = Ids(Field(golden(), "ids"));
  logits_ = Demo().Append(state_, ids_, &hidden_);
  ASSERT_EQ(logits_.size(), ids_.size() * vocab_);
  ASSERT_EQ(state_.length(), static_cast<std::int64_t>(ids_.size()));
  ExpectLogProbabilitiesOfThePrompt();
  ExpectLargestLogitsOfTheLastPosition();
  ExpectDraftsOfTheMtpLayer();
  ExpectGreedyTokensOneAtATime();
}

const std::vector<std::string> kPrompts = {"genesis",   "and",       "came_to_pass", "psalm",
                                           "chat",      "chat_ask",  "jonah_long",   "unicode",
                                           "tokens_63", "tokens_64", "tokens_65",    "tokens_128"};
INSTANTIATE_TEST_SUITE_P(Demo, GoldenPrompt, ::testing::ValuesIn(kPrompts),
                         [](const auto& test) { return test.param; });

TEST(GoldenFile, HasTheseCasesAndNoMore) {
  std::vector<std::string> names;
  for (const auto& [name, value] : Golden().members()) names.push_back(name);
  EXPECT_EQ(names, kPrompts);
}

}  // namespace
}  // namespace mla::reference
