// The start-up self-test of attention tables, and the choice that follows from it: every table of this machine passes,
// each planted fault is found, and what fails is replaced by the next, or refused where it was asked for.
#include "attention/choose.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/harness.h"
#include "attention/self_test.h"
#include "ops/gemm.h"

namespace mla::testing {
namespace {

using attention::AttentionKernels;
using attention::kAttentionPortable;
using attention::KernelSet;
using attention::States;
using attention::TileBlock;
using ::testing::HasSubstr;

TEST(AttentionSelfTest, EveryTableOfThisMachinePasses) {
  for (const KernelSet& set : attention::MachineKernels(DetectCpu())) {
    const std::vector<KernelCheck> checks = attention::CheckKernels(*set.attention);
    EXPECT_EQ(checks.size(), set.attention->bf16 == nullptr ? 5U : 11U);
    for (const KernelCheck& check : checks) EXPECT_EQ(check.fault, "") << IsaName(set.isa) << " " << check.kernel;
  }
}

// Only `kernel` fails.
void ExpectFault(const AttentionKernels& table, const std::string& kernel, const std::string& what) {
  for (const KernelCheck& check : attention::CheckKernels(table)) {
    EXPECT_EQ(check.fault.empty(), check.kernel != kernel) << what << ": " << check.kernel << ": " << check.fault;
  }
}

// A tile kernel that is asked for something else.
template <class Change>
AttentionKernels WithChangedTile(Change /*change*/) {
  AttentionKernels table = kAttentionPortable;
  table.attend_tile = [](const TileBlock& block) {
    TileBlock changed = block;
    std::vector<std::int32_t> visible(block.visible, block.visible + block.rows);
    changed.visible = visible.data();
    Change()(&changed, &visible);
    kAttentionPortable.attend_tile(changed);
  };
  return table;
}

using Visible = std::vector<std::int32_t>;

TEST(AttentionSelfTest, FindsWrongTiles) {
  ExpectFault(WithChangedTile([](TileBlock* b, Visible* /*visible*/) { --b->rows; }), "attend_tile",
              "the last row, a head in the absorbed form, is left out");
  ExpectFault(WithChangedTile([](TileBlock* /*block*/, Visible* visible) {
                for (std::int32_t& v : *visible) v -= v > 0 ? 1 : 0;
              }),
              "attend_tile", "the last key is left out");
  ExpectFault(WithChangedTile([](TileBlock* /*block*/, Visible* visible) {
                for (std::int32_t& v : *visible) v -= v == 64 ? 1 : 0;
              }),
              "attend_tile", "the last key of whole tiles is left out");
  ExpectFault(WithChangedTile([](TileBlock* /*block*/, Visible* visible) {
                for (std::int32_t& v : *visible) v += v > 0 && v < 64 ? 1 : 0;
              }),
              "attend_tile", "a masked key is seen");
  ExpectFault(WithChangedTile([](TileBlock* b, Visible* /*visible*/) { b->scale = 1; }), "attend_tile",
              "the scale is ignored");
  ExpectFault(WithChangedTile([](TileBlock* b, Visible* /*visible*/) { --b->key_dim; }), "attend_tile",
              "the last channel of the keys is left out");
  ExpectFault(WithChangedTile([](TileBlock* b, Visible* /*visible*/) { b->value_dim = b->value_dim / 16 * 16; }),
              "attend_tile", "the tail of the values is lost");
  ExpectFault(WithChangedTile([](TileBlock* b, Visible* /*visible*/) { ++b->values; }), "attend_tile",
              "values are read one channel off");
}

// The maximum and the sum as powers of two: the values are right, the log-sum-exp is log2.
TEST(AttentionSelfTest, FindsALogSumExpInBaseTwo) {
  AttentionKernels table = kAttentionPortable;
  table.attend_tile = [](const TileBlock& block) {
    const States& s = block.state;
    const float ln2 = std::log(2.0F);
    for (std::int64_t r = 0; r < block.rows; ++r) s.max[r] *= ln2;
    kAttentionPortable.attend_tile(block);
    for (std::int64_t r = 0; r < block.rows; ++r) s.max[r] /= ln2;
  };
  ExpectFault(table, "attend_tile", "the maximum in base 2");
  table.attend_tile = [](const TileBlock& block) {
    kAttentionPortable.attend_tile(block);
    const States& s = block.state;
    for (std::int64_t r = 0; r < block.rows; ++r) {
      // Sums and values scaled alike by (sum)^(1/ln 2 - 1): out is unmoved, ln(sum) has become log2(sum).
      if (s.sum[r] <= 0) continue;
      const float factor = std::pow(s.sum[r], 1 / std::log(2.0F) - 1);
      s.sum[r] *= factor;
      for (std::int64_t c = 0; c < block.value_dim; ++c) s.acc[r * s.ld + c] *= factor;
    }
  };
  ExpectFault(table, "attend_tile", "the sum in base 2");
}

// A row whose earlier tile held the larger score must not be rescaled away, nor kept where the later one is larger.
TEST(AttentionSelfTest, FindsAMissingCorrection) {
  AttentionKernels table = kAttentionPortable;
  table.attend_tile = [](const TileBlock& block) {
    std::vector<float> sums(block.state.sum, block.state.sum + block.rows);
    std::vector<float> maxima(block.state.max, block.state.max + block.rows);
    kAttentionPortable.attend_tile(block);
    for (std::size_t r = 0; r < sums.size(); ++r) {
      // What the old sum lost by its correction is put back.
      if (std::isfinite(maxima[r])) block.state.sum[r] += sums[r] * (1 - std::exp(maxima[r] - block.state.max[r]));
    }
  };
  ExpectFault(table, "attend_tile", "the old sum is not corrected");
}

TEST(AttentionSelfTest, FindsWrongFolds) {
  AttentionKernels table = kAttentionPortable;
  table.fold = [](const States& part, int64_t rows, int64_t width, const States& into) {
    kAttentionPortable.fold(part, rows - 1, width, into);
  };
  ExpectFault(table, "fold", "the last row is left out");
  table.fold = [](const States& part, int64_t rows, int64_t width, const States& into) {
    kAttentionPortable.fold(part, rows, width / 16 * 16, into);
  };
  ExpectFault(table, "fold", "the tail is lost");
  table.fold = [](const States& part, int64_t rows, int64_t width, const States& into) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const float max = std::max(part.max[r], into.max[r]);
      for (std::int64_t c = 0; c < width; ++c) {
        into.acc[r * into.ld + c] = into.acc[r * into.ld + c] * std::exp(into.max[r] - max) +
                                    part.acc[r * part.ld + c] * std::exp(part.max[r] - max);
      }
      into.sum[r] = into.sum[r] * std::exp(into.max[r] - max) + part.sum[r] * std::exp(part.max[r] - max);
      into.max[r] = max;
    }
  };
  ExpectFault(table, "fold", "two empty states make NaN");
}

