// The analytic cost, and the form that it chooses.
#include <gtest/gtest.h>

#include "mla/attention.h"

namespace mla {
namespace {

constexpr MlaDims kV3{128, 128, 64, 128, 512};
constexpr MlaDims kMiniCpm3{40, 64, 32, 64, 256};
constexpr MlaDims kGlmFlash{20, 192, 64, 256, 512};

double Total(Form form, const MlaDims& dims, std::int64_t rows, std::int64_t keys) {
  const FormWork work = WorkOf(form, dims, rows, keys);
  return work.projection + work.attention;
}

TEST(Cost, MultiplyAddsCountedOneByOne) {
  const MlaDims dims{3, 5, 2, 7, 11};
  for (const std::int64_t rows : {1, 2, 9}) {
    for (const std::int64_t keys : {9, 10, 40}) {
      double expand = 0;
      double absorb = 0;
      double mha = 0;
      double absorbed = 0;
      for (std::int64_t head = 0; head < 3; ++head) {
        for (std::int64_t key = 0; key < keys; ++key) expand += 11 * (5 + 7);
        for (std::int64_t row = 0; row < rows; ++row) {
          absorb += 5 * 11 + 11 * 7;
          for (std::int64_t key = 0; key <= keys - rows + row; ++key) {
            mha += 5 + 2 + 7;
            absorbed += (11 + 2) + 11;
          }
        }
      }
      EXPECT_EQ(WorkOf(Form::kMha, dims, rows, keys).projection, expand);
      EXPECT_EQ(WorkOf(Form::kMha, dims, rows, keys).attention, mha);
      EXPECT_EQ(WorkOf(Form::kAbsorbed, dims, rows, keys).projection, absorb);
      EXPECT_EQ(WorkOf(Form::kAbsorbed, dims, rows, keys).attention, absorbed);
    }
  }
  EXPECT_EQ(Total(Form::kMha, dims, 0, 0), 0);
  EXPECT_EQ(Total(Form::kAbsorbed, dims, 0, 0), 0);
}

// T where both forms cost the same when every row sees all S keys: T* = a S / (S + a).
double CrossingWithoutCausality(const MlaDims& dims, double keys) {
  // Costs of a pair, from work over known pairs: one row of one key.
  const double mha = WorkOf(Form::kMha, dims, 1, 1).attention;
  const double absorbed = WorkOf(Form::kAbsorbed, dims, 1, 1).attention;
  const double project = WorkOf(Form::kAbsorbed, dims, 1, 1).projection;  // of a row, or of a key
  // keys * project + T keys mha = T project + T keys absorbed
  return keys * project / (project + keys * (absorbed - mha));
}

TEST(Cost, CrossingsOfPublishedModels) {
  EXPECT_NEAR(CrossingWithoutCausality(kV3, 512), 128, 0.05);
  EXPECT_NEAR(CrossingWithoutCausality(kV3, 4096), 164, 0.5);
  EXPECT_NEAR(CrossingWithoutCausality(kV3, 1e12), 170.7, 0.05);
  EXPECT_NEAR(CrossingWithoutCausality(kMiniCpm3, 1e12), 85.3, 0.05);
  EXPECT_NEAR(CrossingWithoutCausality(kGlmFlash, 1e12), 398, 0.5);
}

// With causality, the least T at which MHA is the cheaper; each figure computed apart in whole numbers.
TEST(Cost, CrossingsWithCausality) {
  const auto crossing = [](const MlaDims& dims, std::int64_t keys) {
    for (std::int64_t rows = 1; rows <= keys; ++rows) {
      if (Total(Form::kMha, dims, rows, keys) < Total(Form::kAbsorbed, dims, rows, keys)) return rows;
    }
    return std::int64_t{-1};
  };
  EXPECT_EQ(crossing(kV3, 512), 143);
  EXPECT_EQ(crossing(kV3, 4096), 168);
  EXPECT_EQ(crossing(kV3, 32768), 171);
  EXPECT_EQ(crossing(kMiniCpm3, 4096), 85);
  EXPECT_EQ(crossing(kGlmFlash, 4096), 379);
}

// Equal rates, prompts priced in chunks of so many rows.
FormTable WithChunk(std::int64_t chunk) {
  FormTable table;
  table.chunk = chunk;
  return table;
}

TEST(ChooseForm, FollowsTheCrossingAtBothSides) {
  const FormTable table;
  EXPECT_EQ(ChooseForm(table, kV3, 4096 - 167, 167), Form::kAbsorbed);
  EXPECT_EQ(ChooseForm(table, kV3, 4096 - 168, 168), Form::kMha);
  EXPECT_EQ(ChooseForm(table, kV3, 4095, 1), Form::kAbsorbed);
  EXPECT_EQ(ChooseForm(table, kV3, 0, 4096), Form::kMha);
}

// Expansion is paid again for every chunk: a prompt of 4,096 in small chunks is cheaper absorbed. The least chunk with
// which MHA wins was computed apart in whole numbers: 171.
TEST(ChooseForm, SmallChunksFavourAbsorbing) {
  EXPECT_EQ(ChooseForm(WithChunk(1), kV3, 0, 4096), Form::kAbsorbed);
  EXPECT_EQ(ChooseForm(WithChunk(170), kV3, 0, 4096), Form::kAbsorbed);
  EXPECT_EQ(ChooseForm(WithChunk(171), kV3, 0, 4096), Form::kMha);
  // A chunk longer than the prompt is one chunk of the prompt.
  EXPECT_EQ(ChooseForm(WithChunk(1 << 30), kV3, 4096 - 167, 167), Form::kAbsorbed);
}

TEST(ChooseForm, RatesShiftTheChoice) {
  FormTable table;
  table.expand_rate = 2;  // expansion at twice the speed
  EXPECT_EQ(ChooseForm(table, kV3, 4096 - 167, 167), Form::kMha);
  table = FormTable{};
  table.mha_rate = 1e-3;
  EXPECT_EQ(ChooseForm(table, kV3, 0, 4096), Form::kAbsorbed);
  table = FormTable{};
  table.absorbed_rate = 2;
  EXPECT_EQ(ChooseForm(table, kV3, 4096 - 168, 168), Form::kAbsorbed);
  table = FormTable{};
  table.absorb_rate = 0.5;  // absorbing's projections at half the speed
  EXPECT_EQ(ChooseForm(table, kV3, 4096 - 167, 167), Form::kMha);
}

TEST(ChooseForm, TiesGoToTheAbsorbedForm) {
  EXPECT_EQ(ChooseForm(FormTable{}, kV3, 0, 0), Form::kAbsorbed);
  // Where 2R <= N + V absorbing never loses.
  const MlaDims narrow{8, 64, 16, 64, 64};
  for (const std::int64_t rows : {1, 100, 5000}) {
    EXPECT_EQ(ChooseForm(WithChunk(5000), narrow, 0, rows), Form::kAbsorbed);
  }
}

TEST(ChooseForm, Names) {
  EXPECT_STREQ(FormName(Form::kMha), "mha");
  EXPECT_STREQ(FormName(Form::kAbsorbed), "absorbed");
}

}  // namespace
}  // namespace mla
