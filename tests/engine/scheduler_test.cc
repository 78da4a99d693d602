// Random traffic through a loaded engine: every output is that of its request alone, bit for bit, every page comes
// back, and nobody waits for ever.
#include "mla/scheduler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/draft.h"
#include "engine/harness.h"
#include "testing/models.h"

namespace mla::testing {
namespace {

const Model& TheModel() {
  static const Model model = [] {
    TinyOptions tiny;
    tiny.num_nextn_predict_layers = 1;
    return TinyModel(tiny, 3);
  }();
  return model;
}

struct Told {
  std::vector<std::int32_t> ids;
  std::vector<float> logprobs;
  std::vector<TokenLogprob> top;
  std::vector<float> prompt_logprobs;
  FinishReason finish = FinishReason::kNone;
};

class Traffic {
 public:
  // With `kept` segments to keep expanded keys and values in, all lengths are three times as long: prompts are of
  // several chunks and of several tiles.
  Traffic(std::uint64_t seed, Mode mode, Drafter drafter, std::int64_t kept = 0) : rng_(seed), unit_(kept > 0 ? 3 : 1) {
    options_.mode = mode;
    options_.context = 100 * unit_;
    options_.page_tokens = 16 * unit_;
    options_.prefill_chunk = 32 * unit_;
    options_.max_sequences = 4;
    options_.cache_pages = 7 + Int(4);  // one sequence of 7 pages fits; four rarely do
    options_.keep_bytes = kept * MlaAttention::KeptSegmentBytes(TheModel().info().dims);
    options_.drafter = drafter;
    options_.prefix_reuse = mode == Mode::kRole ? PrefixReuse::kPrompt : PrefixReuse::kAll;
    base_ = RandomIds(80 * unit_, TheModel().info().vocab_size, seed);
  }

  void Run(int requests) {
    const auto pool = MakeThreadPool(1);
    Engine engine = Need(Engine::Create(TheModel(), options_, *pool));
    Scheduler::Options scheduling;
    scheduling.max_waiting = 6;
    scheduling.now = [this] { return now_; };
    Scheduler scheduler(engine, scheduling);
    int left = requests;
    for (int step = 0; left > 0 || scheduler.busy(); ++step) {
      ASSERT_LT(step, 400 * requests) << "somebody waits for ever";
      while (left > 0 && Below(3) != 0 && Submit(&scheduler)) --left;
      if (!asked_.empty() && Below(40) == 0) scheduler.Cancel(1 + Int(static_cast<std::int64_t>(asked_.size())));
      now_ += 1;
      scheduler.Step();
      Listen(scheduler);
      engine.CheckPages();
    }
    EXPECT_EQ(engine.free_pages(), engine.pages().total) << "pages are lost";
    EXPECT_EQ(scheduler.stats().finished, requests);
    preemptions_ += scheduler.stats().preemptions;
    stats_ = engine.stats();
  }

  // Against engines of their own, without reuse and guesses.
  void Compare() {
    EngineOptions alone = options_;
    alone.cache_pages = 0;
    alone.max_sequences = 1;
    alone.drafter = Drafter::kNone;
    alone.prefix_reuse = PrefixReuse::kOff;
    alone.keep_bytes = 0;
    for (const auto& [id, asked] : asked_) {
      for (std::int64_t i = 0; i < asked.samples; ++i) {
        SCOPED_TRACE("request " + std::to_string(id) + ", sample " + std::to_string(i));
        Request request = asked.request;
        request.sampling.sample += static_cast<std::uint64_t>(i);
        if (i > 0) request.prompt_logprobs = false;
        const Outcome expected = Alone(TheModel(), alone, request);
        const Told& told = told_[{id, i}];
        ASSERT_NE(told.finish, FinishReason::kNone) << "it never ended";
        ASSERT_EQ(told.top.size(), told.ids.size() * static_cast<std::size_t>(request.top_logprobs));
        Outcome found;
        found.ids = told.ids;
        found.logprobs = told.logprobs;
        found.prompt_logprobs = told.prompt_logprobs;
        found.finish = told.finish;
        found.prompt_form = expected.prompt_form;
        if (told.finish == FinishReason::kCancelled || told.finish == FinishReason::kDeadline) {
          ++cut_;
          ASSERT_LE(told.ids.size(), expected.ids.size());
          EXPECT_TRUE(std::equal(told.ids.begin(), told.ids.end(), expected.ids.begin()));
        } else {
          ExpectSameBits(found, expected, "in company");
        }
      }
    }
  }

  std::int64_t preemptions() const { return preemptions_; }
  std::int64_t cut() const { return cut_; }
  const EngineStats& stats() const { return stats_; }

 private:
  std::uint64_t Below(std::uint64_t n) { return rng_() % n; }
  std::int64_t Int(std::int64_t n) { return static_cast<std::int64_t>(Below(static_cast<std::uint64_t>(n))); }

