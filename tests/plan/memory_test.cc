// Planned bytes are allocated bytes; what fits, fits, and one more does not.
#include "plan/memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mla/engine.h"
#include "model/model.h"
#include "plan/plan_testing.h"

namespace mla::testing {
namespace {

using plan::MemoryOptions;
using plan::MemoryUse;
using plan::Planner;
using ::testing::HasSubstr;

MemoryOptions Options(const char* row = "bf16") {
  MemoryOptions options;
  options.row = Row(row);
  return options;
}

// Loads the model, makes the engine, and holds every planned number to what they hold.
void ExpectAllocated(const std::string& dir, WeightDType weights, const char* row, std::int64_t context,
                     std::int64_t users, int workers) {
  SCOPED_TRACE(dir + " " + row + " context " + std::to_string(context) + " users " + std::to_string(users));
  const plan::Subject subject = SubjectOf(dir);
  ASSERT_TRUE(subject.checkpoint);
  MemoryOptions options = Options(row);
  options.weights = weights;
  options.workers = workers;
  options.prefill_chunk = 48;
  options.page_tokens = 16;
  options.expand_bytes = 5000;
  options.keep_bytes = std::int64_t{8} << 20;
  const MemoryUse use = Need(Need(Planner::Create(subject, options)).At(context, users));
  EXPECT_TRUE(use.engines);

  const Model model = LoadModel(dir, weights);
  const auto pool = MakeThreadPool(workers);
  EngineOptions engine_options;
  engine_options.kv_dtype = *options.row.engine_dtype;
  engine_options.context = context;
  engine_options.max_sequences = users;
  engine_options.prefill_chunk = options.prefill_chunk;
  engine_options.page_tokens = options.page_tokens;
  engine_options.expand_bytes = options.expand_bytes;
  engine_options.keep_bytes = options.keep_bytes;
  const Engine engine = Need(Engine::Create(model, engine_options, *pool));
  const MemoryPlan memory = engine.memory();
  EXPECT_EQ(use.weights, model.weight_bytes());
  EXPECT_EQ(use.cache, memory.cache);
  EXPECT_EQ(use.workspace, memory.workspace);
  EXPECT_EQ(use.tables, memory.tables);
  EXPECT_EQ(use.pages, engine.options().cache_pages);
  EXPECT_EQ(Need(plan::TokenBytes(subject.shape, options.row)), engine.cache_bytes_per_token());
  EXPECT_EQ(use.total, memory.total() + use.sequences);
}

TEST(Plan, BytesAreAllocatedBytes) {
  TinyOptions mtp;
  mtp.num_nextn_predict_layers = 1;
  const std::vector<TinyOptions> kModels = {TinyOptions{}, OddOptions(), HalfSplitOptions(), mtp};
  for (const TinyOptions& model : kModels) {
    const TempDir dir;
    WriteTinyCheckpoint(dir.path(), TinyConfigJson(model), 3);
    for (const WeightDType weights : {WeightDType::kF32, WeightDType::kBF16, WeightDType::kFp8}) {
      ExpectAllocated(dir.path(), weights, "bf16", 100, 3, 2);
      ExpectAllocated(dir.path(), weights, "f32", 33, 1, 1);
    }
  }
  for (const WeightDType weights : {WeightDType::kF32, WeightDType::kBF16, WeightDType::kFp8}) {
    for (const char* row : {"bf16", "f32"}) ExpectAllocated(DemoDir(), weights, row, 2000, 2, 3);
  }
}

TEST(Plan, BytesAreAllocatedBytesOfEveryFamily) {
  int models = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(MLA_SOURCE_DIR) + "/tests/conformance/data")) {
    if (!entry.is_directory()) continue;
    for (const WeightDType weights : {WeightDType::kF32, WeightDType::kBF16, WeightDType::kFp8}) {
      for (const char* row : {"bf16", "f32"}) ExpectAllocated(entry.path().string(), weights, row, 17, 2, 1);
    }
    ++models;
  }
  EXPECT_GE(models, 15);
}

// A row of fp8 is 512 codes, four scales and 64 rope channels; others follow from widths. By hand.
TEST(Rows, Bytes) {
  const plan::LayerGroup v3 = ShapeAt(LatentConfig("deepseek-v3")).groups[0];
  EXPECT_EQ(plan::RowBytes(v3, Row("bf16")).value(), 1152);
  EXPECT_EQ(plan::RowBytes(v3, Row("f32")).value(), 2304);
  EXPECT_EQ(plan::RowBytes(v3, Row("fp8")).value(), 512 + 16 + 128);
  EXPECT_EQ(plan::RowBytes(v3, Row("int4")).value(), 256 + 16 + 128);
  plan::LayerGroup odd = v3;
  odd.latent.kv_lora_rank = 130;  // the last group of scales is partial
  EXPECT_EQ(plan::RowBytes(odd, Row("fp8")).value(), 130 + 2 * 4 + 128);
  EXPECT_EQ(plan::RowBytes(odd, Row("bf16")).value(), 416);  // 388 used, rows at multiples of 32
  const plan::LayerGroup heads = PlainHeads(8, 3, 5, 1).groups[0];
  EXPECT_EQ(plan::RowBytes(heads, Row("bf16")).value(), 64);  // 60 used
  EXPECT_EQ(plan::RowBytes(heads, Row("fp8")).value(), 30);
  EXPECT_EQ(plan::FindRowFormat("q8"), nullptr);
}

