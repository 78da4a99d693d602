// A day's traffic in small: random requests over the demo, in pieces, with what must hold after any number of them. CI
// runs one piece; MLA_SOAK_REQUESTS=100000 runs as many as it says (docs/testing.md).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/harness.h"
#include "mla/scheduler.h"
#include "testing/models.h"

namespace mla::testing {
namespace {

constexpr std::int64_t kPiece = kUnderSanitizer ? 150 : 500;
constexpr std::int64_t kChunk = 64;
constexpr std::int64_t kMostPrompt = 96;
constexpr std::int64_t kMostTokens = 32;
constexpr std::int64_t kWaiting = 64;

std::int64_t Requests() {
  const char* asked = std::getenv("MLA_SOAK_REQUESTS");
  return asked == nullptr ? kPiece : std::max<std::int64_t>(kPiece, std::atoll(asked));
}

EngineOptions Options() {
  EngineOptions options;
  options.mode = Mode::kRole;  // auto promises no bits over prefix hits
  options.context = kMostPrompt + kMostTokens;
  options.page_tokens = 16;
  options.prefill_chunk = kChunk;
  options.max_sequences = 16;
  options.cache_pages = 40;  // 16 sequences want up to 8 each
  options.drafter = Drafter::kNgram;
  options.prefix_reuse = PrefixReuse::kPrompt;
  options.keep_bytes = 3 * MlaAttention::KeptSegmentBytes(ModelOf("demo").info().dims);  // not of all prompts
  return options;
}

std::int64_t ResidentBytes() {
  std::int64_t size = 0;
  std::int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// A request that has not ended, and the step by which it must have.
struct Live {
  ScheduledRequest asked;
  std::int64_t steps = 0;  // that it takes where it runs alone, and its samples one after the other
  std::int64_t submitted = 0;
  std::int64_t bound = 0;
  std::int64_t open = 0;            // samples
  std::vector<std::int32_t> first;  // the output of sample 0
};

class Soak {
 public:
  explicit Soak(Engine* engine) : engine_(engine), scheduler_(*engine, {kWaiting, [this] { return now_; }}) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) prefixes_.push_back(RandomIds(kMostPrompt, kVocab, seed));
  }

  void Piece(std::uint64_t seed) {
    rng_.seed(seed);
    std::int64_t left = kPiece;
    while (left > 0 || scheduler_.busy()) {
      while (left > 0 && Below(3) != 0 && Submit()) --left;
      if (!live_.empty() && Below(25) == 0) scheduler_.Cancel(std::next(live_.begin(), Int(std::ssize(live_)))->first);
      now_ += 1;
      ++step_;
      scheduler_.Step();
      ASSERT_NO_FATAL_FAILURE(Listen());
      if (step_ % 16 == 0) engine_->CheckPages();
    }
    engine_->CheckPages();
    ASSERT_EQ(engine_->free_pages(), engine_->pages().total) << "pages are lost";
    ASSERT_TRUE(live_.empty());
  }

  const SchedulerStats stats() const { return scheduler_.stats(); }
  std::int64_t steps() const { return step_; }
  // The longest wait for the end, in steps; and the one that came nearest to its bound, as a share of it.
  std::int64_t longest() const { return longest_; }
  double nearest() const { return nearest_; }

 private:
  static constexpr std::int64_t kVocab = 512;
  std::uint64_t Below(std::uint64_t n) { return rng_() % n; }
  std::int64_t Int(std::int64_t n) { return static_cast<std::int64_t>(Below(static_cast<std::uint64_t>(n))); }

  bool Submit() {
    Live live;
    Request& r = live.asked.request;
    r.prompt = RandomIds(1 + Int(kMostPrompt), kVocab, rng_());
    const std::int64_t common = Below(2) == 0 ? Int(std::ssize(r.prompt) + 1) : 0;
    std::copy_n(prefixes_[Below(prefixes_.size())].begin(), common, r.prompt.begin());
    r.max_tokens = 1 + Int(kMostTokens);
    r.sampling.temperature = static_cast<double>(Below(2));
    r.sampling.seed = rng_();
    if (Below(2) == 0) r.eos_ids = {static_cast<std::int32_t>(Int(kVocab))};
    live.asked.samples = Below(8) == 0 ? 2 + Int(2) : 1;
    if (Below(20) == 0) live.asked.deadline = now_ + static_cast<double>(Int(60));
    const auto id = Need(scheduler_.Submit(live.asked));
    if (!id) return false;
    // Each step the oldest of those that have not ended gets on, by a row of output or a chunk of its prompt, and is
    // never the one that gives pages back; its samples may have to wait for one another, and then be read again.
    const std::int64_t rows = std::ssize(r.prompt) + r.max_tokens;
    live.steps = live.asked.samples * ((rows + kChunk - 1) / kChunk + 1 + r.max_tokens);
    live.submitted = step_;
    live.bound = step_ + live.steps + 1;
    for (const auto& [older, other] : live_) live.bound += other.steps;
    live.open = live.asked.samples;
    live_[*id] = std::move(live);
    return true;
  }

