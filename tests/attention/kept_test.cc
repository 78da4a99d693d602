// Expanded keys and values that are kept from call to call: no bit depends on it, and what it saves is counted.
#include "attention/kept.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "attention/harness.h"

namespace mla::testing {
namespace {

using attention::KeptOwner;
using attention::KeptSegment;
using attention::KeptSegments;

class Kept : public ::testing::TestWithParam<std::string> {};

// Prompts of which some begin behind a cached prefix, over one, two and three segments, whose borders the chunks miss;
// and output in the MHA form, a row at a time.
std::vector<TestSequence> Prompts(const MlaDims& dims, std::int64_t longest, std::mt19937_64& rng) {
  std::vector<TestSequence> prompts;
  prompts.push_back(RandomSequence(dims, std::min<std::int64_t>(longest, 1100), 1100, Form::kMha, rng));
  prompts.push_back(RandomSequence(dims, std::min<std::int64_t>(longest, 70), 70, Form::kMha, rng));
  prompts.push_back(RandomSequence(dims, std::min<std::int64_t>(longest, 700), 2100, Form::kMha, rng));
  prompts.push_back(RandomSequence(dims, 3, 1026, Form::kMha, rng));
  prompts.push_back(RandomSequence(dims, 40, 1000, Form::kAbsorbed, rng));
  return prompts;
}

TEST_P(Kept, BitsAsIfNotKept) {
  std::mt19937_64 rng(51);
  for (const MlaDims& dims : {MlaDims{3, 9, 4, 7, 18}, MlaDims{2, 33, 0, 17, 5}}) {
    const TestWeights weights = RandomWeights(dims, WeightDType::kBF16, rng);
    for (const std::int64_t chunk : {1, 7, 64, 512}) {
      const std::vector<TestSequence> prompts = Prompts(dims, chunk * 20, rng);
      for (const DType dtype : {DType::kBF16, DType::kF32}) {
        TestRun run{.kernels = GetParam(), .chunk = chunk};
        const TestOutput plain = RunAttention(weights, prompts, {.dtype = dtype}, 0.25, run);
        EXPECT_EQ(plain.counters.keys_kept, 0);
        // All; two segments of seven; all, by several workers, the rest in pieces of one head.
        const std::int64_t segment = MlaAttention::KeptSegmentBytes(dims);
        const TestRun most{.kernels = run.kernels, .chunk = chunk, .keep_bytes = 20 * segment};
        const TestRun some{.kernels = run.kernels, .chunk = chunk, .expand_bytes = 0, .keep_bytes = 2 * segment};
        const TestRun shared{.kernels = run.kernels, .workers = 3, .chunk = chunk, .keep_bytes = 20 * segment};
        for (const TestRun& kept : {most, some, shared}) {
          const TestOutput got = RunAttention(weights, prompts, {.dtype = dtype}, 0.25, kept);
          for (std::size_t i = 0; i < prompts.size(); ++i) {
            const std::string label = std::string(DTypeName(dtype)) + " in chunks of " + std::to_string(chunk) +
                                      ", sequence " + std::to_string(i);
            ExpectSameBits(got.out[i], plain.out[i], label);
            ExpectSameBits(got.lse[i], plain.lse[i], label + " lse");
          }
          EXPECT_GT(got.counters.keys_kept, 0) << chunk;
          EXPECT_EQ(got.counters.keys_kept + got.counters.keys_expanded, plain.counters.keys_expanded) << chunk;
        }
      }
    }
  }
}

// What is left of each position's work: a prompt that fits is expanded once, and its last tile of each chunk again
// where chunks are no whole tiles.
TEST_P(Kept, CountsWhatItSaves) {
  std::mt19937_64 rng(52);
  const MlaDims dims{3, 9, 4, 7, 18};
  const TestWeights weights = RandomWeights(dims, WeightDType::kBF16, rng);
  const TestSequence prompt = RandomSequence(dims, 2560, 2560, Form::kMha, rng);
  const auto count = [&](std::int64_t chunk, std::int64_t segments) {
    const TestRun run{
        .kernels = GetParam(), .chunk = chunk, .keep_bytes = segments * MlaAttention::KeptSegmentBytes(dims)};
    return RunAttention(weights, {&prompt, 1}, {.dtype = DType::kF32}, 0.25, run).counters;
  };
  EXPECT_EQ(count(512, 0).keys_expanded, 512 * (1 + 2 + 3 + 4 + 5));
  const AttentionCounters whole = count(512, 3);
  EXPECT_EQ(whole.keys_expanded, 2560);
  EXPECT_EQ(whole.keys_kept, 512 * (1 + 2 + 3 + 4));
  EXPECT_EQ(whole.mha_one_shot, 5);
  // One segment: of 1,536, 2,048 and 2,560 positions 1,024 are kept.
  const AttentionCounters some = count(512, 1);
  EXPECT_EQ(some.keys_expanded, 1024 + 512 + 1024 + 1536);
  EXPECT_EQ(some.keys_kept, 512 + 3 * 1024);
  // 2,560 = 25 * 100 + 60: chunk i finds the whole tiles of the 100 i positions before it.
  std::int64_t found = 0;
  for (std::int64_t i = 0; i <= 25; ++i) found += 100 * i / 64 * 64;
  EXPECT_EQ(count(100, 3).keys_kept, found);
  // A prompt in one chunk takes no room.
  EXPECT_EQ(count(2560, 3).keys_expanded, 2560);
}

// Two layers, several sequences that grow, lose their last rows and have others written there, end, and begin anew: one
// attention keeps and one does not, over the same cache.
class Traffic {
 public:
  static constexpr std::int64_t kSequences = 3;
  static constexpr std::int64_t kLayers = 2;
  static constexpr std::int64_t kPages = 36;  // of a sequence

