// The engine against golden.json (computed by PyTorch in float64) and against our own float64 reference.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mla/engine.h"
#include "reference/demo.h"
#include "reference/reference.h"
#include "testing/forward.h"
#include "testing/models.h"

namespace mla::testing {
namespace {

constexpr double kTolerance = 1e-4;
constexpr std::int32_t kEndOfSentence = 1;
constexpr std::int64_t kNewTokens = 48;

const std::vector<Mode> kModes = {Mode::kAbsorb, Mode::kMha, Mode::kRole, Mode::kAuto};
// Sanitizers get one of each.
const std::vector<std::int64_t> kChunks =
    kUnderSanitizer ? std::vector<std::int64_t>{64} : std::vector<std::int64_t>{1, 7, 64, 512};
const std::vector<int> kThreads = kUnderSanitizer ? std::vector<int>{2} : std::vector<int>{1, 2, 3};

std::vector<double> Numbers(const io::JsonValue& array) {
  std::vector<double> numbers;
  for (const io::JsonValue& item : array.items()) numbers.push_back(item.number());
  return numbers;
}

struct Expected {
  explicit Expected(const std::string& name)
      : ids(GoldenIds(name)),
        greedy(Ids(Field(Field(Golden(), name), "greedy"))),
        gaps(Numbers(Field(Field(Golden(), name), "greedy_gaps"))),
        next_logprobs(Numbers(Field(Field(Golden(), name), "next_logprobs"))) {}

