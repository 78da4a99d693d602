// A row's bits depend on its query, its keys' stored bytes, its form and the kernels: on nothing else.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "attention/harness.h"

namespace mla::testing {
namespace {

constexpr double kScale = 0.25;

struct Case {
  TestWeights weights;
  std::vector<TestSequence> sequences;
};

// Sequences whose borders differ: short and long, both forms, decode and prefill, over one, two and three segments.
// With few heads whole prompts do not split their segments over items, and chunks do.
Case Ragged(std::int64_t heads, WeightDType keep) {
  std::mt19937_64 rng(21);
  const MlaDims dims{heads, 9, 4, 7, 18};
  Case c{RandomWeights(dims, keep, rng), {}};
  for (const Form form : {Form::kAbsorbed, Form::kMha}) {
    c.sequences.push_back(RandomSequence(dims, 1, 1100, form, rng));
    c.sequences.push_back(RandomSequence(dims, 70, 70, form, rng));
    c.sequences.push_back(RandomSequence(dims, 1, 1, form, rng));
    c.sequences.push_back(RandomSequence(dims, 140, 1090, form, rng));
    c.sequences.push_back(RandomSequence(dims, 3, 64, form, rng));
    c.sequences.push_back(RandomSequence(dims, 2, 2050, form, rng));
  }
  return c;
}

// 128 heads, of which a pass of the absorbed form takes 128 rows: 150 rows of a sequence lie in two.
Case ManyHeads() {
  std::mt19937_64 rng(22);
  const MlaDims dims{128, 9, 4, 7, 18};
  Case c{RandomWeights(dims, WeightDType::kBF16, rng), {}};
  c.sequences.push_back(RandomSequence(dims, 1, 1030, Form::kAbsorbed, rng));
  c.sequences.push_back(RandomSequence(dims, 150, 170, Form::kAbsorbed, rng));
  c.sequences.push_back(RandomSequence(dims, 2, 66, Form::kAbsorbed, rng));
  c.sequences.push_back(RandomSequence(dims, 9, 70, Form::kMha, rng));
  return c;
}

void ExpectSame(const TestOutput& a, const TestOutput& b, const std::string& label) {
  for (std::size_t i = 0; i < a.out.size(); ++i) {
    ExpectSameBits(a.out[i], b.out[i], label + ", out of sequence " + std::to_string(i));
    ExpectSameBits(a.lse[i], b.lse[i], label + ", lse of sequence " + std::to_string(i));
  }
}

class Invariance : public ::testing::TestWithParam<std::string> {};

TEST_P(Invariance, AloneOrBesideOthers) {
  for (const Case& c : {Ragged(3, WeightDType::kBF16), ManyHeads()}) {
    const TestRun run{.kernels = GetParam()};
    const TestOutput together = RunAttention(c.weights, c.sequences, {.dtype = DType::kBF16}, kScale, run);
    for (std::size_t i = 0; i < c.sequences.size(); ++i) {
      const TestOutput alone = RunAttention(c.weights, {&c.sequences[i], 1}, {.dtype = DType::kBF16}, kScale, run);
      ExpectSameBits(alone.out[0], together.out[i], "sequence " + std::to_string(i));
      ExpectSameBits(alone.lse[0], together.lse[i], "lse of sequence " + std::to_string(i));
    }
  }
}

// With 128 heads, chunks of one row split their segments over items and whole chunks don't; and 140 rows are two
// passes.
TEST_P(Invariance, ChunkCuts) {
  for (const Case& c : {Ragged(3, WeightDType::kF32), ManyHeads()}) {
    const TestPaging paging{.dtype = DType::kBF16};
    const TestOutput whole = RunAttention(c.weights, c.sequences, paging, kScale, {.kernels = GetParam()});
    for (const std::int64_t chunk : {1, 7, 64}) {
      ExpectSame(RunAttention(c.weights, c.sequences, paging, kScale, {.kernels = GetParam(), .chunk = chunk}), whole,
                 "chunks of " + std::to_string(chunk));
    }
  }
}

TEST_P(Invariance, PageSizesAndIds) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Case c = Ragged(3, WeightDType::kF32);
    const TestRun run{.kernels = GetParam()};
    const TestOutput in_order =
        RunAttention(c.weights, c.sequences, {.dtype = dtype, .page_tokens = 64, .shuffle = 0}, kScale, run);
    for (const std::int64_t page_tokens : {1, 16, 64, 100}) {
      for (const std::uint64_t shuffle : {5U, 6U}) {
        ExpectSame(RunAttention(c.weights, c.sequences, {dtype, page_tokens, shuffle}, kScale, run), in_order,
                   "pages of " + std::to_string(page_tokens));
      }
    }
  }
}

