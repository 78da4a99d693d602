// Every function of base/simd.h, on every instruction set of this machine, against its definition on single floats.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/cpu_info.h"
#include "base/simd_probe.h"
#include "mla/dtypes.h"

namespace mla {
namespace {

using testing::SimdProbe;
using Lanes = std::array<float, 16>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<const SimdProbe*> Probes() {
  std::vector<const SimdProbe*> probes = {&testing::kProbePortable};
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
  const CpuInfo cpu = DetectCpu();
  if (cpu.Has(Isa::kAvx2)) probes.push_back(&testing::kProbeAvx2);
  if (cpu.Has(Isa::kAvx512)) probes.push_back(&testing::kProbeAvx512);
#endif
  return probes;
}

class SimdTest : public ::testing::TestWithParam<const SimdProbe*> {
 protected:
  const SimdProbe& probe_ = *GetParam();
};

void ExpectSame(float found, float expected, const std::string& what) {
  if (std::isnan(expected)) {
    ASSERT_TRUE(std::isnan(found)) << what << ": " << found << ", expected NaN";
  } else {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(found), std::bit_cast<std::uint32_t>(expected))
        << what << ": " << found << ", expected " << expected;
  }
}

// Values with which arithmetic goes wrong, then random ones of every magnitude.
std::vector<float> Samples() {
  std::vector<float> samples = {0.0F,       -0.0F, 1.0F,   -1.0F,   1.5F, 3.0F,  -7.25F, 1e-38F, -1e-38F, 1e-45F,
                                8388609.0F, 1e30F, -1e30F, 3.4e38F, kInf, -kInf, kNan,   0.1F,   1.0F / 3};
  std::mt19937 random(7);
  while (samples.size() < 64) samples.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  return samples;
}

// All pairs of samples through a function of two vectors, with an unaligned load: 16 different pairs at a time.
void CheckPairs(void (*found)(const float*, const float*, float*), const std::function<float(float, float)>& expected,
                const char* name) {
  const std::vector<float> samples = Samples();
  std::array<float, 17> a{};
  std::array<float, 17> b{};
  std::array<float, 17> out{};
  for (std::size_t i = 0; i < samples.size() * samples.size(); i += 16) {
    for (std::size_t j = 0; j < 16; ++j) {
      a[j + 1] = samples[(i + j) / samples.size()];
      b[j + 1] = samples[(i + j) % samples.size()];
    }
    found(a.data() + 1, b.data() + 1, out.data() + 1);
    for (std::size_t j = 1; j <= 16; ++j) {
      ExpectSame(out[j], expected(a[j], b[j]),
                 std::string(name) + "(" + std::to_string(a[j]) + ", " + std::to_string(b[j]) + ")");
    }
  }
}

TEST_P(SimdTest, Arithmetic) {
  CheckPairs(
      probe_.add, [](float a, float b) { return a + b; }, "Add");
  CheckPairs(
      probe_.sub, [](float a, float b) { return a - b; }, "Sub");
  CheckPairs(
      probe_.mul, [](float a, float b) { return a * b; }, "Mul");
  CheckPairs(
      probe_.div, [](float a, float b) { return a / b; }, "Div");
}

TEST_P(SimdTest, MaxAndMinKeepANanInTheSecond) {
  CheckPairs(
      probe_.max, [](float a, float b) { return a > b ? a : b; }, "Max");
  CheckPairs(
      probe_.min, [](float a, float b) { return a < b ? a : b; }, "Min");
}

TEST_P(SimdTest, LoadStoreSet1Zero) {
  Lanes a{};
  Lanes out{};
  for (std::size_t i = 0; i < 16; ++i) a[i] = static_cast<float>(i) - 3.5F;
  probe_.load_store(a.data(), out.data());
  EXPECT_EQ(out, a);
  probe_.set1(-2.5F, out.data());
  EXPECT_EQ(std::count(out.begin(), out.end(), -2.5F), 16);
  probe_.zero(out.data());
  for (const float x : out) ExpectSame(x, 0.0F, "Zero");
}

TEST_P(SimdTest, FmaRoundsAsItsInstructionSetDoes) {
  const std::vector<float> samples = Samples();
  std::mt19937 random(3);
  Lanes a{};
  Lanes b{};
  Lanes c{};
  Lanes out{};
  for (int round = 0; round < 2000; ++round) {
    for (std::size_t i = 0; i < 16; ++i) {
      a[i] = samples[random() % samples.size()];
      b[i] = samples[random() % samples.size()];
      // Often near -a * b, where one rounding and two differ most.
      c[i] = random() % 2 == 0 ? -(a[i] * b[i]) : samples[random() % samples.size()];
    }
    probe_.fma(a.data(), b.data(), c.data(), out.data());
    for (std::size_t i = 0; i < 16; ++i) {
      const float product = a[i] * b[i];
      ExpectSame(out[i], probe_.fused ? std::fma(a[i], b[i], c[i]) : product + c[i], "Fma");
    }
  }
}

TEST_P(SimdTest, RoundGoesToNearestEven) {
  Lanes a{};
  Lanes out{};
  for (int base = -4000; base < 4000; base += 4) {
    for (std::size_t i = 0; i < 16; ++i) a[i] = static_cast<float>(base) + static_cast<float>(i) * 0.25F;
    probe_.round(a.data(), out.data());
    for (std::size_t i = 0; i < 16; ++i) ASSERT_EQ(out[i], std::nearbyint(a[i])) << a[i];
  }
  a.fill(-2097151.5F);
  probe_.round(a.data(), out.data());
  EXPECT_EQ(out[0], -2097152.0F);
}

TEST_P(SimdTest, Pow2IsExactOverTheNormalNumbers) {
  Lanes a{};
  Lanes out{};
  for (int n = -126; n <= 127; ++n) {
    a.fill(static_cast<float>(n));
    probe_.pow2(a.data(), out.data());
    for (const float x : out) ASSERT_EQ(x, std::ldexp(1.0F, n));
  }
}

TEST_P(SimdTest, ZeroWhereLess) {
  const Lanes a = {1, 2, 3, kNan, 0, -0.0F, -kInf, kInf, 5, 5, 5, kNan, -1, 1e-45F, 7, 8};
  const Lanes b = {2, 2, 2, 1, -0.0F, 0, 0, 0, kNan, 6, 4, kNan, 0, 0, 8, 7};
  Lanes x{};
  Lanes out{};
  for (std::size_t i = 0; i < 16; ++i) x[i] = i % 5 == 0 ? kNan : static_cast<float>(i) + 1;
  probe_.zero_where_less(a.data(), b.data(), x.data(), out.data());
  for (std::size_t i = 0; i < 16; ++i) ExpectSame(out[i], a[i] < b[i] ? 0.0F : x[i], "ZeroWhereLess");
}

TEST_P(SimdTest, LoadBf16WidensEveryValueInItsPlace) {
  std::array<std::uint16_t, 33> bits{};
  Lanes out{};
  Lanes second{};
  for (std::uint32_t code = 0; code < 65536; code += 32) {
    for (std::uint32_t i = 0; i < 32; ++i) bits[i + 1] = static_cast<std::uint16_t>(code + i);
    probe_.load_bf16(bits.data() + 1, out.data());
    for (std::size_t i = 0; i < 16; ++i) ExpectSame(out[i], FloatFromBf16(bits[i + 1]), "LoadBf16");
    probe_.load_bf16_pairs(bits.data() + 1, out.data(), second.data());
    for (std::size_t i = 0; i < 16; ++i) {
      ExpectSame(out[i], FloatFromBf16(bits[2 * i + 1]), "LoadBf16Pairs first");
      ExpectSame(second[i], FloatFromBf16(bits[2 * i + 2]), "LoadBf16Pairs second");
    }
  }
}

// Lanes i and i + n/2 first, for n = 16, 8, 4, 2.
float TreeSum(const float* a, std::size_t first, std::size_t step) {
  if (step == 16) return a[first];
  return TreeSum(a, first, 2 * step) + TreeSum(a, first + step, 2 * step);
}

TEST_P(SimdTest, ReduceAddSumsInOneTreeOnEveryInstructionSet) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> exponent(-10, 10);
  Lanes a{};
  for (int round = 0; round < 1000; ++round) {
    for (float& x : a) x = (random() % 2 == 0 ? 1.0F : -1.0F) * std::exp2(exponent(random));
    ExpectSame(probe_.reduce_add(a.data()), TreeSum(a.data(), 0, 1), "ReduceAdd");
  }
}

