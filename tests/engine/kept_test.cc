// Expanded keys and values kept from chunk to chunk of a prompt: what it saves, and that the room comes back.
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/harness.h"
#include "mla/engine.h"
#include "testing/models.h"

namespace mla::testing {
namespace {

constexpr std::int64_t kKeptChunk = 64;
constexpr std::int64_t kKeptPrompt = 4 * kKeptChunk;

const Model& KeptModel() { return ModelOf("experts"); }

// Room for one segment in every layer: for one sequence of the test.
std::int64_t RoomForOne() {
  return KeptModel().info().layers * MlaAttention::KeptSegmentBytes(KeptModel().info().dims);
}

class KeptRoom : public ::testing::Test {
 protected:
  static EngineOptions Options(Mode mode) {
    EngineOptions options;
    options.mode = mode;
    options.kv_dtype = DType::kF32;  // a segment of any kernels then takes all that is counted for it
    options.context = 512;
    options.max_sequences = 4;
    options.prefill_chunk = kKeptChunk;
    options.page_tokens = 16;
    options.keep_bytes = RoomForOne();
    options.prefix_reuse = PrefixReuse::kOff;
    return options;
  }
  Engine Make(const EngineOptions& options) { return Need(Engine::Create(KeptModel(), options, *pool_)); }
  static Request Prompt(std::int64_t tokens, std::int64_t output) {
    static std::uint64_t seed = 0;
    Request request;
    request.prompt = RandomIds(tokens, KeptModel().info().vocab_size, ++seed);
    request.max_tokens = output;
    return request;
  }
  struct Keys {
    std::int64_t expanded;
    std::int64_t kept;
    bool operator==(const Keys&) const = default;
  };
  static Keys KeysIn(Engine* engine, const std::function<void()>& f) {
    const AttentionCounters before = engine->stats().attention;
    f();
    const AttentionCounters after = engine->stats().attention;
    return {after.keys_expanded - before.keys_expanded, after.keys_kept - before.keys_kept};
  }
  // A fresh prompt of kKeptPrompt tokens, alone.
  static Keys RunPrompt(Engine* engine) {
    return KeysIn(engine, [&] {
      const SequenceId id = Need(engine->Submit(Prompt(kKeptPrompt, 1)));
      RunAll(engine, {id});
      engine->Release(id);
    });
  }
  static constexpr Keys kAllKept = {kKeptPrompt, kKeptChunk*(1 + 2 + 3)};
  static constexpr Keys kNoneKept = {kKeptChunk * (1 + 2 + 3 + 4), 0};