TEST(AttentionSelfTest, FindsWrongMovers) {
  AttentionKernels table = kAttentionPortable;
  table.normalise = [](const States& state, int64_t rows, int64_t width, float* out, int64_t ldo) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < width; ++i) out[r * ldo + i] = state.acc[r * state.ld + i] / state.sum[r];
    }
  };
  ExpectFault(table, "normalise", "an empty state makes NaN");
  table.normalise = [](const States& state, int64_t rows, int64_t width, float* out, int64_t ldo) {
    kAttentionPortable.normalise(state, rows, width + 1, out, ldo);
  };
  ExpectFault(table, "normalise", "a channel too many is written");
  table = kAttentionPortable;
  table.widen = [](const uint16_t* from, float* to, int64_t n) { kAttentionPortable.widen(from, to, n / 16 * 16); };
  ExpectFault(table, "widen", "the tail is lost");
  table.widen = [](const uint16_t* from, float* to, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] = FloatFromBf16((from[i] & 0x7f80) == 0 ? from[i] & 0x8000 : from[i]);
  };
  ExpectFault(table, "widen", "subnormals are flushed");
  table = kAttentionPortable;
  table.transpose_tile = [](const float* in, int64_t ldi, int64_t n, float* out) {
    kAttentionPortable.transpose_tile(in, ldi, n - 1, out);
  };
  ExpectFault(table, "transpose_tile", "the last channel is left out");
}

