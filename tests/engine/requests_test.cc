// Requests at their limits: what is refused and how, where generation ends, and that every page comes back.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mla/engine.h"
#include "testing/models.h"

namespace mla::testing {
namespace {

const Model& TheModel() {
  static const Model model = TinyModel(TinyOptions{}, 3);
  return model;
}

class Requests : public ::testing::Test {
 protected:
  EngineOptions Options() const {
    EngineOptions options;
    options.context = 100;
    options.page_tokens = 16;
    options.prefill_chunk = 32;
    return options;
  }
  Engine Make(const EngineOptions& options) { return Need(Engine::Create(TheModel(), options, *pool_)); }
  Request Prompt(std::int64_t size, std::int64_t output) const {
    Request request;
    request.prompt = RandomIds(size, 96, 5);
    request.max_tokens = output;
    return request;
  }

  std::unique_ptr<Executor> pool_ = MakeThreadPool(1);
};

TEST_F(Requests, AreRefusedWithOneLine) {
  Engine engine = Make(Options());
  struct Bad {
    std::function<void(Request*)> change;
    const char* message;
  };
  const std::vector<Bad> bad = {
      {[](Request* r) { r->prompt.clear(); }, "prompt: expected at least one token, found none"},
      {[](Request* r) { r->prompt[3] = -1; }, "prompt: expected ids from 0 to 95, found -1"},
      {[](Request* r) { r->prompt[3] = 96; }, "prompt: expected ids from 0 to 95, found 96"},
      {[](Request* r) { r->max_tokens = -1; }, "max tokens: expected 0 or more, found -1"},
      {[](Request* r) { r->prompt.assign(100, 1); },
       "prompt: 100 tokens and room for 1 more don't fit the context of 100 tokens"},
      {[](Request* r) {
         r->prompt.assign(101, 1);
         r->max_tokens = 0;
       },
       "prompt: 101 tokens and room for 0 more don't fit the context of 100 tokens"},
      {[](Request* r) { r->sampling.top_p = 0; }, "top-p: expected a number above 0 and up to 1, found 0"}};
  for (const Bad& b : bad) {
    Request request = Prompt(10, 5);
    b.change(&request);
    const auto submitted = engine.Submit(request);
    ASSERT_FALSE(submitted.ok()) << b.message;
    EXPECT_EQ(submitted.error().message, b.message);
    EXPECT_FALSE(engine.Generate(request).ok());
  }
  EXPECT_EQ(engine.free_pages(), engine.options().cache_pages);
  EXPECT_FALSE(engine.Step()) << "nothing was admitted";
  EXPECT_TRUE(engine.Generate(Prompt(10, 5)).ok()) << "and it still works";
}

TEST_F(Requests, MoreThanItHoldsAreRefused) {
  EngineOptions options = Options();
  options.max_sequences = 2;
  Engine engine = Make(options);
  const SequenceId a = Need(engine.Submit(Prompt(10, 2)));
  Need(engine.Submit(Prompt(10, 2)));
  const auto third = engine.Submit(Prompt(10, 2));
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().message, "engine: holds 2 sequences already, as many as it was made for");
  engine.Release(a);
  EXPECT_TRUE(engine.Submit(Prompt(10, 2)).ok());
}

TEST_F(Requests, APromptLargerThanTheCacheIsRefused) {
  EngineOptions options = Options();
  options.cache_pages = 2;
  Engine engine = Make(options);
  const auto submitted = engine.Submit(Prompt(33, 1));
  ASSERT_FALSE(submitted.ok());
  EXPECT_EQ(submitted.error().message, "prompt: 33 tokens need 3 cache pages, and the cache has 2");
  // 32 rows fit, and one more token is chosen from the last; its own row does not.
  const auto done = Need(engine.Generate(Prompt(32, 5)));
  EXPECT_EQ(done.ids.size(), 1U);
  EXPECT_EQ(done.finish, FinishReason::kContext);
  EXPECT_EQ(engine.free_pages(), 2);
  EXPECT_EQ(Need(engine.Generate(Prompt(32, 1))).ids.size(), 1U);
}

TEST_F(Requests, PromptLogprobsRunEveryRow) {
  Engine engine = Make(Options());
  Request request = Prompt(40, 2);
  Need(engine.Generate(request));
  const std::int64_t rows = engine.stats().prompt_rows;
  request.prompt_logprobs = true;
  EXPECT_EQ(Need(engine.Generate(request)).prompt_logprobs.size(), 39U);
  EXPECT_EQ(engine.stats().prompt_rows - rows, 40);
}

TEST_F(Requests, NoTokensWanted) {
  Engine engine = Make(Options());
  Request request = Prompt(100, 0);  // as long as the context
  request.prompt_logprobs = true;
  const auto done = Need(engine.Generate(request));
  EXPECT_TRUE(done.ids.empty());
  EXPECT_TRUE(done.logprobs.empty());
  EXPECT_EQ(done.prompt_logprobs.size(), 99U);
  EXPECT_EQ(done.finish, FinishReason::kMaxTokens);
  EXPECT_EQ(engine.stats().prompt_rows, 100);
  EXPECT_EQ(engine.free_pages(), engine.options().cache_pages);
}

TEST_F(Requests, TheContextFillsUp) {
  Engine engine = Make(Options());
  const auto done = Need(engine.Generate(Prompt(90, 1000)));
  EXPECT_EQ(done.ids.size(), 10U);
  EXPECT_EQ(done.finish, FinishReason::kContext);
  const auto one = Need(engine.Generate(Prompt(99, 1000)));
  EXPECT_EQ(one.ids.size(), 1U);
  EXPECT_EQ(one.finish, FinishReason::kContext);
  // Both at once: the caller's own bound is named.
  EXPECT_EQ(Need(engine.Generate(Prompt(90, 10))).finish, FinishReason::kMaxTokens);
  EXPECT_EQ(engine.free_pages(), engine.options().cache_pages);
}

TEST_F(Requests, AnEosEndsAndIsTheLastToken) {
  Engine engine = Make(Options());
  const auto free = Need(engine.Generate(Prompt(20, 30)));
  ASSERT_EQ(free.ids.size(), 30U);
  EXPECT_EQ(free.finish, FinishReason::kMaxTokens);
  Request request = Prompt(20, 30);
  request.eos_ids = {95, free.ids[7]};
  const auto first =
      std::find_if(free.ids.begin(), free.ids.end(), [&](std::int32_t id) { return id == 95 || id == free.ids[7]; });
  const auto done = Need(engine.Generate(request));
  EXPECT_EQ(done.ids, std::vector<std::int32_t>(free.ids.begin(), first + 1));
  EXPECT_EQ(done.finish, FinishReason::kEos);
  // In the prompt it means nothing.
  request.prompt[4] = free.ids[7];
  EXPECT_FALSE(Need(engine.Generate(request)).ids.empty());
}

TEST_F(Requests, TheSinkSeesEachTokenOnceAndCanEnd) {
  EngineOptions options = Options();
  options.prefix_reuse = PrefixReuse::kOff;  // in auto a hit may change the form
  Engine engine = Make(options);
  const auto free = Need(engine.Generate(Prompt(20, 30)));
  std::vector<std::int32_t> seen;
  std::vector<float> logprobs;
  const auto done = Need(engine.Generate(Prompt(20, 30), [&](std::int32_t id, float logprob) {
    seen.push_back(id);
    logprobs.push_back(logprob);
    return seen.size() < 5;
  }));
  EXPECT_EQ(seen, std::vector<std::int32_t>(free.ids.begin(), free.ids.begin() + 5));
  EXPECT_EQ(logprobs, std::vector<float>(free.logprobs.begin(), free.logprobs.begin() + 5));
  EXPECT_EQ(done.ids, seen);
  EXPECT_EQ(done.finish, FinishReason::kNone);
  EXPECT_EQ(engine.free_pages(), engine.options().cache_pages);
}

TEST_F(Requests, ReleaseReturnsEveryPage) {
  EngineOptions options = Options();
  options.max_sequences = 3;
  Engine engine = Make(options);
  const std::int64_t all = engine.free_pages();
  EXPECT_EQ(all, 3 * 7);
  const SequenceId donor = Need(engine.Submit(Prompt(50, 20)));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(engine.Step());
  const SequenceId heir = Need(engine.Submit(Prompt(50, 20)));
  const SequenceId idle = Need(engine.Submit(Prompt(50, 20)));
  EXPECT_EQ(engine.Get(heir).cached_tokens, 48) << "three pages whole";
  EXPECT_EQ(engine.free_pages(), all - 4) << "50 rows and 2 more take 4 pages; 3 of them are shared, not taken";
  engine.Release(donor);
  EXPECT_EQ(engine.free_pages(), all - 3) << "the shared ones stay";
  engine.Release(idle);
  engine.Park(heir);
  EXPECT_EQ(engine.free_pages(), all);
  EXPECT_GT(engine.pages().idle, 0) << "kept for their prefix";
  engine.Resume(heir);
  EXPECT_LT(engine.free_pages(), all) << "found again";
  ASSERT_TRUE(engine.Step());
  engine.Release(heir);
  EXPECT_EQ(engine.free_pages(), all);
}

TEST_F(Requests, AFinishedSequenceStaysReadableAndRunsNoMore) {
  Engine engine = Make(Options());
  const SequenceId id = Need(engine.Submit(Prompt(10, 3)));
  while (engine.Step()) {
  }
  const SequenceView view = engine.Get(id);
  EXPECT_EQ(view.output().size(), 3U);
  EXPECT_EQ(view.finish, FinishReason::kMaxTokens);
  engine.Preempt(id);
  EXPECT_FALSE(engine.Step());
  EXPECT_EQ(engine.Get(id).output().size(), 3U);
}

TEST_F(Requests, OptionsOutOfRangeAreNamed) {
  struct Bad {
    std::function<void(EngineOptions*)> change;
    const char* message;
  };
  const std::vector<Bad> bad = {
      {[](EngineOptions* o) { o->context = 4097; }, "context: expected a number from 1 to 4096, found 4097"},
      {[](EngineOptions* o) { o->context = -1; }, "context: expected a number from 1 to 4096, found -1"},
      {[](EngineOptions* o) { o->max_sequences = 0; }, "max sequences: expected a number from 1"},
      {[](EngineOptions* o) { o->prefill_chunk = 0; }, "prefill chunk: expected a number from 1"},
      {[](EngineOptions* o) { o->page_tokens = 0; }, "page tokens: expected a number from 1"},
      {[](EngineOptions* o) { o->cache_pages = -1; }, "cache pages: expected a number from 1"},
      {[](EngineOptions* o) { o->expand_bytes = -1; }, "expand bytes: expected a number from 0"},
      {[](EngineOptions* o) { o->keep_bytes = -1; }, "keep expanded: expected a number from 0"},
      {[](EngineOptions* o) { o->keep_bytes = (std::int64_t{1} << 50) + 1; },
       "keep expanded: expected a number from 0"},
      // 1,024 positions of 4 heads in fp32: N and V of 16, and P of 8, rounded up to 16.
      {[](EngineOptions* o) { o->keep_bytes = 1024 * 4 * (4 * 32 + 16) - 1; },
       "keep expanded: expected 0 or at least 589824 bytes, which 1,024 positions of a layer take, found 589823"},
      {[](EngineOptions* o) { o->kv_dtype = DType::kF16; }, "kv dtype: expected BF16 or F32, found F16"},
      {[](EngineOptions* o) { o->kernels = "none"; }, "none"}};
  for (const Bad& b : bad) {
    EngineOptions options = Options();
    b.change(&options);
    const auto engine = Engine::Create(TheModel(), options, *pool_);
    ASSERT_FALSE(engine.ok()) << b.message;
    EXPECT_THAT(engine.error().message, ::testing::HasSubstr(b.message));
    EXPECT_THAT(engine.error().message, ::testing::Not(::testing::HasSubstr("\n")));
  }
}

}  // namespace
}  // namespace mla::testing