  // Prompt and output but its last token: what has been run when the last token is chosen.
  std::vector<std::int32_t> Run() const {
    std::vector<std::int32_t> all = ids;
    all.insert(all.end(), greedy.begin(), greedy.end() - 1);
    return all;
  }

  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> greedy;
  std::vector<double> gaps;
  std::vector<double> next_logprobs;
};

template <class T>
double LogProbabilityOf(std::span<const T> row, std::int32_t id) {
  const double largest = static_cast<double>(*std::max_element(row.begin(), row.end()));
  double sum = 0;
  for (const T value : row) sum += std::exp(static_cast<double>(value) - largest);
  return static_cast<double>(row[static_cast<std::size_t>(id)]) - largest - std::log(sum);
}

const reference::ReferenceModel& Reference() {
  static const reference::ReferenceModel model = DemoModel(DemoConfig());
  return model;
}

std::size_t Vocab() { return static_cast<std::size_t>(Reference().config().vocab_size); }

// Float64 logits [ids.size(), vocab], the ids appended in chunks.
std::vector<double> ReferenceLogits(std::span<const std::int32_t> ids, std::size_t chunk) {
  auto state = Reference().NewState();
  std::vector<double> logits;
  for (std::size_t at = 0; at < ids.size(); at += chunk) {
    const auto rows = Reference().Append(state, ids.subspan(at, std::min(chunk, ids.size() - at)));
    logits.insert(logits.end(), rows.begin(), rows.end());
  }
  return logits;
}

template <class T>
std::span<const T> Row(const std::vector<T>& rows, std::size_t i) {
  return std::span<const T>(rows).subspan(i * Vocab(), Vocab());
}

class GoldenPrompt : public ::testing::TestWithParam<std::string> {};

// Mode explicit: the reference itself, in every chunk size.
void CheckExplicit(const Expected& expected, std::vector<double>* new_logprobs) {
  const std::vector<std::int32_t> run = expected.Run();
  for (const std::int64_t chunk : kChunks) {
    SCOPED_TRACE("explicit, chunk " + std::to_string(chunk));
    const std::vector<double> logits = ReferenceLogits(run, static_cast<std::size_t>(chunk));
    for (std::size_t i = 0; i < expected.next_logprobs.size(); ++i) {
      ASSERT_NEAR(LogProbabilityOf(Row(logits, i), expected.ids[i + 1]), expected.next_logprobs[i], kTolerance);
    }
    new_logprobs->clear();
    for (std::size_t i = 0; i < expected.greedy.size(); ++i) {
      const auto row = Row(logits, expected.ids.size() - 1 + i);
      ASSERT_EQ(ArgMax(row), expected.greedy[i]) << "output token " << i;
      new_logprobs->push_back(LogProbabilityOf(row, expected.greedy[i]));
    }
  }
}

void CheckEngine(const Expected& expected, const std::vector<double>& new_logprobs, Engine* engine) {
  Request request;
  request.prompt = expected.ids;
  request.max_tokens = kNewTokens;
  request.eos_ids = {kEndOfSentence};
  request.prompt_logprobs = true;
  const auto done = engine->Generate(request);
  ASSERT_TRUE(done.ok()) << done.error().message;
  ASSERT_EQ(done->ids, expected.greedy);
  const bool ends = expected.greedy.back() == kEndOfSentence;
  EXPECT_EQ(done->finish, ends ? FinishReason::kEos : FinishReason::kMaxTokens);
  ASSERT_EQ(done->prompt_logprobs.size(), expected.next_logprobs.size());
  for (std::size_t i = 0; i < expected.next_logprobs.size(); ++i) {
    ASSERT_NEAR(done->prompt_logprobs[i], expected.next_logprobs[i], kTolerance) << "prompt token " << i + 1;
  }
  ASSERT_EQ(done->logprobs.size(), new_logprobs.size());
  for (std::size_t i = 0; i < new_logprobs.size(); ++i) {
    ASSERT_NEAR(done->logprobs[i], new_logprobs[i], kTolerance) << "output token " << i;
  }
}

TEST_P(GoldenPrompt, InEveryModeChunkAndThreadCount) {
  const Expected expected(GetParam());
  ASSERT_TRUE(expected.greedy.size() == kNewTokens || expected.greedy.back() == kEndOfSentence);
  // Two logits that are each within the tolerance of their float64 values keep their order where they lie further apart
  // than twice that: no greedy token of the file is a matter of fp32 rounding. The nearest, 0.0017, is tokens_128's
  // first.
  for (std::size_t i = 0; i < expected.gaps.size(); ++i) {
    ASSERT_GT(expected.gaps[i], 2 * kTolerance) << "a near tie at output token " << i << ": fp32 may choose the other";
  }
  std::vector<double> new_logprobs;
  ASSERT_NO_FATAL_FAILURE(CheckExplicit(expected, &new_logprobs));
  const Model model = LoadModel(DemoDir(), WeightDType::kF32);
  for (const int threads : kThreads) {
    const auto pool = MakeThreadPool(threads);
    ASSERT_EQ(pool->workers(), threads);
    for (const Mode mode : kModes) {
      for (const std::int64_t chunk : kChunks) {
        // 721 tokens one by one take seconds: once for each mode. invariance_test holds bits over threads and chunks.
        if (expected.ids.size() > 500 && chunk == 1 && threads > 1) continue;
        SCOPED_TRACE(std::string(ModeName(mode)) + ", chunk " + std::to_string(chunk) + ", threads " +
                     std::to_string(threads));
        EngineOptions options;
        options.mode = mode;
        options.kv_dtype = DType::kF32;
        options.prefill_chunk = chunk;
        Engine engine = Need(Engine::Create(model, options, *pool));
        ASSERT_NO_FATAL_FAILURE(CheckEngine(expected, new_logprobs, &engine));
      }
    }
  }
}

const std::vector<std::string> kPrompts = {"genesis",   "and",       "came_to_pass", "psalm",
                                           "chat",      "chat_ask",  "jonah_long",   "unicode",
                                           "tokens_63", "tokens_64", "tokens_65",    "tokens_128"};
INSTANTIATE_TEST_SUITE_P(Demo, GoldenPrompt, ::testing::ValuesIn(kPrompts),
                         [](const auto& test) { return test.param; });

// What a bf16 cache (and bf16 weights, which are the checkpoint's own) costs, over every position of every prompt and
// its golden output.
struct Loss {
  double kl_sum = 0;
  double kl_largest = 0;
  std::int64_t positions = 0;
  double error = 0;  // largest difference of a logit
  std::int64_t compared = 0;
  std::int64_t too_near = 0;

  void Add(std::span<const double> exact, std::span<const float> rounded) {
    double kl = 0;
    const double shift_p = LogProbabilityOf(exact, 0) - exact[0];
    const double shift_q = LogProbabilityOf(rounded, 0) - static_cast<double>(rounded[0]);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const double log_p = exact[i] + shift_p;
      kl += std::exp(log_p) * (log_p - static_cast<double>(rounded[i]) - shift_q);
    }
    ASSERT_TRUE(std::isfinite(kl));
    kl_sum += kl;
    kl_largest = std::max(kl_largest, kl);
    ++positions;
    error = std::max(error, Difference(exact, rounded));
  }

