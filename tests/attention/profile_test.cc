// Profiles: counts against brute force over pairs and keys, times that fit together, and bits that don't change.
#include "mla/profile.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "attention/harness.h"

namespace mla::testing {
namespace {

constexpr double kScale = 0.25;
constexpr std::int64_t kBlockRows = 128;  // query rows, or states, of an item of work at most

// Rows of bf16 as a bf16 cache keeps them: parts one after the other, a row a multiple of 32 bytes.
std::int64_t RowBytes(const MlaDims& d) {
  return MakeLatentLayout(d.kv_lora_rank, d.qk_rope_head_dim, 1, DType::kBF16).row_bytes;
}

struct Counted {
  std::int64_t pairs = 0;
  std::int64_t computed = 0;
  std::int64_t keys_read = 0;  // by blocks
};

// Query rows with what each sees (its first so many keys), in blocks, of bf16 in groups of them; keys in tiles, of
// which a group computes those that any of its rows sees a key of.
Counted BruteForce(const std::vector<std::int64_t>& visible, std::int64_t keys, bool bf16) {
  const std::int64_t tile_rows = bf16 ? 16 : 1;
  const std::int64_t tile_keys = bf16 ? 32 : 64;
  const auto rows = static_cast<std::int64_t>(visible.size());
  const auto sees = [&](std::int64_t row, std::int64_t key) { return key < visible[static_cast<std::size_t>(row)]; };
  const std::int64_t group_rows = bf16 ? 32 : kBlockRows;
  Counted counted;
  const auto any_sees = [&](std::int64_t begin, std::int64_t end, std::int64_t key) {
    for (std::int64_t row = begin; row < end; ++row) {
      if (sees(row, key)) return true;
    }
    return false;
  };
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t key = 0; key < keys; ++key) counted.pairs += sees(row, key) ? 1 : 0;
  }
  for (std::int64_t block = 0; block < rows; block += kBlockRows) {
    const std::int64_t block_end = std::min(rows, block + kBlockRows);
    for (std::int64_t key = 0; key < keys; ++key) counted.keys_read += any_sees(block, block_end, key) ? 1 : 0;
    for (std::int64_t group = block; group < block_end; group += group_rows) {
      const std::int64_t end = std::min(block_end, group + group_rows);
      const std::int64_t padded = (end - group + tile_rows - 1) / tile_rows * tile_rows;
      for (std::int64_t tile = 0; tile < keys; tile += tile_keys) {
        bool seen = false;
        for (std::int64_t key = tile; key < std::min(keys, tile + tile_keys); ++key) seen |= any_sees(group, end, key);
        counted.computed += seen ? padded * tile_keys : 0;
      }
    }
  }
  return counted;
}

// What the states (row, head) of an absorbed sequence see, heads fastest; with one head, its rows.
std::vector<std::int64_t> VisibleOf(const TestSequence& s, std::int64_t heads) {
  std::vector<std::int64_t> visible;
  for (std::int64_t row = 0; row < s.rows; ++row) {
    for (std::int64_t head = 0; head < heads; ++head) visible.push_back(s.keys - s.rows + row + 1);
  }
  return visible;
}

class Profile : public ::testing::TestWithParam<std::string> {
 protected:
  AttentionProfile Of(const TestWeights& weights, const TestSequence& sequence, std::int64_t expand_bytes = 1 << 26) {
    const std::vector<TestSequence> sequences = {sequence};
    const TestRun run{.kernels = GetParam(), .workers = 1, .expand_bytes = expand_bytes, .profile = true};
    return RunAttention(weights, sequences, {.dtype = DType::kBF16}, kScale, run).profile;
  }
  bool bf16() const { return RoundsInputs(GetParam()); }
};

struct Shape {
  std::int64_t heads;
  std::int64_t rows;
  std::int64_t keys;

  std::string Name() const {
    return std::to_string(heads) + " heads, " + std::to_string(rows) + " of " + std::to_string(keys);
  }
  MlaDims Dims() const { return {heads, 9, 4, 7, 18}; }
};
constexpr Shape kShapes[] = {{5, 1, 1},     {5, 1, 70},   {3, 7, 65},   {5, 40, 41},
                             {1, 130, 300}, {3, 2, 1100}, {7, 33, 2100}};

