// Rows that went to a file and came back are the rows: what continues from them has the same bits as what never left.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "engine/harness.h"
#include "io/file.h"
#include "mla/engine.h"
#include "testing/models.h"
#include "testing/temp_dir.h"

namespace mla::testing {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string name;
  DType kv_dtype;
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

const std::vector<Case> kCases = {{"demo", DType::kBF16},  // an MTP layer, which has no rows
                                  {"experts", DType::kF32},
                                  {"odd", DType::kBF16},  // rows with padding, no rope
                                  {"odd", DType::kF32},
                                  {"minicpm3_stretched", DType::kBF16}};  // longrope

EngineOptions OptionsOf(const Case& c, Mode mode) {
  EngineOptions options;
  options.mode = mode;
  options.kv_dtype = c.kv_dtype;
  options.context = 300;
  options.max_sequences = 2;
  options.page_tokens = 16;
  options.prefill_chunk = 32;
  return options;
}

Request RequestOf(const Model& model, std::int64_t prompt, std::int64_t output, std::uint64_t seed) {
  Request request;
  request.prompt = RandomIds(prompt, model.info().vocab_size, seed);
  request.max_tokens = output;
  request.sampling.temperature = 1.2;
  request.sampling.seed = seed;
  return request;
}

// A turn of a conversation, and the next, which begins with all of the first.
struct Turns {
  explicit Turns(const Model& model) : first(RequestOf(model, 45, 20, 7)), next(RequestOf(model, 30, 12, 8)) {}
  void Continue(std::span<const std::int32_t> so_far) {
    std::vector<std::int32_t> ids(so_far.begin(), so_far.end());
    ids.insert(ids.end(), next.prompt.begin(), next.prompt.end());
    next.prompt = ids;
  }
  Request first;
  Request next;
};

class Restored : public ::testing::TestWithParam<std::tuple<Case, Mode>> {};

// 45 prompt rows and 19 of the output, the last page whole; and 50 more rows. Pages of another size and other threads
// read the file.
TEST_P(Restored, ContinuesWithTheBitsOfTheOneThatStayed) {
  const auto& [c, mode] = GetParam();
  const Model& model = ModelOf(c.name);
  const EngineOptions options = OptionsOf(c, mode);
  const TempDir dir;
  for (const std::int64_t output : {20, 24}) {
    Turns turns(model);
    turns.first.max_tokens = output;
    const auto pool = MakeThreadPool(2);
    Engine engine = Need(Engine::Create(model, options, *pool));
    const SequenceId first = Need(engine.Submit(turns.first));
    RunAll(&engine, {first});
    const std::vector<std::int32_t> ids(engine.Get(first).ids.begin(), engine.Get(first).ids.end());
    const std::string path = dir.File("cache");
    const SavedCache saved = Need(engine.SaveCache(ids, 0, path));
    EXPECT_EQ(saved.rows, 45 + output - 1);
    EXPECT_EQ(saved.bytes, static_cast<std::int64_t>(std::filesystem::file_size(path)));
    engine.Release(first);
    // From the index, with nobody at work, comes the same file.
    const std::string again = dir.File("again");
    Need(engine.SaveCache(ids, 0, again));
    EXPECT_TRUE(Need(io::ReadFile(path, 1 << 24)) == Need(io::ReadFile(again, 1 << 24)));
    turns.Continue(ids);
    const SequenceId stayed = Need(engine.Submit(turns.next));
    RunAll(&engine, {stayed});
    const Outcome expected = OutcomeOf(engine, stayed);
    if (mode == Mode::kAbsorb || mode == Mode::kMha) {
      ExpectSameBits(expected, Alone(model, options, turns.next), "all of it run at once");
    }

    for (const std::int64_t page_tokens : {16, 5}) {
      EngineOptions other = options;
      other.page_tokens = page_tokens;
      other.max_sequences = 1;
      const auto one = MakeThreadPool(1);
      Engine fresh = Need(Engine::Create(model, other, *one));
      const LoadedCache loaded = Need(fresh.LoadCache(path));
      EXPECT_EQ(loaded.ids, ids);
      EXPECT_EQ(loaded.rows, saved.rows);
      fresh.CheckPages();
      // Ids, forms and rows as they were: saved again, the file is the same.
      Need(fresh.SaveCache(ids, 0, again));
      EXPECT_TRUE(Need(io::ReadFile(path, 1 << 24)) == Need(io::ReadFile(again, 1 << 24)));
      const SequenceId restored = Need(fresh.Submit(turns.next));
      EXPECT_EQ(fresh.Get(restored).cached_tokens, saved.rows);
      RunAll(&fresh, {restored});
      ExpectSameBits(OutcomeOf(fresh, restored), expected, fmt::format("pages of {}", page_tokens));
      fresh.Release(restored);
      fresh.CheckPages();
      EXPECT_EQ(fresh.free_pages(), fresh.options().cache_pages);
    }
  }
}

// An output that is broken off, by role in the middle of its absorbed rows, goes on as if it had not been: draws,
// penalties that count the output alone, and the row that had not been run.
TEST_P(Restored, GoesOnInTheMiddleOfItsOutput) {
  const auto& [c, mode] = GetParam();
  const Model& model = ModelOf(c.name);
  const EngineOptions options = OptionsOf(c, mode);
  Request request = RequestOf(model, 45, 40, 9);
  request.sampling.presence_penalty = 0.7;
  request.sampling.frequency_penalty = 0.4;
  const Outcome whole = Alone(model, options, request);
  const TempDir dir;
  const std::string path = dir.File("cache");
  const auto pool = MakeThreadPool(1);
  Engine engine = Need(Engine::Create(model, options, *pool));
  const SequenceId first = Need(engine.Submit(request));
  while (engine.Get(first).logprobs.size() < 17) ASSERT_TRUE(engine.Step());
  const std::vector<std::int32_t> ids(engine.Get(first).ids.begin(), engine.Get(first).ids.end());
  EXPECT_EQ(Need(engine.SaveCache(ids, 17, path)).rows, 61);  // at work: its last page is in no index yet

  for (const bool restored : {true, false}) {  // else all rows are run again
    Engine other = Need(Engine::Create(model, options, *pool));
    if (restored) {
      EXPECT_EQ(Need(other.LoadCache(path)).output, 17);
    }
    Request rest = request;
    rest.prompt = ids;
    rest.continued = 17;
    rest.max_tokens = 23;
    const SequenceId id = Need(other.Submit(rest));
    EXPECT_EQ(other.Get(id).cached_tokens, restored ? 61 : 0);
    RunAll(&other, {id});
    Outcome expected = whole;
    expected.ids.erase(expected.ids.begin(), expected.ids.begin() + 17);
    expected.logprobs.erase(expected.logprobs.begin(), expected.logprobs.begin() + 17);
    ExpectSameBits(OutcomeOf(other, id), expected, restored ? "restored" : "run again");
  }
}

INSTANTIATE_TEST_SUITE_P(All, Restored,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::Values(Mode::kAbsorb, Mode::kMha, Mode::kRole, Mode::kAuto)),
                         [](const auto& test) {
                           const Case& c = std::get<0>(test.param);
                           return c.name + "_" + DTypeName(c.kv_dtype) + "_" + ModeName(std::get<1>(test.param));
                         });