  static double Difference(std::span<const double> exact, std::span<const float> rounded) {
    double largest = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      largest = std::max(largest, std::fabs(exact[i] - static_cast<double>(rounded[i])));
    }
    return largest;
  }
};

std::vector<FormSpan> FormsOf(Mode mode, std::int64_t prompt, std::int64_t all) {
  if (mode == Mode::kMha) return {{all, Form::kMha}};
  if (mode == Mode::kAbsorb) return {{all, Form::kAbsorbed}};
  return {{prompt, Form::kMha}, {all, Form::kAbsorbed}};
}

// The first 16 greedy tokens of the engine, running free, against the golden ones. A position may differ only where the
// golden margin is at most twice the largest difference that any logit shows there (the leader falls by it, the
// runner-up rises by it): measured with the golden tokens before it. What follows a token that differs is another text.
void CompareGreedy(const Expected& expected, std::span<const double> errors, Engine* engine, Loss* loss) {
  Request request;
  request.prompt = expected.ids;
  request.max_tokens = 16;
  request.eos_ids = {kEndOfSentence};
  const auto done = engine->Generate(request);
  ASSERT_TRUE(done.ok()) << done.error().message;
  for (std::size_t i = 0; i < std::min<std::size_t>(16, expected.greedy.size()); ++i) {
    ASSERT_LT(i, done->ids.size());
    const bool sure = expected.gaps[i] > 2 * errors[i];
    if (sure) {
      ASSERT_EQ(done->ids[i], expected.greedy[i])
          << "output token " << i << ": margin " << expected.gaps[i] << ", bf16 error " << errors[i];
    }
    ++(sure ? loss->compared : loss->too_near);
    if (done->ids[i] != expected.greedy[i]) return;
  }
}

TEST(Golden, InBf16) {
  const Model model = LoadModel(DemoDir(), WeightDType::kBF16);
  const auto pool = MakeThreadPool(2);
  const std::vector<Mode> modes = {Mode::kAbsorb, Mode::kMha, Mode::kRole};
  std::vector<Loss> losses(modes.size());
  for (const std::string& name : kPrompts) {
    if (kUnderSanitizer && name == "jonah_long") continue;
    SCOPED_TRACE(name);
    const Expected expected(name);
    const std::vector<std::int32_t> run = expected.Run();
    const std::vector<double> exact = ReferenceLogits(run, run.size());
    for (std::size_t m = 0; m < modes.size(); ++m) {
      SCOPED_TRACE(ModeName(modes[m]));
      ForwardOptions forward;
      forward.kv_dtype = DType::kBF16;
      forward.forms =
          FormsOf(modes[m], static_cast<std::int64_t>(expected.ids.size()), static_cast<std::int64_t>(run.size()));
      const std::vector<float> rounded = ForwardLogits(model, run, forward, *pool);
      std::vector<double> errors;
      for (std::size_t i = 0; i < run.size(); ++i) {
        ASSERT_NO_FATAL_FAILURE(losses[m].Add(Row(exact, i), Row(rounded, i)));
        if (i + 1 >= expected.ids.size()) errors.push_back(Loss::Difference(Row(exact, i), Row(rounded, i)));
      }
      EngineOptions options;
      options.mode = modes[m];
      Engine engine = Need(Engine::Create(model, options, *pool));
      ASSERT_NO_FATAL_FAILURE(CompareGreedy(expected, errors, &engine, &losses[m]));
    }
  }
  for (std::size_t m = 0; m < modes.size(); ++m) {
    const Loss& l = losses[m];
    std::printf(
        "bf16, %s: KL against float64 over %lld positions: mean %.3g, largest %.3g nats; largest logit difference "
        "%.3g; "
        "greedy tokens: %lld equal, %lld too near to tell\n",
        ModeName(modes[m]), static_cast<long long>(l.positions), l.kl_sum / static_cast<double>(l.positions),
        l.kl_largest, l.error, static_cast<long long>(l.compared), static_cast<long long>(l.too_near));
    EXPECT_GT(l.kl_largest, 0) << "a bf16 cache that costs nothing is no bf16 cache";
    EXPECT_GT(l.compared, 4 * l.too_near) << "most margins must be wide enough to tell";
  }
}

}  // namespace
}  // namespace mla::testing