TEST(Rows, PagesAreWholeAndAWindowHoldsAsManyAsItMayTouch) {
  EXPECT_EQ(plan::PagesOf(0, 64, 0), 0);
  EXPECT_EQ(plan::PagesOf(1, 64, 0), 1);
  EXPECT_EQ(plan::PagesOf(64, 64, 0), 1);
  EXPECT_EQ(plan::PagesOf(65, 64, 0), 2);
  // By moving the window along.
  for (const std::int64_t window : {1, 2, 63, 64, 65, 128, 200}) {
    for (const std::int64_t page : {1, 16, 64}) {
      std::int64_t most = 0;
      for (std::int64_t end = 1; end <= 1000; ++end) {
        const std::int64_t begin = std::max<std::int64_t>(0, end - window);
        most = std::max(most, (end - 1) / page - begin / page + 1);
        ASSERT_GE(plan::PagesOf(end, page, window), most) << window << " " << page << " " << end;
      }
      EXPECT_EQ(plan::PagesOf(1000, page, window), most) << window << " " << page;
    }
  }
}

TEST(Limits, AreTheLastThatFit) {
  for (const std::string& path :
       {LatentConfig("deepseek-v3"), OtherConfig("gpt-oss-120b"), OtherConfig("llama-3-8b")}) {
    const plan::Subject subject = SubjectOf(path);
    const Planner planner = Need(Planner::Create(subject, Options()));
    const std::int64_t memory = Need(planner.At(3000, 7)).total;
    const std::int64_t context = planner.LongestContext(7, memory);
    EXPECT_GE(context, 3000) << path;
    EXPECT_LE(Need(planner.At(context, 7)).total, memory) << path;
    EXPECT_GT(Need(planner.At(context + 1, 7)).total, memory) << path;
    const std::int64_t users = planner.MostUsers(3000, memory);
    EXPECT_EQ(users, 7) << path;
    EXPECT_GT(Need(planner.At(3000, users + 1)).total, memory) << path;
    EXPECT_EQ(planner.MostUsers(3000, 1), 0) << path;
    EXPECT_EQ(planner.LongestContext(1, std::int64_t{1} << 60), subject.shape.max_positions) << path;
  }
}

TEST(Limits, ReserveAndDraftsTakeRoom) {
  const plan::Subject subject = SubjectOf(LatentConfig("deepseek-v3"));
  MemoryOptions options = Options();
  const MemoryUse plain = Need(Need(Planner::Create(subject, options)).At(640, 2));
  options.reserve = 12345;
  EXPECT_EQ(Need(Need(Planner::Create(subject, options)).At(640, 2)).total, plain.total + 12345);
  options.reserve = 0;
  options.draft_tokens = 1;  // a page more, and rows of the MTP layer
  const MemoryUse drafts = Need(Need(Planner::Create(subject, options)).At(640, 2));
  EXPECT_EQ(drafts.pages, 2 * 11);
  EXPECT_EQ(drafts.cache, 2 * 11 * 64 * 62 * std::int64_t{1152});
  EXPECT_FALSE(drafts.engines);
}

TEST(Planner, WhatLeavesItsRangeIsRefused) {
  const plan::Subject subject = SubjectOf(LatentConfig("deepseek-v3"));
  const Planner planner = Need(Planner::Create(subject, Options()));
  for (const auto& [context, users] :
       {std::pair<std::int64_t, std::int64_t>{163841, 1}, {163840, 1 << 20}, {1, 1 << 21}}) {
    const auto use = planner.At(context, users);
    ASSERT_FALSE(use.ok()) << context << " " << users;
    EXPECT_EQ(use.error().message.find('\n'), std::string::npos);
  }
  // A cache of keys and values beyond 63 bits.
  plan::Subject wide;
  wide.shape = PlainHeads(65536, 65536, 1 << 24, 1 << 23);
  wide.shape.max_positions = 1 << 20;
  EXPECT_FALSE(Need(Planner::Create(wide, Options())).At(1 << 20, 1).ok());
  EXPECT_FALSE(plan::ElementsPerToken(wide.shape).ok());
}

// What is not known is not made up.
TEST(Planner, WeightsOfOutlines) {
  const plan::Subject subject =
      SubjectOf(std::string(MLA_SOURCE_DIR) + "/tests/contract/data/published/deepseek-v3.2.json");
  MemoryOptions options = Options();
  EXPECT_FALSE(Need(Need(Planner::Create(subject, options)).At(1000, 1)).weights_known);
  options.weight_bytes = 700;
  const MemoryUse use = Need(Need(Planner::Create(subject, options)).At(1000, 1));
  EXPECT_TRUE(use.weights_known);
  EXPECT_EQ(use.weights, 700);
}

TEST(Subject, AFolderWhoseTensorsDoNotFitItsConfigIsRefused) {
  const TempDir dir;
  WriteTinyCheckpoint(dir.path(), TinyConfigJson({}), 3);
  TinyOptions other;
  other.vocab_size = 97;
  std::ofstream(dir.path() + "/config.json") << TinyConfigJson(other);
  const auto subject = plan::OpenSubject(dir.path());
  ASSERT_FALSE(subject.ok());
  EXPECT_THAT(subject.error().message, HasSubstr("do not fit its config"));
  EXPECT_FALSE(plan::OpenSubject(dir.path() + "/none").ok());
}

}  // namespace
}  // namespace mla::testing