TEST_P(Invariance, ExpandedWholeOrInPieces) {
  const Case c = Ragged(9, WeightDType::kBF16);
  const TestPaging paging{.dtype = DType::kBF16};
  const TestOutput whole = RunAttention(c.weights, c.sequences, paging, kScale, {.kernels = GetParam()});
  EXPECT_EQ(whole.counters.mha_one_shot, 6);
  EXPECT_EQ(whole.counters.mha_in_pieces, 0);
  EXPECT_EQ(whole.counters.pieces, 0);
  EXPECT_EQ(whole.counters.mha_rows, 217);
  EXPECT_EQ(whole.counters.absorbed_rows, 217);
  // Bytes of a segment of 1,024 keys of one head: N + V rounded up to 16 in fp32; in bf16, N in whole steps of 32.
  const bool bf16 = RoundsInputs(GetParam());
  const std::int64_t head_segment = bf16 ? std::int64_t{1024} * (32 + 16) * 2 : std::int64_t{1024} * (9 + 16) * 4;
  struct Cut {
    std::int64_t expand_bytes, one_shot, in_pieces, pieces;
  };
  // Short sequences always fit whole; those of 1,100, 1,090 and 2,050 keys do not.
  for (const Cut& cut : {
           // One head, one segment; of nine heads in bf16, whole tiles of one of the short ones are too many.
           Cut{0, bf16 ? 2 : 3, bf16 ? 4 : 3, 9 * (2 + 2 + 3 + (bf16 ? 1 : 0))},
           Cut{4 * head_segment, 3, 3, 3 * (2 + 2 + 3)},  // groups of 4, 4 and 1 heads
           Cut{9 * head_segment, 3, 3, 2 + 2 + 3},        // all heads, a segment
           Cut{18 * head_segment, 5, 1, 2},               // all heads, two segments
       }) {
    const TestOutput pieces =
        RunAttention(c.weights, c.sequences, paging, kScale, {.kernels = GetParam(), .expand_bytes = cut.expand_bytes});
    ExpectSame(pieces, whole, std::to_string(cut.expand_bytes) + " bytes");
    EXPECT_EQ(pieces.counters.mha_one_shot, cut.one_shot) << cut.expand_bytes;
    EXPECT_EQ(pieces.counters.mha_in_pieces, cut.in_pieces) << cut.expand_bytes;
    EXPECT_EQ(pieces.counters.pieces, cut.pieces) << cut.expand_bytes;
  }
}

// What a later position holds, be it NaN or infinity, is not seen by an earlier row of the same tile or chunk.
TEST_P(Invariance, LaterRowsDontReachEarlierOnes) {
  std::mt19937_64 rng(22);
  const MlaDims dims{3, 9, 4, 7, 18};
  const TestWeights weights = RandomWeights(dims, WeightDType::kF32, rng);
  for (const Form form : {Form::kAbsorbed, Form::kMha}) {
    const TestSequence clean = RandomSequence(dims, 50, 1050, form, rng);
    const TestOutput want = RunAttention(weights, {&clean, 1}, {.dtype = DType::kF32}, kScale, {.kernels = GetParam()});
    for (const std::int64_t row : {1, 23, 24, 30, 49}) {
      for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        TestSequence bad = clean;
        const auto position = static_cast<std::size_t>(1000 + row);
        for (std::size_t r = 0; r < 18; ++r) bad.latent[position * 18 + r] = poison;
        for (std::size_t p = 0; p < 4; ++p) bad.rope[position * 4 + p] = poison;
        const TestOutput got =
            RunAttention(weights, {&bad, 1}, {.dtype = DType::kF32}, kScale, {.kernels = GetParam()});
        const auto before = static_cast<std::ptrdiff_t>(row * 3 * 7);
        ExpectSameBits({got.out[0].begin(), got.out[0].begin() + before},
                       {want.out[0].begin(), want.out[0].begin() + before}, "rows before the poisoned one");
        ExpectSameBits({got.lse[0].begin(), got.lse[0].begin() + row * 3},
                       {want.lse[0].begin(), want.lse[0].begin() + row * 3}, "lse before the poisoned one");
        // It does reach the row itself: the test would otherwise prove nothing.
        for (auto at = before; at < before + 21; ++at)
          EXPECT_TRUE(std::isnan(got.out[0][static_cast<std::size_t>(at)]));
      }
    }
  }
}

// Keys are read from their stored rows: equal stored bytes give equal bits, though the values written differ.
TEST_P(Invariance, OnlyStoredRowsCount) {
  std::mt19937_64 rng(23);
  const MlaDims dims{3, 9, 4, 7, 18};
  const TestWeights weights = RandomWeights(dims, WeightDType::kF32, rng);
  for (const Form form : {Form::kAbsorbed, Form::kMha}) {
    const TestSequence exact = RandomSequence(dims, 20, 90, form, rng);
    TestSequence rounded = exact;
    for (float& x : rounded.latent) x = RoundToBf16(x);
    for (float& x : rounded.rope) x = RoundToBf16(x);
    ASSERT_NE(rounded.latent, exact.latent);
    const TestRun run{.kernels = GetParam()};
    ExpectSame(RunAttention(weights, {&exact, 1}, {.dtype = DType::kBF16}, kScale, run),
               RunAttention(weights, {&rounded, 1}, {.dtype = DType::kBF16}, kScale, run), FormName(form));
    // And an f32 cache that holds the same values gives the same bits as a bf16 one, where it is computed with alike.
    if (RoundsInputs(GetParam())) continue;
    ExpectSame(RunAttention(weights, {&rounded, 1}, {.dtype = DType::kF32}, kScale, run),
               RunAttention(weights, {&rounded, 1}, {.dtype = DType::kBF16}, kScale, run), FormName(form));
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Invariance, ::testing::ValuesIn(KernelTables()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace mla::testing