  bool Submit(Scheduler* scheduler) {
    ScheduledRequest asked;
    Request& r = asked.request;
    const std::int64_t vocab = TheModel().info().vocab_size;
    const std::int64_t longest = 75 * unit_;
    r.prompt = RandomIds(1 + Int(longest), vocab, rng_());
    const std::size_t shared = Below(4) != 0 ? static_cast<std::size_t>(Int(longest + 1)) : 0;
    const std::size_t common = std::min(r.prompt.size(), shared);
    std::copy_n(base_.begin(), common, r.prompt.begin());
    r.max_tokens = 1 + Int(24);
    r.sampling.temperature = static_cast<double>(Below(2));
    r.sampling.seed = Below(5);
    r.sampling.frequency_penalty = Below(3) == 0 ? 1.5 : 0;
    r.top_logprobs = Below(3) == 0 ? 2 : 0;
    r.prompt_logprobs = Below(8) == 0;
    if (Below(4) == 0) r.logit_bias = {{static_cast<std::int32_t>(Int(vocab)), 5}};
    if (Below(2) == 0) r.eos_ids = {static_cast<std::int32_t>(Int(vocab))};
    asked.samples = Below(4) == 0 ? 1 + Int(3) : 1;
    if (Below(10) == 0) asked.deadline = now_ + static_cast<double>(Int(30));
    const std::optional<RequestId> id = Need(scheduler->Submit(asked));
    if (id) asked_[*id] = asked;
    return id.has_value();
  }

  void Listen(const Scheduler& scheduler) {
    for (const SchedulerEvent& e : scheduler.events()) {
      if (e.kind == SchedulerEvent::Kind::kAdmitted) continue;
      Told& told = told_[{e.request, e.sample}];
      ASSERT_EQ(told.finish, FinishReason::kNone) << "an event after the last";
      if (e.kind == SchedulerEvent::Kind::kToken) {
        told.ids.push_back(e.id);
        told.logprobs.push_back(e.logprob);
        told.top.insert(told.top.end(), e.top.begin(), e.top.end());
      } else {
        told.finish = e.finish;
        told.prompt_logprobs.assign(e.prompt_logprobs.begin(), e.prompt_logprobs.end());
      }
    }
  }

