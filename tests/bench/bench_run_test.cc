// Tiny cases through every table of kernels that the machine has: they run, and say what they ran. No time is asserted.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "bench/gemm_bench.h"
#include "bench/least.h"
#include "bench/limits.h"
#include "bench/model_bench.h"
#include "bench/moe_bench.h"
#include "contract/config.h"
#include "testing/models.h"

namespace mla::bench {
namespace {

using testing::Need;

constexpr Repeats kFew = {0, 1};
constexpr double kRunSeconds = 1e-5;  // of a peak loop

void ExpectMeasured(const CaseResult& result) {
  const Summary& s = result.measured.seconds;
  EXPECT_EQ(s.count, kFewestRepeats);
  EXPECT_GT(s.median, 0);
  EXPECT_LE(s.p10, s.median);
  EXPECT_LE(s.median, s.p90);
  EXPECT_GT(result.measured.rates.peak, 0);
  EXPECT_GT(result.measured.rates.read, 0);
  EXPECT_TRUE(std::isfinite(result.judgement().share));
  EXPECT_GT(result.judgement().share, 0);
}

GemmPlan TinyPlan(const WeightFormat& format) {
  GemmPlan plan;
  plan.shape.name = "tiny";
  plan.shape.n = 20;
  plan.shape.k = 33;
  plan.format = format;
  plan.max_rows = 3;
  plan.working_set = 10000;
  return plan;
}

TEST(GemmBench, RunsOnEveryTableAndFormat) {
  const CpuInfo cpu = DetectCpu();
  const auto pool = MakeThreadPool(2);
  Probe probe(*pool, cpu, kRunSeconds);
  for (const WeightFormat& format : WeightFormats()) {
    GemmBench bench = Need(GemmBench::Create(TinyPlan(format), *pool));
    for (const Isa isa : kIsas) {
      if (!cpu.Has(isa)) continue;
      const CaseResult result = bench.Run(probe, isa, 3, kFew);
      SCOPED_TRACE(std::string(IsaName(isa)) + " " + format.name);
      ExpectMeasured(result);
      EXPECT_EQ(result.name, "tiny");
      EXPECT_EQ(result.rows, 3);
      EXPECT_EQ(result.n, 20);
      EXPECT_EQ(result.k, 33);
      EXPECT_EQ(result.format, format.name);
      EXPECT_GE(result.working_set, 10000);
      EXPECT_EQ(result.work.operations, 2 * 3 * 20 * 33);
      EXPECT_EQ(result.work.peak, PeakFor(isa, format.format));
    }
  }
}

// Lanes of a tiny matrix that hold nothing but zero, beside the second of a pair past an odd k; the others hold no zero
// and, in fp8, a scale.
int ZeroLanes(const ops::PackedMatrix& w) {
  const std::int64_t width = w.format == ops::PackedFormat::kF8 ? 2 : 4;
  int zero_lanes = 0;
  for (std::int64_t lane = 0; lane < ops::Panels(w.n) * 16; ++lane) {
    const std::byte* at = w.data + lane / 16 * w.panel_bytes();
    const std::byte* end = at + w.panel_bytes();
    int zeros = 0;
    int words = 0;
    const auto count = [&](std::int64_t bytes) {
      std::uint32_t word = 0;
      std::memcpy(&word, at + lane % 16 * bytes, static_cast<std::size_t>(bytes));
      zeros += word == 0 ? 1 : 0;
      ++words;
      at += 16 * bytes;
    };
    if (w.scale_block > 0) count(4);  // one block of k
    while (at < end) count(width);
    EXPECT_TRUE(zeros == 0 || zeros == words) << lane;
    zero_lanes += zeros > 0 ? 1 : 0;
  }
  return zero_lanes;
}

// Streaming rests on it: each product has the copy that was read longest ago.
TEST(GemmBench, GoesRoundTheCopies) {
  const auto pool = MakeThreadPool(2);
  for (const WeightFormat& format : WeightFormats()) {
    const GemmPlan plan = TinyPlan(format);
    GemmBench bench = Need(GemmBench::Create(plan, *pool));
    const ops::PackedMatrix first = bench.NextCopy();
    std::vector<float> values(33);
    std::set<std::byte*> seen = {first.data};
    for (std::int64_t i = 1; i < plan.copies(); ++i) {
      const ops::PackedMatrix next = bench.NextCopy();
      EXPECT_TRUE(seen.insert(next.data).second);
      EXPECT_EQ(std::memcmp(next.data, first.data, static_cast<std::size_t>(first.bytes())), 0);
    }
    EXPECT_GT(plan.copies(), 2);
    EXPECT_EQ(bench.NextCopy().data, first.data);
    EXPECT_EQ(ZeroLanes(first), 12) << format.name;  // of 32 outputs, those past n alone
  }
}

// A new format is a name, how it is kept, and what it is packed from: fp8's scales come along.
TEST(FillWeights, DrawsAnySource) {
  const auto pool = MakeThreadPool(2);
  for (const DType source : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
    const WeightFormat format{"any", ops::PackedFormat::kF32, source};
    ops::PackedMatrix w = ShapeOf(format, 160, 300);
    std::vector<float> packed(static_cast<std::size_t>(w.bytes() / 4));
    w.data = reinterpret_cast<std::byte*>(packed.data());
    std::vector<float> memory(static_cast<std::size_t>(SourceBytes(format, w.n, w.k) + 3) / 4);
    FillWeights(format, reinterpret_cast<std::byte*>(memory.data()), w, *pool);
    double squares = 0;
    for (const float x : packed) squares += static_cast<double>(x) * x;
    // Variance 1 / k, of 48,000 numbers: its standard error is sqrt(2 / 48000) = 0.6 %. The six scales of fp8 are
    // from 0.75 to 1.25 times the whole, so that the mean of their squares is from 0.56 to 1.56.
    const double variance = squares / static_cast<double>(packed.size()) * 300;
    const bool fp8 = source == DType::kF8E4M3;
    EXPECT_GT(variance, fp8 ? 0.55 : 0.97) << DTypeName(source);
    EXPECT_LT(variance, fp8 ? 1.6 : 1.03) << DTypeName(source);
    EXPECT_EQ(std::count(packed.begin(), packed.end(), 0.0F), 0) << DTypeName(source);
  }
}

TEST(GemmBench, PlansWhatItAllocates) {
  const GemmPlan plan = TinyPlan(WeightFormats()[1]);
  const std::int64_t copy = ops::PackedBytes(ops::PackedFormat::kBF16, 20, 33);
  EXPECT_GE(GemmBench::PlannedBytes(plan, 2), 10000);
  GemmPlan more = plan;
  more.working_set += copy;
  EXPECT_EQ(GemmBench::PlannedBytes(more, 2) - GemmBench::PlannedBytes(plan, 2), (copy + 63) / 64 * 64);
}

contract::ModelConfig TinyConfig(bool shared) {
  testing::TinyOptions options;
  if (!shared) options.n_shared_experts = 0;
  return Need(contract::ParseConfig(testing::TinyConfigJson(options), "tiny"));
}

TEST(MoeBench, RunsOnEveryTable) {
  const CpuInfo cpu = DetectCpu();
  const auto pool = MakeThreadPool(2);
  Probe probe(*pool, cpu, kRunSeconds);
  for (const bool shared : {true, false}) {
    const contract::ModelConfig config = TinyConfig(shared);
    const contract::MoeConfig& moe = *config.moe;
    for (const WeightFormat& format : WeightFormats()) {
      if (!shared && format.format == ops::PackedFormat::kF32) continue;
      MoeBench bench = Need(MoeBench::Create({"tiny", config, format, 64, 4096}, *pool));
      for (const Isa isa : kIsas) {
        if (!cpu.Has(isa)) continue;
        SCOPED_TRACE(std::string(IsaName(isa)) + " " + format.name);
        const CaseResult one = bench.Run(probe, isa, 1, kFew);
        ExpectMeasured(one);
        EXPECT_EQ(one.experts, moe.num_experts_per_tok);  // a token's experts are distinct
        const CaseResult many = bench.Run(probe, isa, 64, kFew);
        ExpectMeasured(many);
        EXPECT_GT(many.experts, one.experts);
        EXPECT_LE(many.experts, moe.n_routed_experts);
        const Work work = MoeWork(moe, config.hidden_size, format, 64, many.experts, isa);
        EXPECT_EQ(many.work.bytes, work.bytes);
        EXPECT_EQ(many.work.operations, work.operations);
      }
    }
  }
}

TEST(MeasureLimits, HasEveryPeakAndSize) {
  const CpuInfo cpu = DetectCpu();
  const auto pool = MakeThreadPool(1);
  Probe probe(*pool, cpu, kRunSeconds);
  const std::vector<std::int64_t> sizes = {64, 4096};
  const MachineLimits limits = Need(MeasureLimits(probe, cpu, sizes));
  EXPECT_EQ(limits.peaks.size(), MachinePeaks(cpu).size());
  ASSERT_EQ(limits.reads.size(), 2U);
  EXPECT_EQ(limits.reads[1].size, 4096);
  for (const ReadRate& read : limits.reads) EXPECT_GT(read.bytes.median, 0);
  for (const PeakRate& peak : limits.peaks) EXPECT_GT(peak.operations.median, 0);
}

TEST(ReadSizes, EndWhereMemoryIs) {
  constexpr std::int64_t kMiB = 1 << 20;
  EXPECT_EQ(ReadSizes(1024 * kMiB), (std::vector<std::int64_t>{kMiB, 8 * kMiB, 64 * kMiB, 512 * kMiB, 1024 * kMiB}));
  EXPECT_EQ(ReadSizes(64), (std::vector<std::int64_t>{64}));
}

TEST(BenchModel, TimesEveryTokenAndPrompt) {
  const auto pool = MakeThreadPool(2);
  const Model model = testing::TinyModel({}, 1);
  ModelBenchOptions options;
  options.vocab_size = model.info().vocab_size;
  options.context = 5;
  options.tokens = 4;
  options.prompt = 7;
  options.repeats = 2;
  EngineOptions engine_options;
  engine_options.context = ContextNeeded(options);
  EXPECT_EQ(engine_options.context, 11);  // 5 held, two untimed, four timed
  Engine engine = Need(Engine::Create(model, engine_options, *pool));
  const ModelBenchResult result = Need(BenchModel(engine, options));
  EXPECT_EQ(result.step_seconds.count, 4);
  EXPECT_EQ(result.prompt_seconds.count, 2);
  EXPECT_GT(result.step_seconds.median, 0);
  EXPECT_GT(result.prompt_seconds.median, 0);
  // Rows: 5 and 3 prompts of 7; of output, each prompt's first token comes without a row of its own.
  EXPECT_EQ(engine.stats().prompt_rows, 5 + 3 * 7);
  EXPECT_EQ(engine.stats().generated_rows, 5);
  EXPECT_FALSE(result.step_least);
  EXPECT_FALSE(result.prompt_least);
  options.context = 100;  // more than the engine holds
  EXPECT_FALSE(BenchModel(engine, options).ok());
}

// Three sequences whose prompts take several steps, and a prompt behind cached rows that fill no whole page.
TEST(BenchModel, DecodesSequencesTogetherAndPromptsBehindOthers) {
  const auto pool = MakeThreadPool(2);
  const Model model = testing::TinyModel({}, 1);
  ModelBenchOptions options;
  options.vocab_size = model.info().vocab_size;
  options.context = 13;
  options.tokens = 4;
  options.sequences = 3;
  options.prompt = 7;
  options.prompt_after = 21;
  options.repeats = 2;
  EngineOptions engine_options;
  engine_options.context = ContextNeeded(options);
  EXPECT_EQ(engine_options.context, 29);  // 21 cached, 7 and one of output
  engine_options.max_sequences = 3;
  engine_options.page_tokens = 4;
  engine_options.prefill_chunk = 5;
  engine_options.cache_pages = PagesNeeded(options, 4);
  EXPECT_EQ(engine_options.cache_pages, 15);  // three times 19 tokens; the prompt takes 8 and a copy
  Engine engine = Need(Engine::Create(model, engine_options, *pool));
  const ModelBenchResult result = Need(BenchModel(engine, options));
  EXPECT_EQ(result.step_seconds.count, 4);
  EXPECT_EQ(result.prompt_seconds.count, 2);
  // No row is run twice: three prompts of 13, the 21, and three times the 7 behind them.
  EXPECT_EQ(engine.stats().prompt_rows, 3 * 13 + 21 + 3 * 7);
  EXPECT_EQ(engine.stats().generated_rows, 3 * 5);
  EXPECT_GE(engine.stats().cached_tokens, 3 * 21);
  // 3 steps a prompt, 5 of output for all, 5 of the 21, and 2 a prompt behind them.
  EXPECT_EQ(engine.stats().steps, 3 * 3 + 5 + 5 + 3 * 2);
  engine.CheckPages();

  engine_options.cache_pages = 12;
  Engine small = Need(Engine::Create(model, engine_options, *pool));
  const Result<ModelBenchResult> none = BenchModel(small, options);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().message, "cache: no page is left");
  options.sequences = 1;
  EXPECT_EQ(PagesNeeded(options, 4), 9);  // 29 tokens, and the copy of the cached tokens' last page
  engine_options.cache_pages = 9;
  Engine exact = Need(Engine::Create(model, engine_options, *pool));
  EXPECT_TRUE(BenchModel(exact, options).ok());
  engine_options.prefix_reuse = PrefixReuse::kOff;
  Engine forgetful = Need(Engine::Create(model, engine_options, *pool));
  const Result<ModelBenchResult> lost = BenchModel(forgetful, options);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().message, "cache: 0 of the 21 tokens before the prompt are left");
}

