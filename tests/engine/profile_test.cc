// A profiled engine: the bits of one that is not, and steps that fit together.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "mla/engine.h"
#include "testing/models.h"

namespace mla::testing {
namespace {

// All that a request gave, prompt rows in one form and output in the other.
Engine::Completion Answer(Engine* engine) {
  Request request;
  request.prompt = RandomIds(70, 96, 5);
  request.max_tokens = 9;
  request.prompt_logprobs = true;
  return Need(engine->Generate(request));
}

EngineOptions RoleOptions(bool profile) {
  EngineOptions options;
  options.mode = Mode::kRole;
  options.context = 128;
  options.prefill_chunk = 40;
  options.profile = profile;
  return options;
}

TEST(EngineProfile, ChangesNoBit) {
  const Model model = TinyModel({}, 3);
  const std::unique_ptr<Executor> pool = MakeThreadPool(2);
  Engine plain = Need(Engine::Create(model, RoleOptions(false), *pool));
  Engine profiled = Need(Engine::Create(model, RoleOptions(true), *pool));
  const Engine::Completion a = Answer(&plain);
  const Engine::Completion b = Answer(&profiled);
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.logprobs, b.logprobs);
  EXPECT_EQ(a.prompt_logprobs, b.prompt_logprobs);
}

TEST(EngineProfile, CountsOfStepsFitTogether) {
  const Model model = TinyModel({}, 3, WeightDType::kBF16);
  const std::int64_t layers = model.info().layers;
  const std::unique_ptr<Executor> pool = MakeThreadPool(2);
  Engine engine = Need(Engine::Create(model, RoleOptions(true), *pool));
  Answer(&engine);
  const StepProfile profile = engine.profile();
  // Two chunks, the second of which yields a token, and eight steps of one row.
  EXPECT_EQ(profile.steps, 2 + 8);
  EXPECT_EQ(profile.attention.calls, layers * profile.steps);
  EXPECT_EQ(profile.attention.absorbed_rows, layers * 8);
  double phases = 0;
  for (std::size_t i = 0; i < kStepPhases; ++i) {
    SCOPED_TRACE(StepPhaseName(static_cast<StepPhase>(i)));
    EXPECT_GT(profile.times[i].times, 0);
    EXPECT_LE(profile.times[i].busy_largest, profile.times[i].seconds * (1 + 1e-9));
    phases += profile.times[i].seconds;
  }
  EXPECT_LE(phases, profile.seconds * (1 + 1e-9));
  EXPECT_LE(profile.attention.seconds, profile[StepPhase::kAttention].seconds * (1 + 1e-9));
  EXPECT_LE(profile.product_seconds, (phases - profile.attention.seconds) * (1 + 1e-9));
  EXPECT_GT(profile.product_operations, 0);
  // Every weight lies where it was packed at load.
  EXPECT_EQ(profile.weight_conversions, 0);
  EXPECT_EQ(profile.attention.weight_conversions, 0);
}

// A step of output expands nothing; one of a prompt in the MHA form expands every position, for all heads and layers.
TEST(EngineProfile, ExpansionsOfAStep) {
  const Model model = TinyModel({}, 3);
  const std::unique_ptr<Executor> pool = MakeThreadPool(1);
  Engine engine = Need(Engine::Create(model, RoleOptions(true), *pool));
  Request request;
  request.prompt = RandomIds(40, 96, 6);
  request.max_tokens = 4;
  ASSERT_TRUE(engine.Submit(request).ok());
  ASSERT_TRUE(engine.Step());
  const std::int64_t of_prompt = engine.profile().attention.expanded;
  EXPECT_GT(of_prompt, 0);
  EXPECT_EQ(of_prompt % (model.info().layers * 40), 0);
  engine.ResetProfile();
  EXPECT_EQ(engine.profile().steps, 0);
  for (const PhaseTime& time : engine.profile().times) EXPECT_EQ(time.times, 0);
  EXPECT_EQ(engine.profile().product_operations, 0);
  ASSERT_TRUE(engine.Step());
  EXPECT_EQ(engine.profile().steps, 1);
  EXPECT_EQ(engine.profile().attention.expanded, 0);
  EXPECT_EQ(engine.profile().attention.mha_pairs, 0);
  EXPECT_EQ(engine.profile().weight_conversions, 0);
}

}  // namespace
}  // namespace mla::testing