  std::mt19937_64 rng_;
  std::int64_t unit_;
  EngineOptions options_;
  std::vector<std::int32_t> base_;
  double now_ = 0;
  std::map<RequestId, ScheduledRequest> asked_;
  std::map<std::pair<RequestId, std::int64_t>, Told> told_;
  std::int64_t preemptions_ = 0;
  std::int64_t cut_ = 0;
  EngineStats stats_;
};

TEST(Scheduler, RandomTrafficHasTheBitsOfEachRequestAlone) {
  std::int64_t preemptions = 0;
  std::int64_t cut = 0;
  EngineStats all;
  for (const Mode mode : {Mode::kAbsorb, Mode::kMha, Mode::kRole}) {
    for (const Drafter drafter : {Drafter::kNone, Drafter::kNgram, Drafter::kMtp}) {
      for (std::uint64_t seed = 0; seed < (kUnderSanitizer ? 1U : 5U); ++seed) {
        SCOPED_TRACE(std::string(ModeName(mode)) + ", " + DrafterName(drafter) + ", seed " + std::to_string(seed));
        Traffic traffic(seed, mode, drafter);
        traffic.Run(25);
        if (HasFatalFailure()) return;
        traffic.Compare();
        preemptions += traffic.preemptions();
        cut += traffic.cut();
        all.hits += traffic.stats().hits;
        all.copied_pages += traffic.stats().copied_pages;
        all.evicted_pages += traffic.stats().evicted_pages;
        all.accepted += traffic.stats().accepted;
        all.draft_rows += traffic.stats().draft_rows;
      }
    }
  }
  // The traffic comes to what it is for.
  EXPECT_GT(preemptions, 5);
  EXPECT_GT(cut, 5);
  EXPECT_GT(all.hits, 20);
  EXPECT_GT(all.copied_pages, 10);
  EXPECT_GT(all.evicted_pages, 10);
  EXPECT_GT(all.accepted, 0);
  EXPECT_GT(all.draft_rows, all.accepted);
}

// With expanded keys and values kept, for none, some and all of the sequences at a time.
TEST(Scheduler, RandomTrafficHasTheBitsOfEachRequestWithNothingKept) {
  std::int64_t preemptions = 0;
  EngineStats all;
  for (const Mode mode : {Mode::kMha, Mode::kRole}) {
    for (const Drafter drafter : {Drafter::kNone, Drafter::kNgram, Drafter::kMtp}) {
      for (const std::int64_t kept :
           kUnderSanitizer ? std::vector<std::int64_t>{5} : std::vector<std::int64_t>{1, 5, 12}) {
        SCOPED_TRACE(std::string(ModeName(mode)) + ", " + DrafterName(drafter) + ", kept " + std::to_string(kept));
        Traffic traffic(static_cast<std::uint64_t>(kept), mode, drafter, kept);
        traffic.Run(20);
        if (HasFatalFailure()) return;
        traffic.Compare();
        preemptions += traffic.preemptions();
        all.hits += traffic.stats().hits;
        all.copied_pages += traffic.stats().copied_pages;
        all.draft_rows += traffic.stats().draft_rows;
        all.accepted += traffic.stats().accepted;
        EXPECT_GT(traffic.stats().attention.keys_kept, 0);
      }
    }
  }
  EXPECT_GT(preemptions, 3);
  EXPECT_GT(all.hits, 5);
  EXPECT_GT(all.copied_pages, 3);
  EXPECT_GT(all.draft_rows, all.accepted) << "no guess missed: no row was written again";
}

TEST(Scheduler, AFullQueueIsAnAnswerAndABadRequestAnError) {
  const auto pool = MakeThreadPool(1);
  EngineOptions options;
  options.context = 100;
  options.max_sequences = 2;
  Engine engine = Need(Engine::Create(TheModel(), options, *pool));
  Scheduler scheduler(engine, {1, {}});
  ScheduledRequest asked;
  asked.request.prompt = RandomIds(10, TheModel().info().vocab_size, 1);
  asked.request.max_tokens = 3;
  EXPECT_TRUE(Need(scheduler.Submit(asked)).has_value());
  EXPECT_FALSE(Need(scheduler.Submit(asked)).has_value()) << "the queue holds one";
  ASSERT_TRUE(scheduler.Step());
  EXPECT_TRUE(Need(scheduler.Submit(asked)).has_value()) << "the first has left it";
  asked.samples = 3;
  EXPECT_EQ(scheduler.Submit(asked).error().message, "samples: expected a number from 1 to 2, found 3");
  asked.samples = 2;
  asked.request.max_tokens = 0;
  EXPECT_FALSE(scheduler.Submit(asked).ok());
  asked.request.prompt.clear();
  EXPECT_FALSE(scheduler.Submit(asked).ok());
  while (scheduler.Step()) {
  }
  EXPECT_FALSE(scheduler.busy());
}

// A prompt of many chunks beside one that decodes: each step gives that one a token.
TEST(Scheduler, ALongPromptNeverHoldsUpDecoding) {
  const auto pool = MakeThreadPool(1);
  EngineOptions options;
  options.context = 1000;
  options.max_sequences = 2;
  options.prefill_chunk = 16;
  Engine engine = Need(Engine::Create(TheModel(), options, *pool));
  Scheduler scheduler(engine, {});
  ScheduledRequest decoding;
  decoding.request.prompt = RandomIds(5, TheModel().info().vocab_size, 1);
  decoding.request.max_tokens = 60;
  const RequestId id = *Need(scheduler.Submit(decoding));
  ASSERT_TRUE(scheduler.Step());
  ScheduledRequest reading = decoding;
  reading.request.prompt = RandomIds(800, TheModel().info().vocab_size, 2);
  Need(scheduler.Submit(reading));
  for (int step = 0; step < 50; ++step) {
    ASSERT_TRUE(scheduler.Step());
    const auto events = scheduler.events();
    ASSERT_TRUE(std::any_of(events.begin(), events.end(), [&](const SchedulerEvent& e) {
      return e.request == id && e.kind == SchedulerEvent::Kind::kToken;
    })) << step;
  }
  EXPECT_EQ(engine.stats().prompt_rows, 5 + 50 * 16);
}

TEST(Draft, ByNgramGivesWhatFollowedTheLongestLatestMatch) {
  const auto draft = [](std::vector<std::int32_t> ids, std::int64_t most) {
    std::vector<std::int32_t> drafts;
    engine::DraftByNgram(ids, most, &drafts);
    return drafts;
  };
  using Ids = std::vector<std::int32_t>;
  EXPECT_EQ(draft({1, 2, 3, 4, 1, 2}, 8), (Ids{3, 4, 1, 2}));
  EXPECT_EQ(draft({1, 2, 3, 4, 1, 2}, 2), (Ids{3, 4}));
  EXPECT_EQ(draft({1, 2, 3, 9, 1, 2, 4, 8, 1, 2}, 1), (Ids{4})) << "the latest of equals";
  EXPECT_EQ(draft({7, 1, 2, 3, 9, 1, 2, 4, 7, 1, 2}, 1), (Ids{3})) << "the longest";
  EXPECT_EQ(draft({5, 5, 5}, 4), (Ids{5}));
  EXPECT_EQ(draft({1, 2, 3, 4, 5, 2}, 4), Ids{}) << "one token alone says nothing";
  EXPECT_EQ(draft({1, 2}, 4), Ids{});
  EXPECT_EQ(draft({1, 2, 3, 1, 2}, 0), Ids{});
}

TEST(Draft, TheThrottleRestsWhereNothingHolds) {
  engine::DraftThrottle throttle;
  std::int64_t drafted = 0;
  for (int step = 0; step < 1000; ++step) {
    const std::int64_t n = throttle.Next(4);
    drafted += n;
    throttle.Tell(n, 0);
  }
  EXPECT_GT(drafted, 0);
  EXPECT_LT(drafted, 120) << "an eighth of what never pays is the most";
  for (int step = 0; step < 200; ++step) {
    const std::int64_t n = throttle.Next(4);
    ASSERT_LE(n, 4);
    throttle.Tell(n, n);
  }
  EXPECT_EQ(throttle.Next(4), 4) << "all that is allowed, where all holds";
}

}  // namespace
}  // namespace mla::testing