// While the others' prompts run, the first ones wait: every timed step has a row of each, of as many keys.
TEST(BenchModel, KeepsSequencesInStep) {
  const auto pool = MakeThreadPool(2);
  const Model model = testing::TinyModel({}, 1);
  const contract::ModelConfig config = Need(contract::ParseConfig(testing::TinyConfigJson({}), "tiny"));
  ModelBenchOptions options;
  options.vocab_size = model.info().vocab_size;
  options.dims.num_attention_heads = config.num_attention_heads;
  options.workers = 2;
  options.context = 13;
  options.tokens = 1;
  options.sequences = 3;
  options.prompt = 1;
  EngineOptions engine_options;
  engine_options.mode = Mode::kAbsorb;
  engine_options.context = ContextNeeded(options);
  engine_options.max_sequences = 3;
  engine_options.prefill_chunk = 4;
  engine_options.profile = true;
  Engine engine = Need(Engine::Create(model, engine_options, *pool));
  const ModelBenchResult result = Need(BenchModel(engine, options));
  ASSERT_TRUE(result.step_profile);
  // 13 tokens of the prompt and two of output.
  EXPECT_EQ(result.step_profile->counts.attention.absorbed_pairs,
            config.num_hidden_layers * config.num_attention_heads * 3 * 15);
}