TEST_P(Profile, CountsOfAbsorbedRowsByBruteForce) {
  std::mt19937_64 rng(61);
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.Name());
    const MlaDims dims = shape.Dims();
    const TestWeights weights = RandomWeights(dims, WeightDType::kBF16, rng);
    const TestSequence s = RandomSequence(dims, shape.rows, shape.keys, Form::kAbsorbed, rng);
    const AttentionProfile profile = Of(weights, s);
    const Counted want = BruteForce(VisibleOf(s, shape.heads), s.keys, bf16());
    EXPECT_EQ(profile.absorbed_pairs, want.pairs);
    EXPECT_EQ(profile.absorbed_computed, want.computed);
    EXPECT_EQ(profile.absorbed_rows, s.rows);
    EXPECT_EQ(profile.cache_bytes_needed, s.keys * RowBytes(dims));
    EXPECT_EQ(profile.cache_bytes_read, want.keys_read * RowBytes(dims));
    // Decode or not, nothing is expanded and no weight is made.
    EXPECT_EQ(profile.expanded, 0);
    EXPECT_EQ(profile.mha_pairs, 0);
    EXPECT_EQ(profile.mha_computed, 0);
    EXPECT_EQ(profile.weight_conversions, 0);
    // Many rows may be cut into tasks, which read the weights again.
    EXPECT_GE(profile.weight_bytes_read, profile.weight_bytes_needed);
    if (s.rows <= 40) {
      EXPECT_EQ(profile.weight_bytes_read, profile.weight_bytes_needed);
    }
  }
}

TEST_P(Profile, CountsOfMhaRowsByBruteForce) {
  std::mt19937_64 rng(62);
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.Name());
    const MlaDims dims = shape.Dims();
    const TestWeights weights = RandomWeights(dims, WeightDType::kBF16, rng);
    const TestSequence s = RandomSequence(dims, shape.rows, shape.keys, Form::kMha, rng);
    const Counted want = BruteForce(VisibleOf(s, 1), s.keys, bf16());
    const AttentionProfile whole = Of(weights, s);
    const AttentionProfile pieces = Of(weights, s, 0);  // a segment of one head at a time
    for (const AttentionProfile& profile : {whole, pieces}) {
      EXPECT_EQ(profile.mha_pairs, shape.heads * want.pairs);
      EXPECT_EQ(profile.mha_computed, shape.heads * want.computed);
      EXPECT_EQ(profile.absorbed_computed, 0);
      EXPECT_EQ(profile.expanded, shape.heads * s.keys);
      EXPECT_EQ(profile.weight_conversions, 0);
      EXPECT_EQ(profile.cache_bytes_needed, s.keys * RowBytes(dims));
    }
    EXPECT_EQ(whole.cache_bytes_read, s.keys * RowBytes(dims));
    if (s.keys > 1024) {
      EXPECT_EQ(pieces.cache_bytes_read, shape.heads * s.keys * RowBytes(dims));
    }
    // Keys and values written once, and read by each block of rows: two bytes each where they are kept in bf16.
    const std::int64_t width = (9 + 7) * (bf16() ? 2 : 4);
    EXPECT_EQ(whole.kept_bytes, shape.heads * width * (s.keys + want.keys_read));
  }
}

// kv_b_proj's parts that a form reads, as they are packed: of bf16, matrices of whole panels of 16 outputs and of an
// even number of k.
TEST_P(Profile, WeightsNeededAreTheFormsOwn) {
  std::mt19937_64 rng(63);
  const MlaDims dims{3, 16, 4, 32, 48};
  const TestWeights weights = RandomWeights(dims, WeightDType::kBF16, rng);
  const std::int64_t keys_part = std::int64_t{3} * 16 * 48 * 2;
  const std::int64_t values_part = std::int64_t{3} * 32 * 48 * 2;
  for (const Form form : {Form::kAbsorbed, Form::kMha}) {
    const AttentionProfile profile = Of(weights, RandomSequence(dims, 2, 9, form, rng));
    EXPECT_EQ(profile.weight_bytes_needed, keys_part + values_part) << FormName(form);
    EXPECT_EQ(profile.weight_bytes_read, keys_part + values_part) << FormName(form);
  }
}