// Sets under the names of all three instruction sets, whatever the machine: portable code, broken where asked.
struct Sets {
  AttentionKernels attention = kAttentionPortable;
  ops::OpKernels ops = ops::kOpsPortable;
  std::vector<KernelSet> sets;
  Sets(bool break_first, bool break_second, bool break_third) {
    attention.fold = [](const States& /*part*/, int64_t /*rows*/, int64_t /*width*/, const States& /*into*/) {};
    ops.add_scaled = [](const float* /*x*/, float /*scale*/, float* /*y*/, int64_t /*n*/) {};
    const AttentionKernels* good = &kAttentionPortable;
    sets.push_back({Isa::kAvx512, break_first ? &attention : good, &ops::kOpsPortable});
    sets.push_back({Isa::kAvx2, good, break_second ? &ops : &ops::kOpsPortable});
    sets.push_back({Isa::kPortable, break_third ? &attention : good, &ops::kOpsPortable});
  }
};

TEST(ChooseKernels, TakesTheFirstThatPasses) {
  const Sets sound(false, false, false);
  const auto choice = attention::ChooseKernels(sound.sets, "");
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->kernels.isa, Isa::kAvx512);
  EXPECT_TRUE(choice->rejected.empty());

  const Sets one(true, false, false);
  const auto second = attention::ChooseKernels(one.sets, "");
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->kernels.isa, Isa::kAvx2);
  ASSERT_EQ(second->rejected.size(), 1U);
  EXPECT_EQ(second->rejected[0].name, "avx512");
  EXPECT_THAT(second->rejected[0].fault, HasSubstr("fold: state "));

  const Sets two(true, true, false);
  const auto third = attention::ChooseKernels(two.sets, "");
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(third->kernels.isa, Isa::kPortable);
  ASSERT_EQ(third->rejected.size(), 2U);
  EXPECT_EQ(third->rejected[1].name, "avx2");
  EXPECT_THAT(third->rejected[1].fault, HasSubstr("add_scaled: 5 elements: "));
}

TEST(ChooseKernels, WhatWasAskedForAndFailsIsAnErrorByName) {
  const Sets one(true, false, false);
  const auto forced = attention::ChooseKernels(one.sets, "avx512");
  ASSERT_FALSE(forced.ok());
  EXPECT_THAT(forced.error().message,
              HasSubstr("kernels: expected 'avx512' to pass the self-test, found avx512: fold: state"));
  const auto other = attention::ChooseKernels(one.sets, "avx2");
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->kernels.isa, Isa::kAvx2);
  EXPECT_TRUE(other->rejected.empty()) << "nothing was asked of the others";
}

TEST(ChooseKernels, NoneThatPassesIsAnError) {
  const Sets all(true, true, true);
  const auto none = attention::ChooseKernels(all.sets, "");
  ASSERT_FALSE(none.ok());
  for (const char* name : {"avx512: fold", "avx2: add_scaled", "portable: fold"}) {
    EXPECT_THAT(none.error().message, HasSubstr(name));
  }
  EXPECT_EQ(none.error().message.find('\n'), std::string::npos);
}

// The attention itself: it runs on what was chosen, and says what was not.
TEST(ChooseKernels, AttentionFallsBackAndSaysSo) {
  const Sets one(true, false, false);
  MlaAttention::Options options = OptionsFor({2, 8, 4, 6, 16}, 2, 10);
  const Result<MlaAttention> attention = attention::CreateAttention(options, one.sets);
  ASSERT_TRUE(attention.ok());
  EXPECT_STREQ(attention->kernels(), "avx2");
  ASSERT_EQ(attention->rejected_kernels().size(), 1U);
  EXPECT_EQ(attention->rejected_kernels()[0].name, "avx512");
  options.kernels = "avx512";
  EXPECT_FALSE(attention::CreateAttention(options, one.sets).ok());
  options.kernels.clear();
  const Result<MlaAttention> sound = MlaAttention::Create(options);
  ASSERT_TRUE(sound.ok());
  EXPECT_TRUE(sound->rejected_kernels().empty());
}

}  // namespace
}  // namespace mla::testing
