// The kernel tables themselves: the algebra of partial softmaxes with its empty state, and the small movers.
#include "attention/kernels.h"

#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "attention/harness.h"
#include "attention/scratch.h"
#include "base/cpu_info.h"

namespace mla::testing {
namespace {

using attention::AttentionKernels;
using attention::States;

constexpr float kInf = std::numeric_limits<float>::infinity();

// bf16 products alone tell avx512bf16 and amx from avx512: their attention is the same.
std::string TableName(const std::string& set) { return RoundsInputs(set) ? "avx512" : set; }

const AttentionKernels& Table(const std::string& set) {
  const std::string name = TableName(set);
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
  if (name == "avx512") return attention::kAttentionAvx512;
  if (name == "avx2") return attention::kAttentionAvx2;
#endif
  return attention::kAttentionPortable;
}

// States of `rows` rows of `width` values (a multiple of 16), owned.
struct OwnedStates {
  std::vector<float> max, sum, acc;
  States view;
  OwnedStates(std::int64_t rows, std::int64_t width)
      : max(static_cast<std::size_t>(rows)),
        sum(max.size()),
        acc(max.size() * static_cast<std::size_t>(width)),
        view{max.data(), sum.data(), acc.data(), width} {
    attention::Clear(view, rows);
  }
};

class Kernels : public ::testing::TestWithParam<std::string> {};

TEST_P(Kernels, AnEmptyKeySetGivesZeroAndMinusInfinity) {
  const AttentionKernels& k = Table(GetParam());
  EXPECT_EQ(TableName(GetParam()), k.name);
  const OwnedStates empty(3, 16);
  std::vector<float> out(3 * 16, 7.0F);
  k.normalise(empty.view, 3, 13, out.data(), 16);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(attention::LogSumExp(empty.view, static_cast<std::int64_t>(r)), -kInf);
    for (std::size_t c = 0; c < 16; ++c) EXPECT_EQ(out[r * 16 + c], c < 13 ? 0.0F : 7.0F) << r << " " << c;
  }
}

// Rows of a block that see nothing keep their state; those beside them do not notice.
TEST_P(Kernels, ATileOfWhichARowSeesNothing) {
  const AttentionKernels& k = Table(GetParam());
  std::mt19937_64 rng(71);
  const std::vector<float> q = RandomFloats(8 * 5, rng);
  std::vector<float> keys = RandomFloats(5 * 64, rng);
  std::vector<float> values = RandomFloats(64 * 32, rng);
  // Keys that nobody sees hold NaN.
  for (std::size_t key = 40; key < 64; ++key) {
    for (std::size_t c = 0; c < 5; ++c) keys[c * 64 + key] = std::numeric_limits<float>::quiet_NaN();
    for (std::size_t c = 0; c < 32; ++c) values[key * 32 + c] = std::numeric_limits<float>::quiet_NaN();
  }
  const auto attend = [&](const std::vector<std::int32_t>& visible, OwnedStates* states) {
    std::vector<float> scores(8 * 64);
    const attention::TileBlock block{
        q.data(), 5, 8, 5, keys.data(), values.data(), 32, 20, visible.data(), 0.5F, states->view, scores.data()};
    k.attend_tile(block);
  };
  OwnedStates all(8, 32);
  attend({40, 40, 40, 40, 40, 40, 40, 40}, &all);
  OwnedStates some(8, 32);
  attend({40, 0, 40, 3, 40, 0, 40, 40}, &some);
  for (std::size_t r = 0; r < 8; ++r) {
    if (r == 1 || r == 5) {
      EXPECT_EQ(some.max[r], -kInf);
      EXPECT_EQ(some.sum[r], 0.0F);
      for (std::size_t c = 0; c < 32; ++c) EXPECT_EQ(some.acc[r * 32 + c], 0.0F);
    } else if (r != 3) {
      EXPECT_EQ(some.max[r], all.max[r]);
      EXPECT_EQ(some.sum[r], all.sum[r]);
      for (std::size_t c = 0; c < 20; ++c) EXPECT_EQ(some.acc[r * 32 + c], all.acc[r * 32 + c]);
    }
  }
  // A second tile of nothing changes no bit.
  const std::vector<float> sums = some.sum;
  const std::vector<float> accs = some.acc;
  attend({0, 0, 0, 0, 0, 0, 0, 0}, &some);
  ExpectSameBits(some.sum, sums, "sums");
  ExpectSameBits(some.acc, accs, "values");
}

// A row whose keys are all NaN, or all minus infinity, is not an empty one: its result says that something is wrong.
TEST_P(Kernels, ScoresThatAreNoNumbersStayVisible) {
  const AttentionKernels& k = Table(GetParam());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {nan, kInf, -kInf}) {
    for (const std::int32_t visible : {1, 17, 64}) {
      const float q = 1;
      const std::vector<float> keys(64, bad);
      const std::vector<float> values(64 * 16, 1.0F);
      std::vector<float> scores(64);
      OwnedStates segment(1, 16);
      k.attend_tile({&q, 1, 1, 1, keys.data(), values.data(), 16, 16, &visible, 1, segment.view, scores.data()});
      OwnedStates total(1, 16);
      k.fold(segment.view, 1, 16, total.view);
      std::vector<float> out(16);
      k.normalise(total.view, 1, 16, out.data(), 16);
      for (const float x : out) EXPECT_TRUE(std::isnan(x)) << bad << " " << visible;
      EXPECT_TRUE(std::isnan(attention::LogSumExp(total.view, 0))) << bad << " " << visible;
    }
  }
}

