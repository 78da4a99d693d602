// mla tune: the file that it writes and reads back, and a grid that is measured.
#include "bench/tune.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "attention/choose.h"
#include "base/cpu_info.h"
#include "bench/tune_file.h"
#include "mla/executor.h"
#include "testing/models.h"
#include "testing/temp_dir.h"

namespace mla::bench {
namespace {

using testing::Need;

TuneFile File() {
  TuneFile file;
  file.name = "my-table_1.0";
  file.machine = {"A processor", "avx2", "0.1.0 abc", 3, "bf16", "f32"};
  file.products = {64, 96, {1, 8, 512}, {1e-6, 2e-6, 1.0 / 3}, 12.5e9};
  file.chunk = 256;
  TunedShape shape;
  shape.name = "a shape";
  shape.passes = 4;
  shape.forms = {{3, 9, 4, 7, 18}, {1, 8}, {0, 100, 300}, {1e-7, 0.1, 1.0 / 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12e3}};
  file.shapes.push_back(shape);
  shape.forms.dims.qk_rope_head_dim = 0;
  file.shapes.push_back(shape);
  return file;
}

TEST(TuneFile, ComesBackAsItWasWritten) {
  const TuneFile file = File();
  const std::string text = TuneFileText(file);
  const ReadTable read = Need(ParseTuneFile(text, "here"));
  EXPECT_EQ(read.file.machine.processor, "A processor");
  EXPECT_EQ(read.file.machine.kernels, "avx2");
  EXPECT_EQ(read.file.machine.build, "0.1.0 abc");
  EXPECT_EQ(read.file.machine.threads, 3);
  EXPECT_EQ(read.file.machine.weights, "f32");
  EXPECT_EQ(read.file.products.n, 64);
  EXPECT_EQ(read.file.products.k, 96);
  EXPECT_EQ(read.file.products.rows, file.products.rows);
  EXPECT_EQ(read.file.products.seconds, file.products.seconds);
  EXPECT_EQ(read.file.products.read_bytes, 12.5e9);
  EXPECT_EQ(read.table.chunk, 256);
  ASSERT_EQ(read.table.measured.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const MeasuredForms& m = read.table.measured[i];
    EXPECT_EQ(m.dims, file.shapes[i].forms.dims);
    EXPECT_EQ(m.rows, file.shapes[i].forms.rows);
    EXPECT_EQ(m.cached, file.shapes[i].forms.cached);
    EXPECT_EQ(m.mha_seconds, file.shapes[i].forms.mha_seconds);
    EXPECT_EQ(m.absorbed_seconds, file.shapes[i].forms.absorbed_seconds);
  }
  EXPECT_EQ(TuneFileText(read.file), text);
}

TEST(TuneFile, IdIsTheNameAndAHashOfAllOfIt) {
  const auto id = [](const TuneFile& file) { return Need(ParseTuneFile(TuneFileText(file), "here")).table.id; };
  TuneFile file = File();
  const std::string first = id(file);
  EXPECT_EQ(first.rfind("my-table_1.0-", 0), 0U) << first;
  EXPECT_EQ(first, id(File()));
  file.shapes[1].forms.absorbed_seconds[5] = 12001;
  EXPECT_NE(id(file), first);
}

TEST(TuneFile, RefusesEveryPartOfItself) {
  const std::string text = TuneFileText(File());
  for (std::size_t size = 0; size + 1 < text.size(); ++size) {
    const auto read = ParseTuneFile(std::string_view(text).substr(0, size), "here");
    ASSERT_FALSE(read.ok()) << size;
    ASSERT_EQ(read.error().message.rfind("here: ", 0), 0U) << read.error().message;
  }
}

TEST(TuneFile, SaysWhatIsWrong) {
  const auto fault = [](const std::string& from, const std::string& to) {
    std::string text = TuneFileText(File());
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const auto read = ParseTuneFile(text, "here");
    return read.ok() ? std::string() : read.error().message;
  };
  EXPECT_EQ(fault("\"version\": 2", "\"version\": 1"), "here: version: expected a whole number from 2 to 2, found 1");
  EXPECT_NE(fault("mla-tune", "other").find("here: format: expected "), std::string::npos);
  EXPECT_EQ(fault("my-table_1.0", "a b"),
            "here: name: expected 1 to 64 letters, digits, '.', '_' or '-', found \"a b\"");
  EXPECT_EQ(fault("\"chunk\"", "\"junk\""),
            "here: chunk: expected a whole number from 1 to 1099511627776, found nothing");
  EXPECT_EQ(fault("\"chunk\"", "\"more\": 1, \"chunk\""), "here: more: expected no such field, found one");
  EXPECT_EQ(fault("\"products\"", "\"produce\""), "here: products: expected an object, found nothing");
  EXPECT_EQ(fault("12500000000.0", "0"), "here: products.read_bytes: expected bytes a second, above 0, found 0");
  EXPECT_EQ(fault("   512\n", "   8\n"),
            "here: products.rows: expected ascending numbers from 1 to 2^24, found others");
  EXPECT_NE(fault("   512\n", "   512,\n   513\n").find("here: products.seconds"), std::string::npos);
  EXPECT_EQ(fault("\"n\": 64", "\"n\": 64, \"m\": 1"), "here: products.m: expected no such field, found one");
  EXPECT_NE(fault("\"threads\": 3", "\"threads\": -3").find("here: threads: "), std::string::npos);
  EXPECT_NE(fault("\"kv_lora_rank\": 18", "\"kv_lora_rank\": 0").find("here: shapes[0].kv_lora_rank: "),
            std::string::npos);
  EXPECT_EQ(fault("\"qk_rope_head_dim\": 0", "\"qk_rope_head_dim\": 4"),
            "here: shapes[1]: expected dims that no other shape has, found the same");
  EXPECT_NE(fault("1e-07", "-1").find("here: shapes[0].mha_seconds"), std::string::npos);
  EXPECT_NE(fault("    8\n", "    8,\n    9\n").find("here: shapes[0].mha_seconds"), std::string::npos);
  EXPECT_NE(fault("    100,", "    400,").find("here: cached: expected ascending"), std::string::npos);
}

TEST(TuneFile, RatesAreWhatItsProductsTook) {
  TuneFile file = File();
  file.machine.weights = "bf16";
  const ReadTable read = Need(ParseTuneFile(TuneFileText(file), "here"));
  const plan::Rates rates = RatesOf(read);
  EXPECT_EQ(rates.id, read.table.id);
  ASSERT_EQ(rates.measured_products.size(), 3U);
  // A bf16 weight is two bytes, and 64 of its lanes need no padding.
  EXPECT_DOUBLE_EQ(rates.measured_products[1].intensity, 4);
  EXPECT_DOUBLE_EQ(rates.measured_products[1].multiply_adds, 8.0 * 64 * 96 / 2e-6);
  EXPECT_DOUBLE_EQ(rates.products, 8.0 * 64 * 96 / 2e-6);
  EXPECT_EQ(rates.mha, rates.products);
  EXPECT_EQ(rates.read_bytes, 12.5e9);
  ASSERT_TRUE(rates.forms.has_value());
  EXPECT_EQ(rates.forms->measured.size(), 2U);
}

TEST(TuneShapes, TheDemosDimsAreTheDemos) {
  EXPECT_EQ(Need(TuneShapeOf("demo")).dims, Need(TuneShapeOf(testing::DemoDir())).dims);
  for (const std::string& name : DefaultTuneShapes()) EXPECT_TRUE(TuneShapeOf(name).ok()) << name;
  EXPECT_FALSE(TuneShapeOf("no such model").ok());
}

TEST(TuneShapes, ShareTheTime) {
  std::vector<TuneShape> shapes;
  for (const std::string& name : DefaultTuneShapes()) shapes.push_back(Need(TuneShapeOf(name)));
  const std::vector<double> shares = ShareSeconds(shapes, TuneGrid(), 60);
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 60, 1e-9);
  EXPECT_GE(*std::min_element(shares.begin(), shares.end()), 3);
  EXPECT_EQ(std::max_element(shares.begin(), shares.end()) - shares.begin(), 2);  // deepseek-v3, of 128 heads
}

TEST(Tune, MeasuresAGrid) {
  const auto pool = MakeThreadPool(2);
  const Isa isa = Need(attention::ChooseKernels(attention::MachineKernels(DetectCpu()), "")).kernels.isa;
  const TuneShape shape = {"tiny", {3, 9, 4, 7, 18}};
  TuneGrid grid;
  grid.rows = {1, 3, 8};
  grid.cached = {0, 5, 70, 200};
  for (const DType kv_dtype : {DType::kBF16, DType::kF32}) {
    const WeightDType weights = kv_dtype == DType::kF32 ? WeightDType::kF32 : WeightDType::kBF16;
    FormBench bench = Need(FormBench::Create(TunePlan(shape, grid, kv_dtype, weights), isa, *pool));
    FormTable table;
    const TunedShape tuned = Tune(&bench, shape, grid, 600);  // passes end it long before
    EXPECT_EQ(tuned.passes, 25);
    EXPECT_EQ(tuned.forms.cached, grid.cached);
    table.measured.push_back(tuned.forms);
    EXPECT_TRUE(CheckFormTable(table).ok());
    for (const std::vector<double>& seconds : {tuned.forms.mha_seconds, tuned.forms.absorbed_seconds}) {
      for (std::size_t i = 0; i < seconds.size(); ++i) {
        if (i % 4 != 3) {
          EXPECT_LE(seconds[i], seconds[i + 1]);
        }
        if (i < 8) {
          EXPECT_LE(seconds[i], seconds[i + 4]);
        }
      }
    }
    // Without time, two lengths are measured all the same.
    const TunedShape hasty = Tune(&bench, shape, grid, 0);
    EXPECT_EQ(hasty.passes, 1);
    EXPECT_EQ(hasty.forms.cached, (std::vector<std::int64_t>{0, 5}));
    table.measured.push_back(hasty.forms);
    EXPECT_TRUE(CheckFormTable(table).ok());
  }
}

TEST(Tune, FewestMhaRowsAreCountedFromAboveByTheTable) {
  FormTable table;
  EXPECT_EQ(FewestMhaRows(table, {128, 128, 64, 128, 512}, 4096), 168);
  EXPECT_EQ(FewestMhaRows(table, {8, 64, 16, 64, 64}, 4096), 0);
  table.chunk = 100;
  EXPECT_EQ(FewestMhaRows(table, {128, 128, 64, 128, 512}, 4096), 0);
}

}  // namespace
}  // namespace mla::bench
