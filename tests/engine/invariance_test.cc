// The promises of docs/design.md (Invariance), over bits: (a) batch, threads and chunks, in every mode; (b) prefix hits
// and preemption with one form for all rows; (c) the same by role, a reply's pages included; (d) auto, which says its
// form.
#include <algorithm>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/harness.h"
#include "mla/engine.h"
#include "mla/prefix_index.h"
#include "testing/models.h"

namespace mla::testing {
namespace {

struct Case {
  std::string name;
  DType kv_dtype;
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

const std::vector<Case> kCases = {{"demo", DType::kBF16},
                                  {"experts", DType::kF32},
                                  {"odd", DType::kBF16},
                                  {"half_split", DType::kF32},
                                  // Scaled residuals and longrope; softmax within groups.
                                  {"minicpm3_stretched", DType::kBF16},
                                  {"deepseek_v2", DType::kF32}};

// Sanitizers, for which each of these runs takes seconds, get the two modes that run all code of both forms.
const std::vector<Mode> kModes = kUnderSanitizer
                                     ? std::vector<Mode>{Mode::kMha, Mode::kRole}
                                     : std::vector<Mode>{Mode::kAbsorb, Mode::kMha, Mode::kRole, Mode::kAuto};
const std::vector<Mode> kModesOfHits(kModes.begin(), kModes.end() - (kUnderSanitizer ? 0 : 1));

// Prompt and output of odd lengths across several tiles; every prompt row counts, as its log-probabilities are asked
// for.
Request RequestOf(const Model& model, std::int64_t prompt, std::int64_t output, std::uint64_t seed) {
  Request request;
  request.prompt = RandomIds(prompt, model.info().vocab_size, seed);
  request.max_tokens = output;
  request.prompt_logprobs = true;
  return request;
}

Request Sampled(Request request, std::uint64_t seed) {
  request.sampling.temperature = 1.3;
  request.sampling.top_p = 0.95;
  request.sampling.repetition_penalty = 1.2;
  request.sampling.seed = seed;
  return request;
}

EngineOptions OptionsOf(const Case& c, Mode mode) {
  EngineOptions options;
  options.mode = mode;
  options.kv_dtype = c.kv_dtype;
  options.context = 400;
  return options;
}

class Invariance : public ::testing::TestWithParam<std::tuple<Case, Mode>> {
 protected:
  const Model& model() const { return ModelOf(std::get<0>(GetParam()).name); }
  Mode mode() const { return std::get<1>(GetParam()); }
  EngineOptions Options() const { return OptionsOf(std::get<0>(GetParam()), mode()); }

  // The bits that a request must have. Auto chooses one form for the whole prompt: it then has the bits of the mode
  // that always takes it.
  Outcome Expected(const Request& request, Form prompt_form) const {
    EngineOptions options = Options();
    if (mode() == Mode::kAuto) options.mode = prompt_form == Form::kMha ? Mode::kRole : Mode::kAbsorb;
    return Alone(model(), options, request);
  }

