// Costs by a measured table: its points, what lies between and beyond them, other shapes, and tables that are refused.
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "mla/attention.h"

namespace mla {
namespace {

constexpr MlaDims kV3Dims{128, 128, 64, 128, 512};
constexpr MlaDims kMiniCpm3Dims{40, 64, 32, 64, 256};

// Of V3: MHA takes 1 s for 100 keys and 1 ms a row and key, absorbing 1 s for 100 rows and 4 ms a row and key; with a
// bend in MHA at 1,000 cached positions. All of it is linear in T and in the cached positions, apart.
double MhaSeconds(double rows, double cached) {
  const double bend = cached > 1000 ? 2 * (cached - 1000) : 0;
  return 0.01 * (cached + bend) + 0.001 * rows * cached + 0.5;
}
double AbsorbedSeconds(double rows, double cached) { return 0.01 * rows + 0.004 * rows * cached + 0.25; }

FormTable Table() {
  MeasuredForms m;
  m.dims = kV3Dims;
  m.rows = {1, 10, 64};
  m.cached = {0, 1000, 3000};
  for (const std::int64_t rows : m.rows) {
    for (const std::int64_t cached : m.cached) {
      m.mha_seconds.push_back(MhaSeconds(static_cast<double>(rows), static_cast<double>(cached)));
      m.absorbed_seconds.push_back(AbsorbedSeconds(static_cast<double>(rows), static_cast<double>(cached)));
    }
  }
  FormTable table;
  table.id = "measured";
  table.measured.push_back(std::move(m));
  return table;
}

TEST(FormTable, MeasuredPointsAndTheLinesBetweenThem) {
  const FormTable table = Table();
  ASSERT_TRUE(CheckFormTable(table).ok());
  for (const std::int64_t rows : {1, 2, 7, 10, 11, 64, 65, 500}) {
    for (const std::int64_t cached : {0, 1, 999, 1000, 1001, 3000, 3001, 100000}) {
      const auto r = static_cast<double>(rows);
      const auto c = static_cast<double>(cached);
      EXPECT_NEAR(FormCost(table, Form::kMha, kV3Dims, cached, rows), MhaSeconds(r, c), 1e-9 * MhaSeconds(r, c))
          << rows << " " << cached;
      EXPECT_NEAR(FormCost(table, Form::kAbsorbed, kV3Dims, cached, rows), AbsorbedSeconds(r, c),
                  1e-9 * AbsorbedSeconds(r, c));
      EXPECT_EQ(ChooseForm(table, kV3Dims, cached, rows),
                MhaSeconds(r, c) < AbsorbedSeconds(r, c) ? Form::kMha : Form::kAbsorbed);
    }
  }
}

TEST(FormTable, PromptsArePricedByTheChunk) {
  FormTable table = Table();
  table.chunk = 64;
  EXPECT_NEAR(FormCost(table, Form::kMha, kV3Dims, 500, 130),
              MhaSeconds(64, 500) + MhaSeconds(64, 564) + MhaSeconds(2, 628), 1e-9);
  EXPECT_EQ(FormCost(table, Form::kMha, kV3Dims, 500, 0), 0);
}

// Another shape's seconds are the nearest one's by the ratio of their multiply-adds, form by form.
TEST(FormTable, OtherShapesAreScaledFromTheNearest) {
  FormTable table = Table();
  const auto total = [](Form form, const MlaDims& dims) {
    const FormWork work = WorkOf(form, dims, 10, 1010);
    return work.projection + work.attention;
  };
  for (const Form form : {Form::kMha, Form::kAbsorbed}) {
    const double v3 = FormCost(table, form, kV3Dims, 1000, 10);
    EXPECT_NEAR(FormCost(table, form, kMiniCpm3Dims, 1000, 10), v3 * total(form, kMiniCpm3Dims) / total(form, kV3Dims),
                1e-9);
  }
  MeasuredForms other = table.measured.front();
  other.dims = kMiniCpm3Dims;
  for (double& s : other.mha_seconds) s *= 7;
  table.measured.insert(table.measured.begin(), other);
  EXPECT_NEAR(FormCost(table, Form::kMha, kV3Dims, 1000, 10), MhaSeconds(10, 1000), 1e-9);
  EXPECT_NEAR(FormCost(table, Form::kMha, kMiniCpm3Dims, 1000, 10), 7 * MhaSeconds(10, 1000), 1e-9);
  const MlaDims kimi{64, 128, 64, 128, 512};
  EXPECT_NEAR(FormCost(table, Form::kAbsorbed, kimi, 1000, 10), AbsorbedSeconds(10, 1000) / 2, 1e-9);
}

// Noise at the border of what was measured can't make a longer prompt free.
TEST(FormTable, NothingGetsCheaperBeyondTheGrid) {
  FormTable table = Table();
  std::vector<double>& mha = table.measured.front().mha_seconds;
  mha[2] = mha[1] / 2;  // one row: 3,000 cached positions faster than 1,000
  const double edge = FormCost(table, Form::kMha, kV3Dims, 3000, 1);
  EXPECT_EQ(FormCost(table, Form::kMha, kV3Dims, 1000000, 1), edge);
  EXPECT_GT(edge, 0);
}

TEST(FormTable, RefusesWhatIsNoTable) {
  const auto fault = [](const std::function<void(FormTable*)>& change) {
    FormTable table = Table();
    change(&table);
    const Status status = CheckFormTable(table);
    return status.ok() ? std::string() : status.error().message;
  };
  const auto first = [](FormTable* t) -> MeasuredForms& { return t->measured.front(); };
  EXPECT_EQ(fault([](FormTable*) {}), "");
  EXPECT_EQ(fault([](FormTable* t) { t->chunk = 0; }), "chunk: expected a number from 1 to 2^40, found 0");
  EXPECT_EQ(fault([](FormTable* t) { t->mha_rate = 0; }), "rates: expected numbers above 0, found 0");
  EXPECT_EQ(fault([&](FormTable* t) { first(t).dims.kv_lora_rank = 0; }),
            "kv_lora_rank: expected a number from 1 to 16777216, found 0");
  EXPECT_EQ(fault([&](FormTable* t) { first(t).rows = {1}; }),
            "rows: expected two numbers or more that begin with 1, found 1 from 1");
  EXPECT_EQ(fault([&](FormTable* t) {
              first(t).cached = {0, 9, 9};
            }),
            "cached: expected ascending numbers up to 2^40, found 9 after 9");
  EXPECT_EQ(fault([&](FormTable* t) { first(t).mha_seconds.pop_back(); }),
            "mha_seconds: expected 9 numbers, one of each rows and cached, found 8");
  EXPECT_EQ(fault([&](FormTable* t) { first(t).absorbed_seconds[3] = -1; }),
            "absorbed_seconds: expected seconds above 0, found -1");
  EXPECT_EQ(fault([&](FormTable* t) { first(t).absorbed_seconds[3] = 1e300; }),
            "absorbed_seconds: expected seconds above 0, found 1e+300");
}

}  // namespace
}  // namespace mla
