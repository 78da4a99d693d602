#include "mla/result.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace mla {
namespace {

Result<std::unique_ptr<int>> Make(int value) {
  if (value < 0) return Error{"value: expected at least 0, found " + std::to_string(value)};
  return std::make_unique<int>(value);
}

Result<int> Twice(int value) {
  MLA_ASSIGN_OR_RETURN(const std::unique_ptr<int> made, Make(value));
  return *made * 2;
}

Status CheckBoth(int a, int b) {
  MLA_RETURN_IF_ERROR(Twice(a));
  MLA_RETURN_IF_ERROR(Twice(b));
  return {};
}

TEST(Result, HoldsAMoveOnlyValue) {
  auto made = Make(3);
  ASSERT_TRUE(made.ok());
  std::unique_ptr<int> taken = std::move(made).value();
  EXPECT_EQ(*taken, 3);
}

TEST(Result, ErrorPassesThroughAssignOrReturn) {
  EXPECT_EQ(Twice(4).value(), 8);
  ASSERT_FALSE(Twice(-1).ok());
  EXPECT_EQ(Twice(-1).error().message, "value: expected at least 0, found -1");
}

TEST(Result, ReturnIfErrorStopsAtTheFirst) {
  EXPECT_TRUE(CheckBoth(1, 2).ok());
  ASSERT_FALSE(CheckBoth(-5, -6).ok());
  EXPECT_EQ(CheckBoth(-5, -6).error().message, "value: expected at least 0, found -5");
  EXPECT_FALSE(CheckBoth(1, -6).ok());
}

TEST(Result, ReadingTheWrongSideThrows) {
  const Result<int> good = 1;
  const Result<int> bad = Error{"x"};
  EXPECT_THROW(static_cast<void>(good.error()), std::bad_variant_access);
  EXPECT_THROW(static_cast<void>(bad.value()), std::bad_variant_access);
}

}  // namespace
}  // namespace mla