  void Expect(const Engine& engine, SequenceId id, const Request& request, const std::string& what) const {
    const Outcome found = OutcomeOf(engine, id);
    ExpectSameBits(found, Expected(request, found.prompt_form), what);
  }
};

TEST_P(Invariance, OfThreadsChunksAndPages) {
  const Request request = RequestOf(model(), 150, 20, 11);
  std::map<Form, Outcome> expected;
  struct Variation {
    int threads;
    std::int64_t chunk;
    std::int64_t page_tokens;
    std::int64_t max_sequences;
  };
  const std::vector<Variation> variations = {
      {1, 512, 1, 1}, {1, 1, 64, 1}, {1, 7, 16, 4},   {1, 64, 64, 1}, {2, 512, 16, 1}, {2, 7, 64, 2},   {3, 1, 16, 1},
      {3, 64, 1, 9},  {8, 7, 16, 1}, {8, 512, 64, 1}, {8, 64, 64, 3}, {2, 149, 5, 1},  {3, 150, 100, 1}};
  for (const Variation& v : variations) {
    if (kUnderSanitizer && v.threads == 8 && v.chunk == 7) continue;
    EngineOptions options = Options();
    options.prefill_chunk = v.chunk;
    options.page_tokens = v.page_tokens;
    options.max_sequences = v.max_sequences;
    const Outcome found = Alone(model(), options, request, v.threads);
    if (!expected.contains(found.prompt_form)) expected[found.prompt_form] = Expected(request, found.prompt_form);
    ExpectSameBits(found, expected[found.prompt_form],
                   "threads " + std::to_string(v.threads) + ", chunk " + std::to_string(v.chunk) + ", page tokens " +
                       std::to_string(v.page_tokens) + ", sequences " + std::to_string(v.max_sequences));
  }
  EXPECT_EQ(expected.size(), 1U) << "auto chose by the chunk at hand";
}

TEST_P(Invariance, OfBatchNeighbours) {
  const std::vector<Request> requests = {RequestOf(model(), 150, 20, 21), Sampled(RequestOf(model(), 3, 40, 22), 7),
                                         Sampled(RequestOf(model(), 70, 5, 23), 8), RequestOf(model(), 1, 33, 24),
                                         RequestOf(model(), 64, 0, 25)};
  for (const int threads : {1, 3}) {
    for (const std::int64_t chunk : {5, 48}) {
      const auto pool = MakeThreadPool(threads);
      EngineOptions options = Options();
      options.max_sequences = 5;
      options.prefill_chunk = chunk;
      Engine engine = Need(Engine::Create(model(), options, *pool));
      std::vector<SequenceId> ids;
      // Some come while others are at work.
      for (const Request& request : requests) {
        ids.push_back(Need(engine.Submit(request)));
        for (int step = 0; step < 2; ++step) engine.Step();
      }
      RunAll(&engine, ids);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        Expect(engine, ids[i], requests[i],
               "sequence " + std::to_string(i) + ", threads " + std::to_string(threads) + ", chunk " +
                   std::to_string(chunk));
      }
    }
  }
}

// Two sequences, pages for one and a half: one waits, goes on where it stood, or is sent back to its start.
TEST_P(Invariance, OfWaitingForPages) {
  const Request first = RequestOf(model(), 90, 60, 31);
  const Request second = Sampled(RequestOf(model(), 100, 40, 32), 5);
  const auto pool = MakeThreadPool(2);
  EngineOptions options = Options();
  options.max_sequences = 2;
  options.page_tokens = 16;
  options.prefill_chunk = 24;
  options.cache_pages = 14;  // 10 and 9 are needed
  Engine engine = Need(Engine::Create(model(), options, *pool));
  const SequenceId a = Need(engine.Submit(first));
  const SequenceId b = Need(engine.Submit(second));
  int stuck = 0;
  while (engine.Get(a).finish == FinishReason::kNone) {
    if (engine.Step()) continue;
    ++stuck;
    ASSERT_LE(stuck, 10);
    engine.Preempt(b);
  }
  EXPECT_GE(stuck, 1) << "the cache was large enough after all";
  const Outcome found = OutcomeOf(engine, a);
  ExpectSameBits(found, Expected(first, found.prompt_form), "the one that went on");
  engine.Release(a);
  RunAll(&engine, {b});
  Expect(engine, b, second, "the one that waited");
  engine.Release(b);
  EXPECT_EQ(engine.free_pages(), 14);
}

TEST_P(Invariance, OfPreemption) {
  const Request request = Sampled(RequestOf(model(), 100, 30, 41), 9);
  const Request other = RequestOf(model(), 60, 90, 42);
  const auto pool = MakeThreadPool(2);
  EngineOptions options = Options();
  options.max_sequences = 2;
  options.page_tokens = 16;
  options.prefill_chunk = 24;
  Engine engine = Need(Engine::Create(model(), options, *pool));
  const SequenceId neighbour = Need(engine.Submit(other));
  const SequenceId id = Need(engine.Submit(request));
  // In the prompt, at its end, in the output (twice running, and again during the replay), and right before the last
  // token.
  std::int64_t preempted = 0;
  for (int step = 1; engine.Get(id).finish == FinishReason::kNone; ++step) {
    const auto output = static_cast<std::int64_t>(engine.Get(id).logprobs.size());
    const bool now = step == 2 || step == 9 || (output == 1 && preempted < 3) || (output == 12 && preempted < 6) ||
                     (output == 29 && preempted < 7);
    if (now) {
      engine.Preempt(id);
      ++preempted;
    }
    ASSERT_TRUE(engine.Step());
    ASSERT_LT(step, 1000);
  }
  EXPECT_GE(preempted, 6);
  RunAll(&engine, {neighbour});
  Expect(engine, id, request, "preempted");
  Expect(engine, neighbour, other, "its neighbour");
}

INSTANTIATE_TEST_SUITE_P(All, Invariance, ::testing::Combine(::testing::ValuesIn(kCases), ::testing::ValuesIn(kModes)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_" + ModeName(std::get<1>(test.param));
                         });

// Prefix hits in the modes that promise bits: what was computed before, by whom, and in what state the donor is.
class Hits : public Invariance {
 protected:
  static constexpr std::int64_t kPageTokens = 16;

