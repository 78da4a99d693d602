// What does not fit, is damaged or half written is refused by name, and nothing of it stays.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "engine/cache_file.h"
#include "engine/harness.h"
#include "io/file.h"
#include "mla/engine.h"
#include "testing/models.h"
#include "testing/temp_dir.h"

namespace mla::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

EngineOptions OptionsByRole() {
  EngineOptions options;
  options.mode = Mode::kRole;
  options.kv_dtype = DType::kF32;
  options.context = 300;
  options.max_sequences = 2;
  options.page_tokens = 16;
  return options;
}

Request GreedyRequest(const Model& model, std::int64_t prompt, std::int64_t output, std::uint64_t seed) {
  Request request;
  request.prompt = RandomIds(prompt, model.info().vocab_size, seed);
  request.max_tokens = output;
  return request;
}

// A small file of 40 tokens, and engines that it does not fit.
class Refused : public ::testing::Test {
 protected:
  static constexpr std::int64_t kHeader = 176;
  Refused() : path_(dir_.File("cache")), pool_(MakeThreadPool(1)) {
    Engine engine = Make(model(), options_);
    Request request = GreedyRequest(model(), 30, 11, 3);
    const SequenceId id = Need(engine.Submit(request));
    RunAll(&engine, {id});
    ids_.assign(engine.Get(id).ids.begin(), engine.Get(id).ids.end());
    EXPECT_EQ(Need(engine.SaveCache(ids_, 11, path_)).rows, 40);
    bytes_ = Need(io::ReadFile(path_, 1 << 24));
  }

  static const Model& model() {
    static const Model model = TinyModel(TinyOptions{}, 3);
    return model;
  }
  Engine Make(const Model& model, const EngineOptions& options) { return Need(Engine::Create(model, options, *pool_)); }
  // The file does not enter, for that reason, and leaves nothing.
  static void Expect(Engine* engine, const std::string& path, const std::string& reason) {
    const std::int64_t free = engine->pages().free;
    const auto refused = engine->LoadCache(path);
    ASSERT_FALSE(refused.ok()) << "expected: " << reason;
    EXPECT_THAT(refused.error().message, AllOf(HasSubstr(path), HasSubstr(reason)));
    EXPECT_EQ(refused.error().message.find('\n'), std::string::npos);
    EXPECT_EQ(engine->pages().free, free);
    engine->CheckPages();
  }
  void ExpectBytes(Engine* engine, const std::string& bytes, const std::string& reason) {
    Expect(engine, dir_.Write("spoilt", bytes), reason);
  }
  // The file with a number of its header replaced, and the header's checksum right.
  template <class T>
  std::string WithNumber(std::size_t offset, T value) const {
    std::string bytes = bytes_;
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
    const std::uint64_t checksum = HashOf(std::as_bytes(std::span(bytes).first(kHeader - 8)));
    std::memcpy(bytes.data() + kHeader - 8, &checksum, sizeof(checksum));
    return bytes;
  }

  EngineOptions options_ = OptionsByRole();
  TempDir dir_;
  std::string path_;
  std::string bytes_;
  std::vector<std::int32_t> ids_;
  std::unique_ptr<Executor> pool_;
};