// Row 3 above against its definition, to hold the masked sum itself.
TEST_P(Kernels, ATileAgainstItsDefinition) {
  const AttentionKernels& k = Table(GetParam());
  std::mt19937_64 rng(72);
  for (const std::int32_t visible : {1, 3, 15, 16, 17, 63, 64}) {
    const std::vector<float> q = RandomFloats(5, rng);
    const std::vector<float> keys = RandomFloats(5 * 64, rng);
    const std::vector<float> values = RandomFloats(64 * 16, rng);
    std::vector<float> scores(64);
    OwnedStates state(1, 16);
    k.attend_tile({q.data(), 5, 1, 5, keys.data(), values.data(), 16, 16, &visible, 0.5F, state.view, scores.data()});
    double total = 0;
    std::vector<double> sum(16);
    double max = -kInf;
    std::vector<double> s(64);
    for (std::size_t j = 0; j < static_cast<std::size_t>(visible); ++j) {
      for (std::size_t c = 0; c < 5; ++c)
        s[j] += 0.5 * static_cast<double>(q[c]) * static_cast<double>(keys[c * 64 + j]);
      max = std::max(max, s[j]);
    }
    for (std::size_t j = 0; j < static_cast<std::size_t>(visible); ++j) {
      total += std::exp(s[j] - max);
      for (std::size_t c = 0; c < 16; ++c) sum[c] += std::exp(s[j] - max) * static_cast<double>(values[j * 16 + c]);
    }
    // Scores are at most 2.5: 7 roundings of them, the exponential's 2 ulp, and a rounding a key; of the maximum too.
    const double error = 2 * 2.5 * 7 * 0x1p-24 + 0x1p-22 + 66 * 0x1p-24;
    EXPECT_NEAR(state.max[0], max, 2.5 * 7 * 0x1p-24);
    EXPECT_NEAR(state.sum[0], total, total * error) << visible;
    for (std::size_t c = 0; c < 16; ++c) EXPECT_NEAR(state.acc[c], sum[c], total * error) << visible << " " << c;
  }
}