  Traffic(const std::string& kernels, DType dtype, int workers, std::int64_t segments, std::uint64_t seed)
      : rng_(seed), pool_(MakeThreadPool(workers)) {
    cache_ = std::move(LatentCache::Create(MakeLatentLayout(dims_.kv_lora_rank, dims_.qk_rope_head_dim, kLayers, dtype),
                                           kPages * kSequences))
                 .value();
    PoisonPages(*cache_);
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      const TestWeights raw = RandomWeights(dims_, WeightDType::kBF16, rng_);
      weights_.push_back(
          std::move(KvBWeights::Pack(dims_, DType::kF32, reinterpret_cast<const std::byte*>(raw.raw.data()),
                                     WeightDType::kBF16, *pool_))
              .value());
    }
    MlaAttention::Options options = OptionsFor(dims_, 512 * kSequences, 64 * kPages);
    options.workers = workers;
    options.kernels = kernels;
    options.expand_bytes = 1 << 17;
    plain_.emplace(std::move(MlaAttention::Create(options)).value());
    options.keep_bytes = segments * MlaAttention::KeptSegmentBytes(dims_);
    keeps_.emplace(std::move(MlaAttention::Create(options)).value());
    for (std::int64_t i = 0; i < kSequences; ++i) {
      for (std::int64_t page = 0; page < kPages; ++page) {
        sequences_[i].pages.push_back(static_cast<std::int32_t>(page * kSequences + i));
      }
      sequences_[i].id = next_id_++;
    }
  }

  void Step() {
    std::vector<AttentionSequence> parts;
    std::int64_t rows = 0;
    for (Sequence& s : sequences_) {
      Disturb(&s);
      if (Draw(3) == 0) continue;
      AttentionSequence part{s.pages, rows, Rows(s), 0, Form::kMha};
      part.keys = s.length + part.rows;
      part.kept_as = s.id;
      part.keep = Draw(8) != 0;
      Write(s, part.keys);
      s.length = part.keys;
      rows += part.rows;
      parts.push_back(part);
    }
    for (std::int64_t layer = 0; layer < kLayers; ++layer) Compare(parts, rows, layer);
  }

  const AttentionCounters& counters() const { return keeps_->counters(); }

 private:
  struct Sequence {
    std::uint64_t id = 0;
    std::int64_t length = 0;
    std::vector<std::int32_t> pages;
  };

