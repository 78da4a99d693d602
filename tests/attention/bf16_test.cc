// Attention in products of bf16: what its own kernels may get wrong, and what must not reach a row through them.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "attention/choose.h"
#include "attention/harness.h"
#include "attention/self_test.h"
#include "base/cpu_info.h"

namespace mla::testing {
namespace {

using attention::Bf16Block;
using attention::Bf16Kernels;
using attention::kBf16TileBytes;

// The machine's tables that have such kernels.
std::vector<attention::KernelSet> Sets() {
  std::vector<attention::KernelSet> sets = attention::MachineKernels(DetectCpu());
  std::erase_if(sets, [](const attention::KernelSet& set) { return set.attention->bf16 == nullptr; });
  return sets;
}

// What the tables below are made from: functions of tables are plain, and can't hold one.
const Bf16Kernels* sound = nullptr;

void ExpectFault(const Bf16Kernels& table, const std::string& kernel, const std::string& what) {
  bool found = false;
  for (const KernelCheck& check : attention::CheckKernels(table)) {
    if (check.kernel == kernel) found = !check.fault.empty();
  }
  EXPECT_TRUE(found) << what;
}

// Two blocks of keys of widths (R, 32) that `rows` rows see whole, and what is left of them: `by_key` takes the values
// from the keys' own rows.
std::vector<float> StatesOf(const Bf16Kernels& kernels, std::int64_t rows, std::int64_t count, std::int64_t width,
                            bool by_key) {
  constexpr std::int64_t kRope = 32;
  const std::int64_t steps = (width + 31) / 32;
  const std::int64_t tiles = (width + 15) / 16;
  const std::int64_t row_elements = steps * 32 + kRope;
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  // Behind the last key lie no numbers.
  std::vector<std::uint16_t> keys(static_cast<std::size_t>(2 * attention::kBlockKeys * row_elements), 0x7fc0);
  std::vector<float> q(static_cast<std::size_t>(rows * (width + kRope)));
  for (float& x : q) x = normal(rng);
  std::vector<char> packed(static_cast<std::size_t>((steps + 1) * kBf16TileBytes));
  kernels.pack_queries(q.data(), width + kRope, rows, width, kRope, packed.data());
  const std::int64_t ld = tiles * 16 + 16;
  std::vector<float> out(static_cast<std::size_t>(rows * (ld + 2)), 0.0F);
  const attention::States state{out.data(), out.data() + rows, out.data() + 2 * rows, ld};
  std::fill_n(state.max, rows, -std::numeric_limits<float>::infinity());
  alignas(64) static char scratch[attention::kBf16Scratch];
  std::vector<char> values(static_cast<std::size_t>(attention::kBlockKeys / 32 * tiles * kBf16TileBytes));
  const std::vector<std::int32_t> visible(static_cast<std::size_t>(rows), static_cast<std::int32_t>(count));
  for (const std::int64_t block : {0, 1}) {
    std::uint16_t* first = keys.data() + block * attention::kBlockKeys * row_elements;
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t c = 0; c < row_elements; ++c) {
        const bool there = c < width || c >= steps * 32;
        first[i * row_elements + c] =
            there ? static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(rng)) >> 16) : std::uint16_t{0};
      }
    }
    const char* runs[2][attention::kBlockKeys / 16];
    for (std::int64_t i = 0; i < attention::kBlockKeys / 16; ++i) {
      runs[0][i] = reinterpret_cast<const char*>(first + i * 16 * row_elements);
      runs[1][i] = runs[0][i] + steps * 64;
    }
    attention::Bf16Keys k{};
    k.runs[0] = runs[0];
    k.runs[1] = runs[1];
    k.stride[0] = k.stride[1] = row_elements * 2;
    k.steps[0] = steps;
    k.steps[1] = 1;
    k.count = count;
    k.value_step = tiles * kBf16TileBytes;
    if (!by_key) {
      kernels.interleave(runs[0], k.stride[0], count, width, values.data(), k.value_step);
      k.values = values.data();
    }
    kernels.attend({packed.data(), rows, k, visible.data(), 0.2F, width, block == 0, state, scratch});
  }
  return out;
}

TEST(Bf16Kernels, ValuesByKeyAreThoseInterleaved) {
  for (const attention::KernelSet& set : Sets()) {
    const Bf16Kernels& kernels = *set.attention->bf16;
    for (std::int64_t rows = 1; rows <= kernels.rows_by_key; ++rows) {
      for (const std::int64_t count : {1, 2, 15, 16, 31, 33, 255, 256}) {
        for (const std::int64_t width : {16, 32, 70, 288, 512, 528}) {
          const std::vector<float> want = StatesOf(kernels, rows, count, width, false);
          const std::vector<float> got = StatesOf(kernels, rows, count, width, true);
          ASSERT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0)
              << rows << " rows, " << count << " keys, width " << width;
          ASSERT_FALSE(std::isnan(got[0]));
        }
      }
    }
  }
}