TEST_P(Kernels, FoldingWithEmptyIsTheIdentity) {
  const AttentionKernels& k = Table(GetParam());
  std::mt19937_64 rng(73);
  OwnedStates some(2, 16);
  some.acc = RandomFloats(32, rng);
  some.view.acc = some.acc.data();
  some.max = {3.5F, -1e4F};
  some.view.max = some.max.data();
  some.sum = {1.25F, 2.0F};
  some.view.sum = some.sum.data();
  const std::vector<float> acc = some.acc;
  const OwnedStates empty(2, 16);
  k.fold(empty.view, 2, 16, some.view);  // some (+) empty
  ExpectSameBits(some.acc, acc, "right identity");
  EXPECT_EQ(some.sum, (std::vector<float>{1.25F, 2.0F}));
  OwnedStates into(2, 16);
  k.fold(some.view, 2, 16, into.view);  // empty (+) some
  ExpectSameBits(into.acc, acc, "left identity");
  EXPECT_EQ(into.max, some.max);
  EXPECT_EQ(into.sum, some.sum);
  OwnedStates nothing(2, 16);
  k.fold(empty.view, 2, 16, nothing.view);  // empty (+) empty
  EXPECT_EQ(nothing.max, (std::vector<float>{-kInf, -kInf}));
  EXPECT_EQ(nothing.acc, std::vector<float>(32, 0.0F));
}

TEST_P(Kernels, FoldIsThePartialSoftmaxAlgebra) {
  const AttentionKernels& k = Table(GetParam());
  for (const float gap : {0.0F, 0.5F, -3.0F, 60.0F, -60.0F, 500.0F, -500.0F}) {
    OwnedStates a(1, 16);
    OwnedStates b(1, 16);
    a.max[0] = 1.0F;
    a.sum[0] = 3.0F;
    b.max[0] = 1.0F + gap;
    b.sum[0] = 2.0F;
    for (std::size_t c = 0; c < 16; ++c) {
      a.acc[c] = static_cast<float>(c) - 4;
      b.acc[c] = 5 - 2 * static_cast<float>(c);
    }
    const std::vector<float> before = a.acc;
    k.fold(b.view, 1, 16, a.view);
    const double max = std::max(1.0, 1.0 + static_cast<double>(gap));
    const double keep = std::exp(1.0 - max);
    const double take = std::exp(1.0 + static_cast<double>(gap) - max);
    EXPECT_EQ(a.max[0], static_cast<float>(max));
    // The exponential's 2 ulp and three roundings. Weights below e^-87 vanish.
    const double error = 0x1p-22 + 3 * 0x1p-24;
    EXPECT_NEAR(a.sum[0], 3 * keep + 2 * take, error * (3 * keep + 2 * take)) << gap;
    for (std::size_t c = 0; c < 16; ++c) {
      const double x = before[c] * keep;
      const double y = b.acc[c] * take;
      EXPECT_NEAR(a.acc[c], x + y, error * (std::abs(x) + std::abs(y)) + 20 * std::exp(-87.0)) << gap;
    }
  }
}

TEST_P(Kernels, WidenIsExact) {
  const AttentionKernels& k = Table(GetParam());
  std::vector<std::uint16_t> bits(65536);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(bits.size());
  k.widen(bits.data(), wide.data(), 65536);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), static_cast<std::uint32_t>(i) << 16) << i;
  }
  for (const std::size_t n : {0U, 1U, 15U, 17U, 33U}) {
    std::vector<float> part(n + 1, 7.0F);
    k.widen(bits.data() + 0x3f80, part.data(), static_cast<std::int64_t>(n));
    for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(part[i], wide[0x3f80 + i]);
    EXPECT_EQ(part[n], 7.0F) << "wrote past " << n;
  }
}

TEST_P(Kernels, TransposeOfAnyWidth) {
  const AttentionKernels& k = Table(GetParam());
  for (const std::size_t n : {0U, 1U, 13U, 16U, 31U, 46U, 64U}) {
    const std::size_t ldi = n + 3;
    std::vector<float> in(64 * ldi);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
    std::vector<float> out(n * 64 + 16, -1.0F);
    k.transpose_tile(in.data(), static_cast<std::int64_t>(ldi), static_cast<std::int64_t>(n), out.data());
    for (std::size_t c = 0; c < n; ++c) {
      for (std::size_t key = 0; key < 64; ++key) ASSERT_EQ(out[c * 64 + key], in[key * ldi + c]) << n << " " << c;
    }
    for (std::size_t i = n * 64; i < out.size(); ++i) ASSERT_EQ(out[i], -1.0F) << "wrote past " << n;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Kernels, ::testing::ValuesIn(KernelTables()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace mla::testing