  void Listen() {
    for (const SchedulerEvent& e : scheduler_.events()) {
      if (e.kind == SchedulerEvent::Kind::kAdmitted) continue;
      const auto found = live_.find(e.request);
      ASSERT_NE(found, live_.end()) << "an event after the last";
      Live& live = found->second;
      if (e.kind == SchedulerEvent::Kind::kToken) {
        if (e.sample == 0) live.first.push_back(e.id);
        continue;
      }
      if (e.sample == 0) Compare(live, e.finish);
      if (--live.open > 0) continue;
      longest_ = std::max(longest_, step_ - live.submitted);
      nearest_ = std::max(
          nearest_, static_cast<double>(step_ - live.submitted) / static_cast<double>(live.bound - live.submitted));
      live_.erase(found);
    }
    for (const auto& [id, live] : live_) {
      ASSERT_LE(step_, live.bound) << "request " << id << " of step " << live.submitted << " starves";
    }
  }

  // One in 25 against a fresh engine without reuse and guesses.
  void Compare(const Live& live, FinishReason finish) {
    if (++ended_ % 25 != 0 || finish == FinishReason::kCancelled || finish == FinishReason::kDeadline) return;
    EngineOptions alone = Options();
    alone.cache_pages = 0;
    alone.max_sequences = 1;
    alone.drafter = Drafter::kNone;
    alone.prefix_reuse = PrefixReuse::kOff;
    alone.keep_bytes = 0;
    EXPECT_EQ(live.first, Alone(ModelOf("demo"), alone, live.asked.request).ids);
  }

  Engine* engine_;
  double now_ = 0;
  Scheduler scheduler_;
  std::mt19937_64 rng_;
  std::vector<std::vector<std::int32_t>> prefixes_;
  std::map<RequestId, Live> live_;  // by arrival
  std::int64_t step_ = 0;
  std::int64_t ended_ = 0;
  std::int64_t longest_ = 0;
  double nearest_ = 0;
};

TEST(Soak, NothingIsLostAndNobodyStarves) {
  const auto pool = MakeThreadPool(1);
  Engine engine = Need(Engine::Create(ModelOf("demo"), Options(), *pool));
  Soak soak(&engine);
  std::int64_t after_first = 0;
  const std::int64_t pieces = (Requests() + kPiece - 1) / kPiece;
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    SCOPED_TRACE(piece);
    ASSERT_NO_FATAL_FAILURE(soak.Piece(static_cast<std::uint64_t>(piece)));
    if (piece == 0) after_first = ResidentBytes();
  }
  const SchedulerStats stats = soak.stats();
  const std::int64_t grown = ResidentBytes() - after_first;
  std::printf(
      "%lld requests in %lld steps: %lld cancelled, %lld past their deadline, %lld preemptions, %lld prefix hits, "
      "%lld pages copied, %lld evicted; longest wait for an end %lld steps, the nearest to its bound at %.0f %% "
      "of it; memory %+.1f MiB since the first piece\n",
      static_cast<long long>(stats.finished), static_cast<long long>(soak.steps()),
      static_cast<long long>(stats.cancelled), static_cast<long long>(stats.expired),
      static_cast<long long>(stats.preemptions), static_cast<long long>(engine.stats().hits),
      static_cast<long long>(engine.stats().copied_pages), static_cast<long long>(engine.stats().evicted_pages),
      static_cast<long long>(soak.longest()), 100 * soak.nearest(), static_cast<double>(grown) / (1 << 20));
  EXPECT_EQ(stats.finished, pieces * kPiece);
  // The traffic comes to what it is for.
  EXPECT_GT(stats.cancelled, 0);
  EXPECT_GT(stats.preemptions, 0);
  EXPECT_GT(engine.stats().hits, 0);
  EXPECT_GT(engine.stats().evicted_pages, 0);
  EXPECT_GT(engine.stats().attention.keys_kept, 0);
  // Everything of the engine's is allocated at its start; the rest is an allocator's free lists.
  if (!kUnderSanitizer) {
    EXPECT_LT(grown, std::int64_t{4} << 20);
  }
}

}  // namespace
}  // namespace mla::testing