TEST_F(Refused, WhatWasMadeOtherwise) {
  const auto expect = [&](const Model& model, const std::function<void(EngineOptions*)>& change,
                          const std::string& reason) {
    EngineOptions options = options_;
    change(&options);
    Engine engine = Make(model, options);
    Expect(&engine, path_, reason);
  };
  const auto with = [](const std::function<void(TinyOptions*)>& change, std::uint64_t seed = 3) {
    TinyOptions tiny;
    change(&tiny);
    return TinyModel(tiny, seed);
  };
  const auto none = [](auto*) {};
  expect(with(none, 4), none, "model fingerprint: expected 0x");
  expect(with([](TinyOptions* o) { o->rope_theta *= 2; }), none, "rope fingerprint: expected 0x");
  expect(with([](TinyOptions* o) { ++o->num_hidden_layers; }), none, "layers: expected ");
  expect(with([](TinyOptions* o) { o->kv_lora_rank += 8; }), none, "latent elements of a row: expected ");
  expect(with([](TinyOptions* o) { o->qk_rope_head_dim += 2; }), none, "rope elements of a row: expected ");
  expect(with([](TinyOptions* o) { ++o->vocab_size; }), none, "vocabulary: expected ");
  expect(
      model(), [](EngineOptions* o) { o->kv_dtype = DType::kBF16; },
      "dtype of rows: expected BF16, as this engine has, found F32");
  expect(
      model(), [](EngineOptions* o) { o->mode = Mode::kAbsorb; },
      "mode: expected absorb, as this engine has, found role");
  expect(
      model(), [](EngineOptions* o) { o->context = 40; }, "tokens: expected at most the context's 40, found 41");
  expect(
      model(), [](EngineOptions* o) { o->cache_pages = 2; },
      "rows: expected at most 32, which the cache's pages hold, found 40");
}

TEST_F(Refused, WeightsKeptOtherwise) {
  const std::string folder = std::string(MLA_SOURCE_DIR) + "/tests/conformance/data/deepseek_v2";
  const Model kept = LoadModel(folder, WeightDType::kBF16);
  Engine saver = Make(kept, options_);
  const Request request = GreedyRequest(kept, 20, 0, 3);
  RunAll(&saver, {Need(saver.Submit(request))});
  Need(saver.SaveCache(request.prompt, 0, path_));
  const Model wide = LoadModel(folder, WeightDType::kF32);
  Engine loader = Make(wide, options_);
  Expect(&loader, path_, "weights kept in: expected F32, as this engine has, found BF16");
  // Weights that stay in fp8 are another way to keep the same numbers.
  const std::string fp8 = std::string(MLA_SOURCE_DIR) + "/tests/conformance/data/fp8";
  EXPECT_EQ(LoadModel(fp8, WeightDType::kFp8).fingerprint(), LoadModel(fp8, WeightDType::kBF16).fingerprint());
}

// LongRoPE's factors follow from the context that is served.
TEST_F(Refused, AContextThatTurnsPositionsOtherwise) {
  const Model model =
      LoadModel(std::string(MLA_SOURCE_DIR) + "/tests/conformance/data/minicpm3_stretched", WeightDType::kBF16);
  EngineOptions options = options_;
  options.context = 60;
  Engine within = Make(model, options);
  const Request request = GreedyRequest(model, 20, 0, 3);
  RunAll(&within, {Need(within.Submit(request))});
  Need(within.SaveCache(request.prompt, 0, path_));
  options.context = 100;
  Engine past = Make(model, options);
  Expect(&past, path_, "rope fingerprint: expected 0x");
}

TEST_F(Refused, WhereThereIsNoRoom) {
  EngineOptions options = options_;
  options.cache_pages = 5;
  Engine engine = Make(model(), options);
  const SequenceId id = Need(engine.Submit(GreedyRequest(model(), 40, 30, 4)));
  while (engine.Get(id).logprobs.empty()) ASSERT_TRUE(engine.Step());
  const auto refused = engine.LoadCache(path_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "cache: 3 pages are needed to load 40 rows, 2 are free or idle");
  engine.Release(id);
  EXPECT_EQ(Need(engine.LoadCache(path_)).rows, 40);  // idle pages give way
  engine.CheckPages();

  options.prefix_reuse = PrefixReuse::kOff;
  Engine off = Make(model(), options);
  EXPECT_THAT(off.LoadCache(path_).error().message, HasSubstr("prefix reuse: expected prompt or all"));
}