// One row over five segments, which are kept apart: states of R values, a maximum and a sum, there and back.
TEST_P(Profile, StatesKeptApart) {
  std::mt19937_64 rng(64);
  const MlaDims dims{3, 9, 4, 7, 18};
  const TestWeights weights = RandomWeights(dims, WeightDType::kBF16, rng);
  const AttentionProfile apart = Of(weights, RandomSequence(dims, 1, 5000, Form::kAbsorbed, rng));
  EXPECT_EQ(apart.kept_bytes, 2 * 3 * 5 * (18 + 2) * 4);
  EXPECT_EQ(apart[AttentionPhase::kMerge].times, 1);
  const AttentionProfile none = Of(weights, RandomSequence(dims, 1, 1000, Form::kAbsorbed, rng));
  EXPECT_EQ(none.kept_bytes, 0);
  EXPECT_EQ(none[AttentionPhase::kMerge].times, 0);
}

std::vector<TestSequence> BothForms(const MlaDims& dims, std::mt19937_64& rng) {
  std::vector<TestSequence> sequences;
  for (const Form form : {Form::kAbsorbed, Form::kMha}) {
    sequences.push_back(RandomSequence(dims, 1, 2500, form, rng));
    sequences.push_back(RandomSequence(dims, 40, 70, form, rng));
  }
  return sequences;
}

TEST_P(Profile, TimesFitTogether) {
  std::mt19937_64 rng(65);
  const MlaDims dims{16, 32, 16, 32, 64};
  const TestWeights weights = RandomWeights(dims, WeightDType::kBF16, rng);
  const std::vector<TestSequence> sequences = BothForms(dims, rng);
  for (const int workers : {1, 2}) {
    const TestRun run{.kernels = GetParam(), .workers = workers, .chunk = 10, .profile = true};
    const AttentionProfile profile = RunAttention(weights, sequences, {.dtype = DType::kBF16}, kScale, run).profile;
    EXPECT_EQ(profile.calls, 4);
    double phases = 0;
    for (std::size_t i = 0; i < kAttentionPhases; ++i) {
      const PhaseTime& phase = profile.phases[i];
      SCOPED_TRACE(AttentionPhaseName(static_cast<AttentionPhase>(i)));
      const bool runs = bf16() || (i != static_cast<std::size_t>(AttentionPhase::kPack) &&
                                   i != static_cast<std::size_t>(AttentionPhase::kRound));
      EXPECT_EQ(phase.times > 0, runs);
      EXPECT_LE(phase.busy_largest, phase.seconds * (1 + 1e-9));
      EXPECT_LE(phase.busy_seconds, workers * phase.busy_largest * (1 + 1e-9));
      EXPECT_GE(phase.busy_seconds, phase.busy_largest * (1 - 1e-9));
      phases += phase.seconds;
    }
    EXPECT_LE(phases, profile.seconds * (1 + 1e-9));
  }
}

TEST_P(Profile, ChangesNoBit) {
  std::mt19937_64 rng(66);
  const MlaDims dims{3, 9, 4, 7, 18};
  const TestWeights weights = RandomWeights(dims, WeightDType::kBF16, rng);
  const std::vector<TestSequence> sequences = BothForms(dims, rng);
  for (const int workers : {1, 3}) {
    TestRun run{.kernels = GetParam(), .workers = workers};
    const TestOutput plain = RunAttention(weights, sequences, {.dtype = DType::kBF16}, kScale, run);
    run.profile = true;
    const TestOutput profiled = RunAttention(weights, sequences, {.dtype = DType::kBF16}, kScale, run);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      ExpectSameBits(plain.out[i], profiled.out[i], "out of sequence " + std::to_string(i));
      ExpectSameBits(plain.lse[i], profiled.lse[i], "lse of sequence " + std::to_string(i));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, Profile, ::testing::ValuesIn(KernelTables()), [](const auto& i) { return i.param; });

TEST(ProfileDeathTest, IsOfWhoAskedForIt) {
  const Result<MlaAttention> attention = MlaAttention::Create(OptionsFor({1, 1, 0, 1, 1}, 1, 1));
  ASSERT_TRUE(attention.ok());
  EXPECT_DEATH(attention->profile(), "measured");
}

}  // namespace
}  // namespace mla::testing