TEST_P(SimdTest, ReduceMaxFindsTheLargestAndKeepsNan) {
  for (std::size_t at = 0; at < 16; ++at) {
    Lanes a{};
    for (std::size_t i = 0; i < 16; ++i) a[i] = -static_cast<float>(i) - 1;
    a[at] = -0.5F;
    EXPECT_EQ(probe_.reduce_max(a.data()), -0.5F);
    a[at] = kNan;
    EXPECT_TRUE(std::isnan(probe_.reduce_max(a.data()))) << at;
  }
  Lanes all{};
  all.fill(-kInf);
  EXPECT_EQ(probe_.reduce_max(all.data()), -kInf);
}

// The bound on Exp's relative error, u = 2^-24, r the reduced argument (|r| <= ln 2 / 2 = 0.35), s = the sum near e^r:
//   r: one rounding, 0.35 u; on machines without fused multiply-add one more of n * 2.12e-4 (0.03 u); the split of ln 2
//   as
//     stored, 127 * 2.12e-4 * u = 0.03 u                                                                 < 0.5 u
//   s = p r^2 + (r + 1): the tail p r^2 < 0.08 carries at most six roundings, 0.5 u; r + 1 < 1.36 rounds by u/2 below 1
//   and
//     u above; s rounds by u/2 below 1 and u above: relative to s (> 0.7 below 1, > 1 above), together  < 2.6 u
//   the polynomial: Cephes states 1.7e-7 in all for its expf; of the approximation itself              < 0.5 u
//   2^n is exact.
// Together below 4 u.
TEST_P(SimdTest, ExpIsWithinItsDerivedBound) {
  const double bound = 4 * 0x1p-24;
  double worst = 0;
  float at = 0;
  Lanes a{};
  Lanes out{};
  const auto sweep = [&](float from, float to) {  // bit patterns from one magnitude to the other
    const auto last = std::bit_cast<std::uint32_t>(to);
    for (auto bits = std::bit_cast<std::uint32_t>(from); bits <= last;) {
      for (std::size_t i = 0; i < 16; ++i, bits += 2999) a[i] = std::bit_cast<float>(std::min(bits, last));
      probe_.exp(a.data(), out.data());
      for (std::size_t i = 0; i < 16; ++i) {
        const double expected = std::exp(static_cast<double>(a[i]));
        const double error = std::fabs(out[i] - expected) / expected;
        if (!(error <= worst)) {
          worst = error;
          at = a[i];
        }
      }
    }
  };
  sweep(0.0F, 88.37F);
  sweep(-0.0F, -87.336F);
  EXPECT_LE(worst, bound) << probe_.name << " at " << at;
  RecordProperty("worst_in_units_of_2^-24", std::to_string(worst * 0x1p24));
}

TEST_P(SimdTest, ExpAtItsEnds) {
  const Lanes a = {0,       -0.0F, -87.4F,     -100,     -1e30F, -kInf, kNan, 1e-45F,
                   -1e-45F, -88,   -87.33655F, -3.4e38F, 1,      -1,    0.5F, 2};
  Lanes out{};
  probe_.exp(a.data(), out.data());
  EXPECT_EQ(out[0], 1.0F);
  EXPECT_EQ(out[1], 1.0F);
  for (const std::size_t i : {2, 3, 4, 5, 9, 10, 11}) ExpectSame(out[i], 0.0F, "Exp(" + std::to_string(a[i]) + ")");
  EXPECT_TRUE(std::isnan(out[6]));
  EXPECT_EQ(out[7], 1.0F);
  EXPECT_EQ(out[8], 1.0F);
}

INSTANTIATE_TEST_SUITE_P(Isa, SimdTest, ::testing::ValuesIn(Probes()),
                         [](const auto& test) { return std::string(test.param->name); });

}  // namespace
}  // namespace mla