// Every byte of the header, many of the others, one at a time; lengths that the file may be cut to.
TEST_F(Refused, DamageAnywhere) {
  Engine engine = Make(model(), options_);
  const std::string path = dir_.File("spoilt");
  const std::size_t rows = kHeader + 41 * 4 + 2 * 16;
  for (std::size_t at = 0; at < bytes_.size();
       at += at < kHeader || at + 9 > bytes_.size() ? 1 : (at < rows ? 7 : 211)) {
    std::string spoilt = bytes_;
    spoilt[at] = static_cast<char>(spoilt[at] ^ (1 << at % 8));
    dir_.Write("spoilt", spoilt);
    EXPECT_FALSE(engine.LoadCache(path).ok()) << at;
  }
  for (std::size_t size = 0; size < bytes_.size(); size += size < rows ? 23 : 1999) {
    dir_.Write("spoilt", bytes_.substr(0, size));
    EXPECT_FALSE(engine.LoadCache(path).ok()) << size;
  }
  EXPECT_EQ(engine.pages().free, engine.pages().total);
  engine.CheckPages();
  std::string spoilt = bytes_;
  spoilt[20] = static_cast<char>(spoilt[20] ^ 1);
  ExpectBytes(&engine, spoilt, "header: its checksum does not match");
  spoilt = bytes_;
  spoilt[spoilt.size() / 2] = static_cast<char>(spoilt[spoilt.size() / 2] ^ 1);
  ExpectBytes(&engine, spoilt, ": its checksum does not match");
  ExpectBytes(&engine, bytes_.substr(0, bytes_.size() - 1), "the file is cut short");
  ExpectBytes(&engine, bytes_ + "x", "followed by something else");
  ExpectBytes(&engine, "", "expected a cache file");
  Expect(&engine, dir_.path(), "expected a regular file, found a directory");
  Expect(&engine, dir_.File("absent"), "can't be opened");
  EXPECT_EQ(Need(engine.LoadCache(path_)).rows, 40);
}

// Headers whose checksum is right: numbers are believed only as far as the file's size goes.
TEST_F(Refused, HeadersThatLie) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  constexpr std::size_t kVersion = 8;
  constexpr std::size_t kHeaderBytes = 12;
  constexpr std::size_t kTokens = 16;
  constexpr std::size_t kOutput = 24;
  constexpr std::size_t kRows = 32;
  constexpr std::size_t kRuns = 40;
  constexpr std::size_t kLayers = 48;
  constexpr std::size_t kRowBytes = 72;
  Engine engine = Make(model(), options_);
  ExpectBytes(&engine, WithNumber(kVersion, std::uint32_t{2}),
              "version: expected 1 with a header of 176 bytes, found 2");
  ExpectBytes(&engine, WithNumber(kHeaderBytes, std::uint32_t{1} << 20), "header: expected 24 to ");
  for (const std::size_t field : {kTokens, kRows, kRuns, kLayers, kRowBytes}) {
    for (const std::int64_t value :
         {kHuge, std::int64_t{0}, std::int64_t{-1}, std::int64_t{41}, INT64_MIN, INT64_MAX}) {
      if (field == kTokens && value == 41) continue;
      ExpectBytes(&engine, WithNumber(field, value), "");
    }
  }
  ExpectBytes(&engine, WithNumber(kOutput, std::int64_t{41}), "41 of them output");
  // Behind the header the last checksum would tell, but later.
  ExpectBytes(&engine, WithNumber(kHeader, std::int32_t{-1}), "ids: expected 0 to ");
  ExpectBytes(&engine, WithNumber(kHeader, std::int32_t{1} << 30), "ids: expected 0 to ");
  const std::size_t runs = kHeader + 41 * 4;
  ExpectBytes(&engine, WithNumber(runs, std::int64_t{1}), "forms: expected run 0 to begin from 0 to 0");
  ExpectBytes(&engine, WithNumber(runs + 8, std::int64_t{0}), "forms: expected run 1");
  ExpectBytes(&engine, WithNumber(runs + 8, std::int64_t{2}), "forms: expected 0 or 1, found 2");
  ExpectBytes(&engine, WithNumber(runs + 16, std::int64_t{40}), "forms: expected run 1 to begin from 1 to 39");
}