TEST(Bf16SelfTest, FindsWhatIsWrong) {
  for (const attention::KernelSet& set : Sets()) {
    sound = set.attention->bf16;
    Bf16Kernels t = *sound;
    t.attend = [](const Bf16Block& b) {
      Bf16Block other = b;
      other.scale = b.scale * 1.01F;
      sound->attend(other);
    };
    ExpectFault(t, "attend", "another scale");
    t.attend = [](const Bf16Block& b) {
      std::vector<std::int32_t> visible(b.visible, b.visible + b.rows);
      if (visible.back() < b.keys.count) ++visible.back();
      Bf16Block other = b;
      other.visible = visible.data();
      sound->attend(other);
    };
    ExpectFault(t, "attend", "one key too many");
    t.attend = [](const Bf16Block& b) {
      sound->attend(b);
      b.state.acc[(b.rows - 1) * b.state.ld + b.value_dim - 1] *= 1.02F;
    };
    ExpectFault(t, "attend", "the last column of the last row");
    t.attend = [](const Bf16Block& b) {
      sound->attend(b);
      b.state.acc[b.rows * b.state.ld] = 0;
    };
    ExpectFault(t, "attend", "a row past the last");
    t = *sound;
    t.pack_queries = [](const float* q, std::int64_t ldq, std::int64_t rows, std::int64_t n0, std::int64_t n1,
                        char* out) { sound->pack_queries(q, ldq, rows, n0 + n1, 0, out); };
    ExpectFault(t, "pack_queries", "parts run together");
    t = *sound;
    t.interleave = [](const char* const* runs, std::int64_t stride, std::int64_t count, std::int64_t columns, char* out,
                      std::int64_t value_step) {
      sound->interleave(runs, stride, count + 1, columns, out, value_step);
    };
    ExpectFault(t, "interleave", "a key past the last");
    t = *sound;
    t.round_values = [](const float* v, std::int64_t ldv, std::int64_t count, std::int64_t columns, char* out,
                        std::int64_t value_step) { sound->round_values(v, ldv, count, columns - 1, out, value_step); };
    ExpectFault(t, "round_values", "a column too few");
    t = *sound;
    t.round_row = [](const float* from, std::int64_t n, char* out) {
      for (std::int64_t i = 0; i < 64; ++i) {
        const auto bits = static_cast<std::uint16_t>(i < n ? std::bit_cast<std::uint32_t>(from[i]) >> 16 : 0);
        std::memcpy(out + 2 * i, &bits, 2);
      }
    };
    ExpectFault(t, "round_row", "truncation");
    t = *sound;
    t.all_finite = [](const char* values, std::int64_t count) { return sound->all_finite(values, count - 32); };
    ExpectFault(t, "all_finite", "the last 32 left out");
  }
}

class Bf16Attention : public ::testing::TestWithParam<std::string> {};

// A later token of the same call whose row is no number reaches none before it, and makes those that see it NaN.
TEST_P(Bf16Attention, ALaterRowThatIsNoNumber) {
  std::mt19937_64 rng(31);
  for (const MlaDims& dims : {MlaDims{3, 9, 4, 7, 18}, MlaDims{16, 32, 32, 16, 64}}) {
    const TestWeights weights = RandomWeights(dims, WeightDType::kBF16, rng);
    const auto latent = static_cast<std::size_t>(dims.kv_lora_rank);
    for (const Form form : {Form::kAbsorbed, Form::kMha}) {
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        const TestSequence good = RandomSequence(dims, 20, 270, form, rng);
        TestSequence broken = good;
        constexpr std::size_t kBad = 262;  // of rows 250 to 269
        broken.latent[kBad * latent + latent - 1] = bad;
        const TestRun run{.kernels = GetParam()};
        const TestPaging paging{.dtype = DType::kBF16};
        const TestOutput want = RunAttention(weights, {&good, 1}, paging, ScaleOf(dims), run);
        const TestOutput got = RunAttention(weights, {&broken, 1}, paging, ScaleOf(dims), run);
        const auto row = static_cast<std::size_t>(dims.num_attention_heads * dims.v_head_dim);
        const std::size_t before = (kBad - 250) * row;
        ExpectSameBits({got.out[0].begin(), got.out[0].begin() + static_cast<std::ptrdiff_t>(before)},
                       {want.out[0].begin(), want.out[0].begin() + static_cast<std::ptrdiff_t>(before)},
                       FormName(form));
        for (std::size_t i = before; i < got.out[0].size(); ++i) ASSERT_TRUE(std::isnan(got.out[0][i])) << i;
      }
    }
  }
}

// Weights far below the largest vanish, and cost nothing: no result is a denormal.
TEST_P(Bf16Attention, WeightsThatVanish) {
  const MlaDims dims{2, 4, 2, 5, 10};
  std::mt19937_64 rng(32);
  const TestWeights weights = RandomWeights(dims, WeightDType::kBF16, rng);
  TestSequence s = RandomSequence(dims, 1, 300, Form::kAbsorbed, rng);
  for (std::size_t j = 0; j < 300; ++j) s.rope[2 * j] = j == 7 ? 128.0F : 0.0F;
  for (std::size_t h = 0; h < 2; ++h) s.q[h * 6 + 4] = 8;
  for (const Form form : {Form::kAbsorbed, Form::kMha}) {
    s.form = form;
    const TestRun run{.kernels = GetParam()};
    const TestPaging paging{.dtype = DType::kBF16};
    const TestOutput all = RunAttention(weights, {&s, 1}, paging, 0.5, run);
    for (const float x : all.out[0]) EXPECT_TRUE(x == 0 || std::fabs(x) > 0x1p-120F) << x;
    const Expected expected = Oracle(weights, s, DType::kBF16, 0.5, {.bf16_inputs = true, .bf16_attention = true});
    ExpectWithin(all, 0, expected, FormName(form));
  }
}

std::vector<std::string> Tables() {
  std::vector<std::string> names;
  for (const attention::KernelSet& set : Sets()) names.emplace_back(IsaName(set.isa));
  return names;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Bf16Attention);
INSTANTIATE_TEST_SUITE_P(Tables, Bf16Attention, ::testing::ValuesIn(Tables()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace mla::testing