  std::int64_t Draw(std::int64_t n) { return static_cast<std::int64_t>(rng_() % static_cast<std::uint64_t>(n)); }

  void Disturb(Sequence* s) {
    const std::int64_t what = Draw(24);
    if (what < 4) s->length -= std::min<std::int64_t>(s->length, Draw(8));  // guesses that missed
    if (what == 4) s->length = Draw(s->length + 1);
    if (what == 5 || s->length + 512 > 64 * kPages) {
      keeps_->Forget(s->id);
      s->id = next_id_++;
      s->length = Draw(700);  // a prefix that was found
      Write({s->id, 0, s->pages}, s->length);
    }
  }

  std::int64_t Rows(const Sequence& s) {
    const std::int64_t sizes[] = {1, 7, 64, 512, 1 + Draw(512)};
    return std::min(sizes[Draw(std::ssize(sizes))], 64 * kPages - s.length);
  }

  void Write(const Sequence& s, std::int64_t end) {
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      for (std::int64_t position = s.length; position < end; ++position) {
        const std::vector<float> row = RandomFloats(dims_.kv_lora_rank + dims_.qk_rope_head_dim, rng_);
        WriteCacheRow(cache_->Layer(layer), s.pages[static_cast<std::size_t>(position / 64)] * 64 + position % 64,
                      row.data(), row.data() + dims_.kv_lora_rank);
      }
    }
  }

  void Compare(const std::vector<AttentionSequence>& parts, std::int64_t rows, std::int64_t layer) {
    const std::int64_t h = dims_.num_attention_heads;
    const std::vector<float> q = RandomFloats(rows * h * (dims_.qk_nope_head_dim + dims_.qk_rope_head_dim), rng_);
    std::vector<float> out[2];
    std::vector<float> lse[2];
    for (int i = 0; i < 2; ++i) {
      out[i].resize(static_cast<std::size_t>(rows * h * dims_.v_head_dim));
      lse[i].resize(static_cast<std::size_t>(rows * h));
      (i == 0 ? *plain_ : *keeps_)
          .Run(cache_->Layer(layer), weights_[static_cast<std::size_t>(layer)], parts, q.data(), out[i].data(),
               lse[i].data(), *pool_);
    }
    ExpectSameBits(out[1], out[0], "layer " + std::to_string(layer));
    ExpectSameBits(lse[1], lse[0], "lse, layer " + std::to_string(layer));
  }

  const MlaDims dims_{3, 9, 4, 7, 18};
  std::mt19937_64 rng_;
  std::unique_ptr<Executor> pool_;
  std::optional<LatentCache> cache_;
  std::vector<KvBWeights> weights_;
  std::optional<MlaAttention> plain_;
  std::optional<MlaAttention> keeps_;
  Sequence sequences_[kSequences];
  std::uint64_t next_id_ = 1;
};

TEST_P(Kept, BitsAsIfNotKeptInRandomTraffic) {
  std::uint64_t seed = 53;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const std::int64_t segments : {1, 5, 30}) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + ", " + std::to_string(segments) + " segments");
      Traffic traffic(GetParam(), dtype, segments == 5 ? 3 : 1, segments, seed++);
      for (int step = 0; step < 40 && !::testing::Test::HasFailure(); ++step) traffic.Step();
      EXPECT_GT(traffic.counters().keys_kept, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Kept, ::testing::ValuesIn(KernelTables()));

// Room for `segments` of these dims, whatever the kernels.
struct Store {
  explicit Store(std::int64_t segments) : options(OptionsFor({3, 9, 4, 7, 18}, 1, 1)) {
    options.keep_bytes = segments * MlaAttention::KeptSegmentBytes(options.dims);
    Carver counting;
    KeptSegments().Place(options, &counting);
    memory = std::move(Buffer::Allocate(counting.used(), "kept")).value();
    Carver carver(memory);
    kept.Place(options, &carver);
  }
  std::int64_t Room() {
    std::int64_t room = 0;
    while (kept.Take({99, nullptr}, room) != nullptr) ++room;
    kept.Forget(99);
    return room;
  }
  MlaAttention::Options options;
  Buffer memory;
  KeptSegments kept;
};

