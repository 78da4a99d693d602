#include "base/check.h"

#include <gtest/gtest.h>

namespace mla {
namespace {

TEST(CheckDeathTest, PrintsPlaceConditionAndBothValues) {
  const int used = 7;
  const int room = 5;
  EXPECT_DEATH(MLA_CHECK_LE(used, room), "check_test.cc:[0-9]+: check failed: used <= room: 7 vs 5");
  EXPECT_DEATH(MLA_CHECK_LT(used, used), "used < used: 7 vs 7");
  EXPECT_DEATH(MLA_CHECK_GE(room, used), "room >= used: 5 vs 7");
  EXPECT_DEATH(MLA_CHECK_EQ(used, room), "used == room: 7 vs 5");
  EXPECT_DEATH(MLA_CHECK(used == room), "check failed: used == room");
}

TEST(Check, EvaluatesItsOperandsOnce) {
  int calls = 0;
  const auto next = [&calls] { return ++calls; };
  MLA_CHECK_EQ(next(), 1);
  MLA_CHECK(next() == 2);
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace mla