TEST(BenchModel, HasTheLeastTimeOfWhatItTimes) {
  const auto pool = MakeThreadPool(2);
  const Model model = testing::TinyModel({}, 1);
  const CpuInfo cpu = DetectCpu();
  Probe probe(*pool, cpu, kRunSeconds);
  const LeastModel least = MakeLeastModel(Need(contract::ParseConfig(testing::TinyConfigJson({}), "tiny")),
                                          WeightDType::kBF16, DType::kBF16, cpu.best(), 0);
  std::vector<float> memory(4096);
  LimitMeter meter(&probe, least, std::as_bytes(std::span(std::as_const(memory))));
  ModelBenchOptions options;
  options.vocab_size = model.info().vocab_size;
  options.context = 10;
  options.tokens = 5;
  options.sequences = 2;
  options.prompt = 9;
  options.prompt_after = 8;
  options.repeats = 1;
  EngineOptions engine_options;
  engine_options.context = ContextNeeded(options);
  engine_options.max_sequences = 2;
  engine_options.prefill_chunk = 4;
  Engine engine = Need(Engine::Create(model, engine_options, *pool));
  const ModelBenchResult result = Need(BenchModel(engine, options, ModelLimits{&least, &meter}));
  ASSERT_TRUE(result.step_least && result.prompt_least);
  // Ten tokens and two untimed; the first timed step has 12 keys, the middle one of five 14.
  const LeastResult& step = *result.step_least;
  EXPECT_EQ(step.time.seconds, Need(LeastOfStep(least, {1, 14, 2}, step.rates)).seconds);
  const LeastResult& prompt = *result.prompt_least;
  EXPECT_EQ(prompt.time.seconds, Need(LeastOfPrompt(least, 8, 9, 4, prompt.rates)).seconds);
  EXPECT_EQ(prompt.time.absorbed_steps + prompt.time.mha_steps, 3);
  EXPECT_NE(step.rates.read, prompt.rates.read) << "measured around each";
}

}  // namespace
}  // namespace mla::bench
