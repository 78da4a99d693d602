// Guesses by the multi-token-prediction layer, against those of the float64 reference.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/draft.h"
#include "engine/harness.h"
#include "mla/engine.h"
#include "reference/demo.h"
#include "reference/reference.h"
#include "testing/models.h"

namespace mla::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kTokens = 160;

const Model& Demo() {
  static const Model model = LoadModel(DemoDir(), WeightDType::kF32);
  return model;
}

EngineOptions Options(Drafter drafter, std::int64_t draft_tokens) {
  EngineOptions o;
  o.mode = Mode::kAbsorb;
  o.kv_dtype = DType::kF32;
  o.kernels = "portable";
  o.context = 512;
  o.page_tokens = 512;  // no guess is left out at the end of a page
  o.drafter = drafter;
  o.draft_tokens = draft_tokens;
  return o;
}

Request Greedy(std::vector<std::int32_t> prompt) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = kTokens;
  return request;
}

struct Told {
  Outcome outcome;
  EngineStats stats;
};

Told RunOne(const EngineOptions& options, const Request& request) {
  const auto pool = MakeThreadPool(1);
  Engine engine = Need(Engine::Create(Demo(), options, *pool));
  EXPECT_EQ(engine.memory().total(), Need(Engine::Plan(Demo(), options, 1)).total());
  const SequenceId id = Need(engine.Submit(request));
  RunAll(&engine, {id});
  Told run{OutcomeOf(engine, id), engine.stats()};
  engine.Release(id);
  engine.CheckPages();
  return run;
}

struct Guesses {
  std::int64_t made = 0;
  std::int64_t held = 0;
};

// What the engine does with one guess a step, if its guesses are `likeliest`: of position i, the token of place i + 2.
Guesses Play(std::span<const std::int32_t> ids, std::int64_t prompt, std::span<const std::int32_t> likeliest) {
  Guesses guesses;
  engine::DraftThrottle throttle;
  const std::int64_t most = std::ssize(ids);
  for (std::int64_t size = prompt + 1; size < most;) {
    const std::int64_t drafted = std::max<std::int64_t>(0, throttle.Next(std::min<std::int64_t>(1, most - size - 1)));
    const bool held =
        drafted > 0 && likeliest[static_cast<std::size_t>(size - 2)] == ids[static_cast<std::size_t>(size)];
    throttle.Tell(drafted, held ? 1 : 0);
    guesses.made += drafted;
    guesses.held += held ? 1 : 0;
    size += held ? 2 : 1;
  }
  return guesses;
}

TEST(Mtp, GuessesAreTheReferences) {
  const reference::ReferenceModel reference = DemoModel(DemoConfig());
  const auto vocab = static_cast<std::size_t>(reference.config().vocab_size);
  for (const char* name : {"genesis", "tokens_128", "unicode"}) {
    SCOPED_TRACE(name);
    const std::vector<std::int32_t> prompt = GoldenIds(name);
    const Told plain = RunOne(Options(Drafter::kNone, 1), Greedy(prompt));
    const Told drafted = RunOne(Options(Drafter::kMtp, 1), Greedy(prompt));
    ExpectSameBits(drafted.outcome, plain.outcome, "with guesses");

    std::vector<std::int32_t> ids = prompt;
    ids.insert(ids.end(), plain.outcome.ids.begin(), plain.outcome.ids.end());
    auto state = reference.NewState();
    std::vector<double> hidden;
    reference.Append(state, ids, &hidden);
    const std::vector<double> logits = reference.Draft(ids, hidden);
    std::vector<std::int32_t> likeliest;
    for (std::size_t row = 0; row + 1 < ids.size(); ++row) {
      likeliest.push_back(ArgMax(std::span(logits).subspan(row * vocab, vocab)));
    }
    const Guesses expected = Play(ids, std::ssize(prompt), likeliest);
    EXPECT_EQ(drafted.stats.draft_rows, expected.made);
    EXPECT_EQ(drafted.stats.accepted, expected.held);
    EXPECT_GT(expected.held, 10) << "too few to tell";
  }
}

// Rows of several sequences in one step, prompts beside output: each guess is made of its own sequence's row.
TEST(Mtp, InCompanyGuessesAreThoseAlone) {
  EngineOptions options = Options(Drafter::kMtp, 1);
  options.max_sequences = 3;
  options.prefill_chunk = 40;
  const auto pool = MakeThreadPool(1);
  Engine engine = Need(Engine::Create(Demo(), options, *pool));
  std::vector<SequenceId> ids;
  std::vector<Told> alone;
  EngineStats sum;
  for (const char* name : {"genesis", "tokens_128", "unicode"}) {
    const Request request = Greedy(GoldenIds(name));
    alone.push_back(RunOne(Options(Drafter::kMtp, 1), request));
    sum.draft_rows += alone.back().stats.draft_rows;
    sum.accepted += alone.back().stats.accepted;
    ids.push_back(Need(engine.Submit(request)));
  }
  RunAll(&engine, ids);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ExpectSameBits(OutcomeOf(engine, ids[i]), alone[i].outcome, "in company");
  }
  EXPECT_EQ(engine.stats().draft_rows, sum.draft_rows);
  EXPECT_EQ(engine.stats().accepted, sum.accepted);
}

// The layer's own output as the next hidden state: no oracle, but worth having.
TEST(Mtp, SeveralGuessesAStep) {
  const Request request = Greedy(GoldenIds("genesis"));
  const Told plain = RunOne(Options(Drafter::kNone, 1), request);
  const Told one = RunOne(Options(Drafter::kMtp, 1), request);
  const Told many = RunOne(Options(Drafter::kMtp, 4), request);
  ExpectSameBits(many.outcome, plain.outcome, "with four guesses");
  EXPECT_LT(one.stats.steps, plain.stats.steps);
  EXPECT_LT(many.stats.steps, one.stats.steps);
  EXPECT_EQ(many.stats.attention.absorbed_rows,
            many.stats.prompt_rows + many.stats.generated_rows + many.stats.draft_rows)
      << "rows of the layer itself are not the model's";
}

TEST(Mtp, NeedsTheLayer) {
  const Model model = TinyModel(TinyOptions{}, 3);
  const auto pool = MakeThreadPool(1);
  EngineOptions options;
  options.drafter = Drafter::kMtp;
  const auto engine = Engine::Create(model, options, *pool);
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(engine.error().message, HasSubstr("multi-token-prediction"));
}

}  // namespace
}  // namespace mla::testing