// Who takes what from a file, and what becomes of its pages.
TEST_F(Refused, NothingTwice) {
  Engine engine = Make(model(), options_);
  Need(engine.LoadCache(path_));
  const PageUse once = engine.pages();
  EXPECT_EQ(once.idle, 3);
  Need(engine.LoadCache(path_));  // the same rows are there already
  EXPECT_EQ(engine.pages().idle, 3);
  EXPECT_EQ(engine.pages().free, once.free);
  engine.CheckPages();
  EXPECT_THAT(engine.SaveCache(std::vector<std::int32_t>{1, 2, 3}, 0, path_).error().message,
              HasSubstr("of these 3 tokens no row is held"));
  EXPECT_THAT(engine.SaveCache(std::vector<std::int32_t>{1, -2}, 0, path_).error().message, HasSubstr("found -2"));
  EXPECT_THAT(engine.SaveCache(ids_, 41, path_).error().message, HasSubstr("output: expected"));
  EXPECT_EQ(Need(io::ReadFile(path_, 1 << 24)), bytes_);

  // With rows of prompts alone, those of the reply stay out: by role they are absorbed.
  EngineOptions options = options_;
  options.prefix_reuse = PrefixReuse::kPrompt;
  Engine prompts = Make(model(), options);
  EXPECT_EQ(Need(prompts.LoadCache(path_)).rows, 30);
  EXPECT_EQ(prompts.pages().idle, 2);
  prompts.CheckPages();
}

// What a file of that name was stays, whatever ends the writing.
class TornWrite : public Refused {
 protected:
  // What `child` does in a process of its own; its exit status, or minus the signal that ended it.
  static int InChild(const std::function<int()>& child) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(child());
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  std::vector<std::string> Others() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      if (entry.path() != path_) names.push_back(entry.path().string());
    }
    return names;
  }
};

TEST_F(TornWrite, AFullDiskLeavesTheOldFile) {
  Engine engine = Make(model(), options_);
  Need(engine.LoadCache(path_));
  const int status = InChild([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    const auto saved = engine.SaveCache(ids_, 0, path_);
    return !saved.ok() && saved.error().message.find("can't be written") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Need(io::ReadFile(path_, 1 << 24)), bytes_);
  EXPECT_THAT(Others(), ::testing::IsEmpty());
  EXPECT_THAT(engine.SaveCache(ids_, 0, dir_.File("absent/cache")).error().message, HasSubstr("can't be written"));
}

TEST_F(TornWrite, AKillLeavesTheOldFileAndNoneThatPassesForOne) {
  Engine engine = Make(model(), options_);
  engine::CacheFileContent content;
  content.schema = {2, 8, 0, 4096, 50, 1, 2, "F32", "F32", "role", "portable"};
  content.ids.assign(40, 1);
  content.rows = 40;
  content.forms = {{0, Form::kMha}};
  std::vector<std::byte> row(4096);
  const int status = InChild([&] {
    static_cast<void>(engine::WriteCacheFile(path_, content, [&](std::int64_t layer, std::int64_t token) {
      if (layer == 1 && token == 20) ::raise(SIGKILL);
      return std::span(row);
    }));
    return 0;
  });
  EXPECT_EQ(status, -SIGKILL);
  EXPECT_EQ(Need(io::ReadFile(path_, 1 << 24)), bytes_);
  const std::vector<std::string> left = Others();
  ASSERT_EQ(left.size(), 1U);
  EXPECT_THAT(left[0], HasSubstr("cache.partial-"));
  const auto opened = engine::CacheFileReader::Open(left[0]);
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, HasSubstr("the file is cut short"));
  EXPECT_EQ(Need(engine.LoadCache(path_)).rows, 40);
}

}  // namespace
}  // namespace mla::testing