// What a file has behind a row's last element, even NaN, goes nowhere: neither into a product nor into the next file.
TEST(RestoredPadding, IsLeftOut) {
  const Case c{"odd", DType::kBF16};  // rows of 80 bytes in 96, in two layers
  const Model& model = ModelOf(c.name);
  const TempDir dir;
  const auto pool = MakeThreadPool(1);
  const EngineOptions options = OptionsOf(c, Mode::kAbsorb);
  const Request request = RequestOf(model, 33, 5, 6);
  Engine engine = Need(Engine::Create(model, options, *pool));
  RunAll(&engine, {Need(engine.Submit(request))});
  Need(engine.SaveCache(request.prompt, 0, dir.File("cache")));
  const std::string sound = Need(io::ReadFile(dir.File("cache"), 1 << 24));
  std::string bytes = sound;
  const std::size_t end = bytes.size() - sizeof(std::uint64_t);
  for (std::size_t row = end - 2 * 33 * 96; row < end; row += 96) std::fill_n(bytes.begin() + row + 80, 16, '\xff');
  const std::uint64_t checksum = HashOf(std::as_bytes(std::span(bytes).first(end)));
  std::memcpy(bytes.data() + end, &checksum, sizeof(checksum));

  Engine restored = Need(Engine::Create(model, options, *pool));
  EXPECT_EQ(Need(restored.LoadCache(dir.Write("spoilt", bytes))).rows, 33);
  Need(restored.SaveCache(request.prompt, 0, dir.File("again")));
  EXPECT_EQ(Need(io::ReadFile(dir.File("again"), 1 << 24)), sound);
  const SequenceId id = Need(restored.Submit(request));
  RunAll(&restored, {id});
  ExpectSameBits(OutcomeOf(restored, id), Alone(model, options, request), "after NaN in padding");
}

// Rows have the bits of the kernels that made them, and go on with them: every instruction set that the machine has.
TEST(RestoredByKernels, ContinueWithTheSameBitsAndNoOthersDo) {
  const Case c{"demo", DType::kBF16};
  const Model& model = ModelOf(c.name);
  const TempDir dir;
  const auto pool = MakeThreadPool(1);
  EngineOptions options = OptionsOf(c, Mode::kRole);
  const Request request = RequestOf(model, 40, 12, 5);
  std::vector<std::string> had;
  for (const std::string kernels : {"portable", "avx2", "avx512", "avx512bf16", "amx"}) {
    SCOPED_TRACE(kernels);
    options.kernels = kernels;
    Result<Engine> made = Engine::Create(model, options, *pool);
    if (!made.ok()) continue;
    const SequenceId id = Need(made->Submit(request));
    RunAll(&*made, {id});
    Need(made->SaveCache(request.prompt, 0, dir.File(kernels)));
    Engine restored = Need(Engine::Create(model, options, *pool));
    for (const std::string& other : had) {
      const auto refused = restored.LoadCache(dir.File(other));
      ASSERT_FALSE(refused.ok());
      EXPECT_THAT(refused.error().message,
                  HasSubstr("kernels: expected " + kernels + ", as this engine has, found " + other));
    }
    Need(restored.LoadCache(dir.File(kernels)));
    const SequenceId again = Need(restored.Submit(request));
    EXPECT_EQ(restored.Get(again).cached_tokens, 39);
    RunAll(&restored, {again});
    ExpectSameBits(OutcomeOf(restored, again), OutcomeOf(*made, id), kernels);
    had.push_back(kernels);
  }
  EXPECT_GE(had.size(), 1U);
}

}  // namespace
}  // namespace mla::testing
