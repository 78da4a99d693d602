// Rotary positions to 200,000 against cos and sin at fifty digits, from the config on: plain, YaRN and LongRoPE as
// published models set them.
#include "reference/rope.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "conformance/data.h"
#include "contract/config.h"
#include "mla/attention.h"

namespace mla::testing {
namespace {

const io::JsonValue& Tables() {
  static const io::JsonValue tables = Need(io::ReadJsonFile(ConformanceData("rope.json")));
  return tables;
}

struct Table {
  explicit Table(std::size_t i)
      : json(Tables().items()[i]),
        config(Need(contract::ParseConfig(Member(json, "config").string(), Member(json, "name").string()))),
        context(Member(json, "context").integer()),
        positions(NumbersOf<std::int64_t>(Member(json, "positions"))),
        pairs(NumbersOf<std::int64_t>(Member(json, "pairs"))) {}

  double cos(std::size_t p, std::size_t i) const { return Member(json, "cos").items().at(p).items().at(i).number(); }
  double sin(std::size_t p, std::size_t i) const { return Member(json, "sin").items().at(p).items().at(i).number(); }

  const io::JsonValue& json;
  contract::ModelConfig config;
  std::int64_t context;
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> pairs;
};

// What the angle at position p may be off by in float64. The frequency theta^(-2i/P) comes from an exponent of at most
// ln 1e7 = 16.1, rounded to 2^-53 of it; the power, the ramp or divisor and the product with p add a handful of
// roundings: 24 times 2^-53 of an angle of at most p. Cos and sin carry a factor below 2.
double AngleError(std::int64_t position) { return 2 * 24 * 0x1p-53 * static_cast<double>(position); }

class RopeTables : public ::testing::TestWithParam<std::size_t> {};

// The unit vectors of a pair are rotated without rounding: each channel shows the table's own float, within half a unit
// in the last place of cos or sin.
TEST_P(RopeTables, Production) {
  const Table expected(GetParam());
  const RopeSpec& spec = expected.config.rope;
  const auto table = Need(RopeTable::Create(spec, expected.context));
  const std::int64_t half = spec.dim / 2;
  ASSERT_NE(spec.layout, RopeLayout::kNone);
  const bool interleaved = spec.layout == RopeLayout::kInterleaved;
  for (std::size_t p = 0; p < expected.positions.size(); ++p) {
    const std::int64_t position = expected.positions[p];
    for (std::size_t i = 0; i < expected.pairs.size(); ++i) {
      const std::int64_t pair = expected.pairs[i];
      const auto a = static_cast<std::size_t>(interleaved ? 2 * pair : pair);
      const auto b = static_cast<std::size_t>(interleaved ? 2 * pair + 1 : pair + half);
      std::vector<float> x(static_cast<std::size_t>(spec.dim), 0.0F);
      std::vector<float> y = x;
      x[a] = 1;
      y[b] = 1;
      table.Rotate(x.data(), position);
      table.Rotate(y.data(), position);
      const double cos = expected.cos(p, i);
      const double sin = expected.sin(p, i);
      const double cos_bound = 0x1p-24 * std::abs(cos) + AngleError(position);
      const double sin_bound = 0x1p-24 * std::abs(sin) + AngleError(position);
      EXPECT_NEAR(x[a], cos, cos_bound) << "position " << position << ", pair " << pair;
      EXPECT_NEAR(x[b], sin, sin_bound) << "position " << position << ", pair " << pair;
      EXPECT_NEAR(y[a], -sin, sin_bound) << "position " << position << ", pair " << pair;
      EXPECT_NEAR(y[b], cos, cos_bound) << "position " << position << ", pair " << pair;
    }
  }
}

TEST_P(RopeTables, Reference) {
  const Table expected(GetParam());
  const RopeSpec& spec = expected.config.rope;
  const std::vector<double> frequencies = reference::RopeFrequencies(spec, expected.context);
  for (std::size_t p = 0; p < expected.positions.size(); ++p) {
    const std::int64_t position = expected.positions[p];
    const reference::RopeAngles angles = reference::AnglesAt(spec, frequencies, position);
    const double bound = AngleError(position) + 8 * 0x1p-53;
    for (std::size_t i = 0; i < expected.pairs.size(); ++i) {
      const auto pair = static_cast<std::size_t>(expected.pairs[i]);
      EXPECT_NEAR(angles.cos.at(pair), expected.cos(p, i), bound) << "position " << position << ", pair " << pair;
      EXPECT_NEAR(angles.sin.at(pair), expected.sin(p, i), bound) << "position " << position << ", pair " << pair;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Published, RopeTables, ::testing::Range(std::size_t{0}, Tables().items().size()),
                         [](const auto& test) { return TestName(Member(Tables().items()[test.param], "name").string()); });

TEST(RopeVectors, AreThere) { EXPECT_EQ(Tables().items().size(), 11U); }

}  // namespace
}  // namespace mla::testing