TEST(KeptSegments, AreTheirOwnersUntilForgotten) {
  Store store(4);
  KeptSegments& kept = store.kept;
  kept.Begin(store.options.dims, false);
  const std::int64_t room = store.Room();
  ASSERT_EQ(room, 4);  // in fp32 a segment of these dims takes the more
  const std::byte layers[2] = {};
  const KeptOwner first{1, &layers[0]};
  const KeptOwner second{2, &layers[0]};
  const KeptOwner other_layer{1, &layers[1]};
  EXPECT_EQ(kept.Find(first, 0), nullptr);
  KeptSegment* const taken = kept.Take(first, 0);
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(taken->keys, 0);
  taken->keys = 7;
  KeptSegment* const beside = kept.Take(other_layer, 0);
  ASSERT_NE(kept.Take(first, 1), nullptr);
  ASSERT_NE(kept.Take(second, 0), nullptr);
  EXPECT_EQ(kept.Take(second, 1), nullptr) << "full, and nobody's room is taken away";
  EXPECT_EQ(kept.Find(first, 0), taken);
  EXPECT_EQ(kept.Find(other_layer, 0), beside);
  EXPECT_EQ(kept.Find(second, 1), nullptr);
  kept.DropFrom(first, 1);
  EXPECT_EQ(kept.Find(first, 1), nullptr);
  EXPECT_EQ(kept.Find(first, 0), taken);
  kept.Forget(1);
  EXPECT_EQ(kept.Find(first, 0), nullptr);
  EXPECT_EQ(kept.Find(other_layer, 0), nullptr);
  EXPECT_NE(kept.Find(second, 0), nullptr);
  EXPECT_EQ(store.Room(), 3);
  kept.Forget(2);
  kept.Forget(2);
  EXPECT_EQ(store.Room(), 4);
}

// Segments don't overlap, and all of them lie in what was planned.
TEST(KeptSegments, LieApart) {
  for (const bool bf16 : {false, true}) {
    Store store(5);
    store.kept.Begin(store.options.dims, bf16);
    const std::int64_t bytes = KeptSegments::SegmentBytes(store.options.dims, bf16);
    std::vector<std::byte*> begins;
    for (std::int64_t i = 0;; ++i) {
      const KeptSegment* kept = store.kept.Take({1, nullptr}, i);
      if (kept == nullptr) break;
      EXPECT_LT(kept->rope, kept->heads);
      begins.push_back(kept->rope);
    }
    EXPECT_GE(begins.size(), 5U);
    std::sort(begins.begin(), begins.end());
    EXPECT_GE(begins.front(), store.memory.data());
    EXPECT_LE(begins.back() + bytes, store.memory.data() + store.memory.bytes());
    for (std::size_t i = 1; i < begins.size(); ++i) EXPECT_GE(begins[i] - begins[i - 1], bytes);
  }
}

TEST(KeptSegments, NobodyAndNothing) {
  Store store(2);
  store.kept.Begin(store.options.dims, true);
  EXPECT_EQ(store.kept.Take({0, nullptr}, 0), nullptr) << "nobody's";
  ASSERT_NE(store.kept.Take({1, nullptr}, 0), nullptr);
  store.kept.Forget(0);
  EXPECT_NE(store.kept.Find({1, nullptr}, 0), nullptr);
  store.kept.Begin(store.options.dims, true);
  EXPECT_NE(store.kept.Find({1, nullptr}, 0), nullptr);
  store.kept.Begin(store.options.dims, false);
  EXPECT_EQ(store.kept.Find({1, nullptr}, 0), nullptr) << "it lies there as other kernels read it";

  Store none(0);
  none.kept.Forget(1);
  none.kept.Begin(none.options.dims, true);
  EXPECT_EQ(none.kept.Find({1, nullptr}, 0), nullptr);
  EXPECT_EQ(none.kept.Take({1, nullptr}, 0), nullptr);
  none.kept.DropFrom({1, nullptr}, 0);
  none.kept.Forget(1);
  EXPECT_EQ(none.memory.bytes(), 0);
}

}  // namespace
}  // namespace mla::testing