  EngineOptions HitOptions() const {
    EngineOptions options = Options();
    options.max_sequences = 4;
    options.page_tokens = kPageTokens;
    options.prefill_chunk = 20;
    return options;
  }

  // `base`, its first `common` ids, then others.
  Request Branch(const Request& base, std::int64_t common, std::int64_t size, std::int64_t output,
                 std::uint64_t seed) const {
    Request request = RequestOf(model(), size, output, seed);
    std::copy_n(base.prompt.begin(), common, request.prompt.begin());
    auto& next = request.prompt[static_cast<std::size_t>(common)];
    if (common < static_cast<std::int64_t>(base.prompt.size()) &&
        next == base.prompt[static_cast<std::size_t>(common)]) {
      next = (next + 1) % static_cast<std::int32_t>(model().info().vocab_size);
    }
    request.prompt_logprobs = false;
    return request;
  }
};

// The donor goes on meanwhile: a page that both wrote would show in either.
TEST_P(Hits, OfPromptPages) {
  const Request base = RequestOf(model(), 100, 30, 51);
  for (const std::int64_t common : {5, 16, 37, 44, 96, 99}) {
    SCOPED_TRACE("common " + std::to_string(common));
    const auto pool = MakeThreadPool(2);
    Engine engine = Need(Engine::Create(model(), HitOptions(), *pool));
    const SequenceId donor = Need(engine.Submit(base));
    while (engine.Get(donor).logprobs.size() < 3) ASSERT_TRUE(engine.Step());
    const std::int64_t free = engine.free_pages();
    const Request request = Sampled(Branch(base, common, 120, 20, 52), 3);
    const std::int64_t rows = engine.stats().prompt_rows;
    const SequenceId id = Need(engine.Submit(request));
    EXPECT_EQ(engine.free_pages(), free) << "sharing takes no page";
    RunAll(&engine, {id, donor});
    // Six pages are complete; of one that differs further on, rows are taken over by copy.
    const std::int64_t found = common < PrefixIndex::kLeastTokens ? 0 : std::min(common, 6 * kPageTokens);
    EXPECT_EQ(engine.stats().prompt_rows - rows, 120 - found);
    Expect(engine, id, request, "a hit");
    Expect(engine, donor, base, "its donor");
  }
}

TEST_P(Hits, OfADonorAtWorkThatGoesAway) {
  const Request base = RequestOf(model(), 100, 30, 61);
  const Request request = Branch(base, 80, 110, 20, 62);
  // After so many steps of 20 rows the donor has 20, 40, .. rows, the last page begun but not complete.
  for (const int run : {0, 1, 2, 3, 8, 101, 102, 103}) {
    const int steps = run % 100;
    const bool gone_at_once = run > 100;
    SCOPED_TRACE("donor's steps " + std::to_string(run));
    const auto pool = MakeThreadPool(1);
    Engine engine = Need(Engine::Create(model(), HitOptions(), *pool));
    const SequenceId donor = Need(engine.Submit(base));
    for (int i = 0; i < steps; ++i) ASSERT_TRUE(engine.Step());
    const SequenceId id = Need(engine.Submit(request));
    const SequenceId heir = Need(engine.Submit(request));
    if (gone_at_once) engine.Preempt(donor);  // before it makes the rows that it had not
    ASSERT_TRUE(engine.Step());
    engine.Preempt(donor);
    ASSERT_TRUE(engine.Step());
    engine.Preempt(id);  // it gives back pages that the donor made, and makes them again itself
    ASSERT_TRUE(engine.Step());
    engine.Release(donor);
    RunAll(&engine, {id, heir});
    Expect(engine, id, request, "a hit");
    Expect(engine, heir, request, "a hit on a hit");
    engine.Release(id);
    engine.Release(heir);
    EXPECT_EQ(engine.free_pages(), engine.options().cache_pages);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Hits, ::testing::Combine(::testing::ValuesIn(kCases), ::testing::ValuesIn(kModesOfHits)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_" + ModeName(std::get<1>(test.param));
                         });

// A second turn by role: the first turn's prompt was run in the MHA form, its reply absorbed, and so they stay,
// whatever the page size, also for the rows past the last whole page, and also when all is run again. The reply's last
// token had no row yet: it is run with what follows it.
TEST(Conversation, HitsOnReplyPagesEqualTheUninterruptedOne) {
  for (const Case& c : kCases) {
    const Model& model = ModelOf(c.name);
    Request turn1 = RequestOf(model, 50, 45, 71);
    turn1.prompt_logprobs = false;
    for (const std::int64_t page_tokens : {1, 16, 64}) {
      for (const int variant : {0, 1, 2}) {
        SCOPED_TRACE(c.name + ", page tokens " + std::to_string(page_tokens) + ", variant " + std::to_string(variant));
        EngineOptions options = OptionsOf(c, Mode::kRole);
        options.max_sequences = 2;
        options.page_tokens = page_tokens;
        options.prefill_chunk = 32;
        const auto pool = MakeThreadPool(2);
        Engine engine = Need(Engine::Create(model, options, *pool));
        const SequenceId first = Need(engine.Submit(turn1));
        RunAll(&engine, {first});
        Request turn2 = RequestOf(model, 30, 20, 72);
        turn2.prompt_logprobs = false;
        const auto before = engine.Get(first).ids;
        turn2.prompt.insert(turn2.prompt.begin(), before.begin(), before.end());
        if (variant == 1) engine.Preempt(first);
        const SequenceId second = Need(engine.Submit(turn2));
        ASSERT_TRUE(engine.Step());
        if (variant == 2) engine.Preempt(second);
        RunAll(&engine, {second});
        const Outcome found = OutcomeOf(engine, second);
        EXPECT_EQ(found.prompt_form, Form::kMha);
        ExpectBitsOfForward(model, turn2, found, c.kv_dtype,
                            {{50, Form::kMha}, {94, Form::kAbsorbed}, {125, Form::kMha}}, Form::kAbsorbed);
      }
    }
  }
}

// (d): alone, the whole prompt is cheaper in the MHA form; with most of it found, the rest is cheaper absorbed.
TEST(Auto, AHitMayChangeTheFormAndSaysSo) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Model& model = ModelOf(c.name);
    const auto pool = MakeThreadPool(2);
    EngineOptions options = OptionsOf(c, Mode::kAuto);
    options.max_sequences = 2;
    options.page_tokens = 16;
    // Rates that tip every model's choice, so that the test does not hang on its dims.
    options.form_table.id = "test";
    options.form_table.mha_rate = 4;
    Engine engine = Need(Engine::Create(model, options, *pool));
    Request base = RequestOf(model, 200, 4, 81);
    base.prompt_logprobs = false;
    const SequenceId donor = Need(engine.Submit(base));
    RunAll(&engine, {donor});
    const Outcome alone = OutcomeOf(engine, donor);
    EXPECT_EQ(alone.prompt_form, Form::kMha);
    ExpectBitsOfForward(model, base, alone, c.kv_dtype, {{200, Form::kMha}}, Form::kAbsorbed);

    Request request = base;
    request.prompt.resize(190);
    request.prompt.push_back(1);
    request.prompt.push_back(2);
    request.max_tokens = 20;
    const SequenceId id = Need(engine.Submit(request));
    RunAll(&engine, {id});
    const Outcome hit = OutcomeOf(engine, id);
    EXPECT_EQ(hit.prompt_form, Form::kAbsorbed);
    const std::int64_t common =
        std::mismatch(base.prompt.begin(), base.prompt.end(), request.prompt.begin(), request.prompt.end()).first -
        base.prompt.begin();
    ExpectBitsOfForward(model, request, hit, c.kv_dtype, {{common, Form::kMha}, {192, Form::kAbsorbed}},
                        Form::kAbsorbed);
    EXPECT_EQ(hit.ids.size(), 20U);
  }
}

// Past one and two segments of 1,024 keys, prefill and decode, with the MHA form in one piece and in several.
TEST(Segments, BordersLeaveNoTrace) {
  TinyOptions tiny;
  tiny.vocab_size = 64;
  tiny.hidden_size = 32;
  tiny.num_hidden_layers = 2;
  tiny.num_attention_heads = 2;
  tiny.q_lora_rank.reset();
  tiny.kv_lora_rank = 24;
  tiny.intermediate_size = 32;
  tiny.n_routed_experts.reset();
  const Model model = TinyModel(tiny, 6);
  for (const Mode mode : {Mode::kAbsorb, Mode::kMha, Mode::kRole}) {
    for (const std::int64_t prompt : {1020, 2043}) {
      const Request request = RequestOf(model, prompt, 12, 91);
      EngineOptions options;
      options.mode = mode;
      options.context = 2200;
      const Outcome expected = Alone(model, options, request);
      struct Variation {
        int threads;
        std::int64_t chunk;
        std::int64_t page_tokens;
        std::int64_t expand_bytes;
        std::int64_t kept;  // segments, of which six are all
      };
      const std::vector<Variation> variations = {
          {3, 61, 64, 0, 0},  {2, 1025, 16, 200000, 0}, {1, 200, 1, 0, 0},  {8, 700, 64, 1 << 26, 0},
          {2, 61, 16, 0, 12}, {1, 512, 64, 1 << 26, 6}, {3, 200, 64, 0, 3}, {1, 700, 64, 200000, 1}};
      for (const Variation& v : variations) {
        options.prefill_chunk = v.chunk;
        options.page_tokens = v.page_tokens;
        options.expand_bytes = v.expand_bytes;
        options.keep_bytes = v.kept * MlaAttention::KeptSegmentBytes(model.info().dims);
        ExpectSameBits(Alone(model, options, request, v.threads), expected,
                       std::string(ModeName(mode)) + ", prompt " + std::to_string(prompt) + ", chunk " +
                           std::to_string(v.chunk) + ", threads " + std::to_string(v.threads) + ", kept " +
                           std::to_string(v.kept));
      }
    }
  }
}

TEST(Sampling, DrawsAreKeyedBySeedSampleAndPosition) {
  const Model& model = ModelOf("experts");
  EngineOptions options;
  options.mode = Mode::kAbsorb;
  options.context = 200;
  const Request request = Sampled(RequestOf(model, 20, 40, 95), 1);
  const Outcome one = Alone(model, options, request);
  ExpectSameBits(Alone(model, options, request, 2), one, "again");
  Request other = request;
  other.sampling.seed = 2;
  EXPECT_NE(Alone(model, options, other).ids, one.ids);
  other = request;
  other.sampling.sample = 1;
  EXPECT_NE(Alone(model, options, other).ids, one.ids);
}

}  // namespace
}  // namespace mla::testing