  std::unique_ptr<Executor> pool_ = MakeThreadPool(1);
};

TEST_F(KeptRoom, APositionIsExpandedOnce) {
  EngineOptions options = Options(Mode::kRole);
  Engine keeps = Make(options);
  EXPECT_EQ(RunPrompt(&keeps), kAllKept);
  options.keep_bytes = 0;
  Engine plain = Make(options);
  EXPECT_EQ(RunPrompt(&plain), kNoneKept);
}

// In mode mha each token of output attends to expanded keys too: of 256 to 260 positions all but the last tile's are
// there.
TEST_F(KeptRoom, OutputInTheMhaFormKeepsIt) {
  Engine engine = Make(Options(Mode::kMha));
  const SequenceId id = Need(engine.Submit(Prompt(kKeptPrompt, 6)));
  const Keys keys = KeysIn(&engine, [&] { RunAll(&engine, {id}); });
  EXPECT_EQ(keys.expanded, kKeptPrompt + 1 + 2 + 3 + 4 + 5);
  EXPECT_EQ(keys.kept, kAllKept.kept + 5 * kKeptPrompt);
}

// However a sequence leaves, the next finds the room that it had; and while it is there, others find none.
TEST_F(KeptRoom, ComesBack) {
  struct Way {
    const char* name;
    std::function<void(Engine*, SequenceId)> leave;
  };
  const std::vector<Way> ways = {
      {"released", [](Engine* e, SequenceId id) { e->Release(id); }},
      {"parked", [](Engine* e, SequenceId id) { e->Park(id); }},
      {"finished, and not released", [](Engine* e, SequenceId id) { RunAll(e, {id}); }},
      {"its output absorbed",
       [](Engine* e, SequenceId id) {
         while (e->Get(id).output().size() < 3) ASSERT_TRUE(e->Step());
       }},
  };
  for (const Way& way : ways) {
    SCOPED_TRACE(way.name);
    Engine engine = Make(Options(Mode::kRole));
    const SequenceId first = Need(engine.Submit(Prompt(kKeptPrompt, 8)));
    ASSERT_TRUE(engine.Step());
    ASSERT_NO_FATAL_FAILURE(way.leave(&engine, first));
    EXPECT_EQ(RunPrompt(&engine), kAllKept);
  }
  Engine engine = Make(Options(Mode::kMha));
  const SequenceId first = Need(engine.Submit(Prompt(kKeptPrompt, 100)));
  while (engine.Get(first).output().empty()) ASSERT_TRUE(engine.Step());
  const Keys beside = RunPrompt(&engine);
  EXPECT_GE(beside.expanded, kNoneKept.expanded) << "the first keeps its room as long as it runs";
}

TEST_F(KeptRoom, PreemptionReplaysAndKeepsAgain) {
  Engine engine = Make(Options(Mode::kRole));
  const Request request = Prompt(kKeptPrompt, 20);
  const SequenceId id = Need(engine.Submit(request));
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(engine.Step());
  engine.Preempt(id);
  const Keys replayed = KeysIn(&engine, [&] {
    while (engine.Get(id).output().empty()) ASSERT_TRUE(engine.Step());
  });
  EXPECT_EQ(replayed, kAllKept);
  RunAll(&engine, {id});
  EngineOptions plain = Options(Mode::kRole);
  plain.keep_bytes = 0;
  ExpectSameBits(OutcomeOf(engine, id), Alone(KeptModel(), plain, request), "preempted");
}

// A prefix that is found is expanded with the first chunk behind it, and kept from there on.
TEST_F(KeptRoom, AFoundPrefixIsKeptFromItsFirstChunk) {
  EngineOptions options = Options(Mode::kRole);
  options.prefix_reuse = PrefixReuse::kAll;
  Engine engine = Make(options);
  Request request = Prompt(2 * kKeptChunk, 1);
  RunAll(&engine, {Need(engine.Submit(request))});
  const std::vector<std::int32_t> more = Prompt(2 * kKeptChunk, 1).prompt;
  request.prompt.insert(request.prompt.end(), more.begin(), more.end());
  const Keys keys = KeysIn(&engine, [&] { RunAll(&engine, {Need(engine.Submit(request))}); });
  EXPECT_EQ(engine.stats().cached_tokens, 2 * kKeptChunk);
  EXPECT_EQ(keys, (Keys{kKeptPrompt, 3 * kKeptChunk}));
}

// Samples part from their prompt's rows with ids of their own.
TEST_F(KeptRoom, ForksHaveTheBitsOfEachAlone) {
  for (const Mode mode : {Mode::kMha, Mode::kRole}) {
    EngineOptions options = Options(mode);
    options.keep_bytes = 3 * RoomForOne();
    Engine engine = Make(options);
    Request request = Prompt(kKeptPrompt + 7, 20);
    request.sampling.temperature = 1;
    std::vector<SequenceId> ids = {Need(engine.Submit(request))};
    for (const std::uint64_t sample : {1U, 2U}) ids.push_back(Need(engine.Fork(ids[0], sample)));
    RunAll(&engine, ids);
    options.keep_bytes = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      request.sampling.sample = i;
      ExpectSameBits(OutcomeOf(engine, ids[i]), Alone(KeptModel(), options, request),
                     std::string(ModeName(mode)) + ", sample " + std::to_string(i));
    }
  }
}

}  // namespace
}  // namespace mla::testing
