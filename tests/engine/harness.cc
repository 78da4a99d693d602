#include "engine/harness.h"

#include <bit>
#include <map>
#include <span>
#include <utility>

#include <gtest/gtest.h>

#include "sampler/sampler.h"
#include "testing/forward.h"

namespace mla::testing {
namespace {

Model Make(const std::string& name) {
  if (name == "experts") return TinyModel(TinyOptions{}, 3);
  if (name == "odd") return TinyModel(OddOptions(), 4, WeightDType::kBF16);
  if (name == "half_split") return TinyModel(HalfSplitOptions(), 5, WeightDType::kBF16);
  if (name == "demo") return LoadModel(DemoDir(), WeightDType::kBF16);
  return LoadModel(std::string(MLA_SOURCE_DIR) + "/tests/conformance/data/" + name, WeightDType::kBF16);
}

void ExpectSameFloats(const std::vector<float>& found, const std::vector<float>& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(found[i]), std::bit_cast<std::uint32_t>(expected[i]))
        << what << " " << i << ": " << found[i] << " and " << expected[i];
  }
}

}  // namespace

const Model& ModelOf(const std::string& name) {
  static std::map<std::string, Model> models;
  auto found = models.find(name);
  if (found == models.end()) found = models.emplace(name, Make(name)).first;
  return found->second;
}

Outcome OutcomeOf(const Engine& engine, SequenceId id) {
  const SequenceView view = engine.Get(id);
  Outcome outcome;
  outcome.ids.assign(view.output().begin(), view.output().end());
  outcome.logprobs.assign(view.logprobs.begin(), view.logprobs.end());
  outcome.prompt_logprobs.assign(view.prompt_logprobs.begin(), view.prompt_logprobs.end());
  outcome.finish = view.finish;
  outcome.prompt_form = view.prompt_form;
  return outcome;
}

void RunAll(Engine* engine, const std::vector<SequenceId>& ids) {
  for (const SequenceId id : ids) {
    while (engine->Get(id).finish == FinishReason::kNone)
      ASSERT_TRUE(engine->Step()) << "sequence " << id << " is stuck";
  }
}

Outcome Alone(const Model& model, const EngineOptions& options, const Request& request, int threads) {
  const auto pool = MakeThreadPool(threads);
  Engine engine = Need(Engine::Create(model, options, *pool));
  const SequenceId id = Need(engine.Submit(request));
  RunAll(&engine, {id});
  return OutcomeOf(engine, id);
}

void ExpectSameBits(const Outcome& found, const Outcome& expected, const std::string& what) {
  SCOPED_TRACE(what);
  EXPECT_EQ(found.ids, expected.ids);
  EXPECT_EQ(found.finish, expected.finish);
  ExpectSameFloats(found.prompt_logprobs, expected.prompt_logprobs, "prompt log-probability");
  ExpectSameFloats(found.logprobs, expected.logprobs, "output log-probability");
}

void ExpectBitsOfForward(const Model& model, const Request& request, const Outcome& found, DType kv_dtype,
                         const std::vector<std::pair<std::int64_t, Form>>& prompt_forms, Form output) {
  std::vector<std::int32_t> run = request.prompt;
  run.insert(run.end(), found.ids.begin(), found.ids.end() - 1);
  ForwardOptions forward;
  forward.kv_dtype = kv_dtype;
  for (const auto& [end, form] : prompt_forms) forward.forms.push_back({end, form});
  forward.forms.push_back({static_cast<std::int64_t>(run.size()), output});
  const auto pool = MakeThreadPool(1);
  const std::vector<float> logits = ForwardLogits(model, run, forward, *pool);
  const auto vocab = static_cast<std::size_t>(model.info().vocab_size);
  std::vector<float> logprobs;
  for (std::size_t i = 0; i < found.ids.size(); ++i) {
    const auto row = std::span(logits).subspan((request.prompt.size() - 1 + i) * vocab, vocab);
    logprobs.push_back(static_cast<float>(sampler::LogProbability(row, found.ids[i])));
  }
  ExpectSameFloats(found.logprobs, logprobs, "log-probability against the transformer alone");
}

}  // namespace mla::testing
