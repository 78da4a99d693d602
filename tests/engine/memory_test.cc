// Memory: what is planned is what is allocated, counted at the system's door; a step allocates nothing; requests leave
// nothing behind.
//
// The program counts every operator new and delete and, through the linker's --wrap, every anonymous mmap, less what a
// buffer cuts off its ends to begin at 2 MiB.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buffer.h"
#include "engine/pages.h"
#include "mla/cache.h"
#include "mla/engine.h"
#include "model/model.h"
#include "sampler/sampler.h"
#include "testing/models.h"

namespace {

std::atomic<std::int64_t> news{0};
std::atomic<std::int64_t> new_bytes{0};
std::atomic<std::int64_t> deletes{0};
std::atomic<std::int64_t> maps{0};
std::atomic<std::int64_t> mapped_bytes{0};
// The last anonymous mapping, as it stands.
std::uintptr_t last_begin = 0;
std::uintptr_t last_end = 0;

void* Counted(std::size_t size) {
  news.fetch_add(1, std::memory_order_relaxed);
  new_bytes.fetch_add(static_cast<std::int64_t>(size), std::memory_order_relaxed);
  void* p = std::malloc(size == 0 ? 1 : size);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

void GiveBack(void* p) {
  if (p != nullptr) deletes.fetch_add(1, std::memory_order_relaxed);
  std::free(p);
}

}  // namespace

// The array forms call these; aligned ones are not used by the library's steps, and would be linked from libstdc++.
void* operator new(std::size_t size) { return Counted(size); }
void operator delete(void* p) noexcept { GiveBack(p); }
void operator delete(void* p, std::size_t) noexcept { GiveBack(p); }

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names
extern "C" {
void* __real_mmap(void* address, std::size_t length, int protection, int flags, int fd, off_t offset);
void* __wrap_mmap(void* address, std::size_t length, int protection, int flags, int fd, off_t offset) {
  void* data = __real_mmap(address, length, protection, flags, fd, offset);
  if ((flags & MAP_ANONYMOUS) != 0) {
    maps.fetch_add(1, std::memory_order_relaxed);
    mapped_bytes.fetch_add(static_cast<std::int64_t>(length), std::memory_order_relaxed);
    last_begin = reinterpret_cast<std::uintptr_t>(data);
    last_end = last_begin + length;
  }
  return data;
}
int __real_munmap(void* address, std::size_t length);
int __wrap_munmap(void* address, std::size_t length) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t end = begin + length;
  const bool front = begin == last_begin && end < last_end;
  const bool back = begin > last_begin && end == last_end;
  if (front || back) {
    mapped_bytes.fetch_sub(static_cast<std::int64_t>(length), std::memory_order_relaxed);
    (front ? last_begin : last_end) = front ? end : begin;
  }
  return __real_munmap(address, length);
}
}
// NOLINTEND(bugprone-reserved-identifier)

namespace mla::testing {
namespace {

struct Count {
  std::int64_t news = 0;
  std::int64_t new_bytes = 0;
  std::int64_t deletes = 0;
  std::int64_t maps = 0;
  std::int64_t mapped_bytes = 0;
};

template <class F>
Count CountIn(F&& f) {
  const Count before{::news, ::new_bytes, ::deletes, ::maps, ::mapped_bytes};
  f();
  return {::news - before.news, ::new_bytes - before.new_bytes, ::deletes - before.deletes, ::maps - before.maps,
          ::mapped_bytes - before.mapped_bytes};
}

TEST(Counters, Count) {
  const Count count = CountIn([] {
    const std::vector<char> some(1000, 'x');
    ASSERT_EQ(some[999], 'x');
    auto buffer = Buffer::Allocate(12345, "test");
    ASSERT_TRUE(buffer.ok());
  });
  EXPECT_GE(count.new_bytes, 1000);
  EXPECT_EQ(count.deletes, count.news);
  EXPECT_EQ(count.maps, 1);
  EXPECT_EQ(count.mapped_bytes, 12345);
}

// Large buffers are mapped in whole pages; small ones as they are.
void ExpectMapped(const Count& count, std::int64_t planned) {
  EXPECT_LE(planned, count.mapped_bytes);
  EXPECT_LT(count.mapped_bytes, planned + 4096 * std::max<std::int64_t>(1, count.maps));
}

TEST(Counters, CountALargeBufferByWhatItKeeps) {
  constexpr std::int64_t kBytes = (5 << 20) + 5;
  Buffer kept;  // what is given back with it is not what is cut off
  const Count count = CountIn([&] { kept = Need(Buffer::Allocate(kBytes, "test")); });
  EXPECT_EQ(count.maps, 1);
  EXPECT_EQ(count.mapped_bytes, (5 << 20) + 4096);
  ExpectMapped(count, kBytes);
}

std::vector<TinyOptions> Families() {
  TinyOptions mtp;
  mtp.num_nextn_predict_layers = 1;
  return {TinyOptions{}, OddOptions(), HalfSplitOptions(), mtp};
}

engine::Pages::Limits PageLimitsOf(const EngineOptions& o) {
  return {o.cache_pages, o.page_tokens, o.context, o.prefix_reuse};
}

// The engine's large memory is mapped, but for what the sampler, the page pool and the prefix index keep in vectors.
void ExpectPlannedIsAllocated(const Model& model, const EngineOptions& options) {
  for (const int threads : {1, 3}) {
    const auto pool = MakeThreadPool(threads);
    const MemoryPlan plan = Need(Engine::Plan(model, options, threads));
    EXPECT_EQ(plan.weights, model.weight_bytes());
    std::vector<Engine> engine;
    engine.reserve(1);
    const Count count = CountIn([&] { engine.push_back(Need(Engine::Create(model, options, *pool))); });
    const MemoryPlan memory = engine[0].memory();
    EXPECT_EQ(memory.weights, plan.weights);
    EXPECT_EQ(memory.cache, plan.cache);
    EXPECT_EQ(memory.workspace, plan.workspace);
    EXPECT_EQ(memory.tables, plan.tables);
    const EngineOptions& o = engine[0].options();
    const std::int64_t vectors = CountIn([&] { const sampler::Sampler sampler(model.info().vocab_size); }).new_bytes +
                                 CountIn([&] { const engine::Pages pages(PageLimitsOf(o)); }).new_bytes;
    ExpectMapped(count, plan.cache + plan.workspace + plan.tables - vectors);
    // What is not planned for is bookkeeping: a few words for a row and a sequence.
    EXPECT_LE(count.new_bytes - vectors, 16384 + 256 * (o.prefill_chunk + o.max_sequences));
  }
}

TEST(Plan, IsWhatIsAllocated) {
  std::vector<Model> models;
  for (const TinyOptions& options : Families()) models.push_back(TinyModel(options, 3, WeightDType::kBF16));
  for (const WeightDType keep : {WeightDType::kF32, WeightDType::kBF16}) models.push_back(LoadModel(DemoDir(), keep));
  for (std::size_t i = 0; i < models.size(); ++i) {
    for (const DType kv : {DType::kBF16, DType::kF32}) {
      for (const std::int64_t context : {1, 100, 2000}) {
        SCOPED_TRACE("model " + std::to_string(i) + ", " + DTypeName(kv) + ", context " + std::to_string(context));
        EngineOptions options;
        options.kv_dtype = kv;
        options.context = context;
        ExpectPlannedIsAllocated(models[i], options);
        options.max_sequences = 5;
        options.prefill_chunk = 33;
        options.page_tokens = 7;
        options.expand_bytes = 1000;
        ExpectPlannedIsAllocated(models[i], options);
        options.cache_pages = 11;
        ExpectPlannedIsAllocated(models[i], options);
        options.keep_bytes = MlaAttention::KeptSegmentBytes(models[i].info().dims) * 5 / 2;
        ExpectPlannedIsAllocated(models[i], options);
      }
    }
  }
}

TEST(Plan, OfWeightsIsWhatLoadingMaps) {
  for (const TinyOptions& options : Families()) {
    for (const WeightDType keep : {WeightDType::kF32, WeightDType::kBF16}) {
      const TempDir dir;
      WriteTinyCheckpoint(dir.path(), TinyConfigJson(options), 4);
      const auto opened = Need(model::Open(dir.path()));
      const auto pool = MakeThreadPool(1);
      LoadOptions load;
      load.weights = keep;
      std::int64_t allocated = 0;
      const Count count = CountIn([&] { allocated = Need(model::LoadOpened(opened, load, *pool)).weight_bytes(); });
      EXPECT_EQ(allocated, model::PlannedWeightBytes(opened, keep));
      ExpectMapped(count, allocated);
      load.memory = allocated - 1;
      const Count refused = CountIn([&] { EXPECT_FALSE(model::LoadOpened(opened, load, *pool).ok()); });
      EXPECT_EQ(refused.maps, 0) << "refused before anything is allocated";
      load.memory = allocated;
      EXPECT_TRUE(model::LoadOpened(opened, load, *pool).ok());
    }
  }
}

TEST(Step, AllocatesNothing) {
  std::vector<Model> models;
  for (const TinyOptions& options : Families()) models.push_back(TinyModel(options, 3, WeightDType::kBF16));
  const auto pool = MakeThreadPool(2);
  for (std::size_t i = 0; i < models.size(); ++i) {
    for (const Mode mode : {Mode::kAuto, Mode::kRole, Mode::kMha, Mode::kAbsorb}) {
      SCOPED_TRACE("model " + std::to_string(i) + ", " + ModeName(mode));
      EngineOptions options;
      options.mode = mode;
      options.context = 300;
      options.max_sequences = 3;
      options.prefill_chunk = 24;
      options.page_tokens = 16;
      options.expand_bytes = 0;
      options.keep_bytes = 2 * MlaAttention::KeptSegmentBytes(models[i].info().dims);
      Engine engine = Need(Engine::Create(models[i], options, *pool));
      std::vector<SequenceId> ids;
      for (const std::int64_t size : {100, 7, 60}) {
        Request request;
        request.prompt = RandomIds(size, models[i].info().vocab_size, 6);
        request.max_tokens = 40;
        request.prompt_logprobs = size == 60;
        request.sampling.temperature = size == 7 ? 1 : 0;
        request.sampling.top_p = 0.9;
        request.sampling.repetition_penalty = 1.1;
        ids.push_back(Need(engine.Submit(request)));
      }
      const Count count = CountIn([&] {
        for (int step = 0; engine.Step(); ++step) {
          if (step == 3) engine.Preempt(ids[0]);
          if (step == 20) engine.Preempt(ids[2]);
        }
      });
      for (const SequenceId id : ids) EXPECT_EQ(engine.Get(id).output().size(), 40U);
      EXPECT_EQ(count.news, 0);
      EXPECT_EQ(count.maps, 0);
    }
  }
}

// Bytes of the process that stand in memory.
std::int64_t ResidentBytes() {
  std::int64_t size = 0;
  std::int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// One request to its end, one that another's pages serve, one that is preempted on the way, one that is refused.
void RunEveryKind(Engine& engine, const Request& request) {
  ASSERT_TRUE(engine.Generate(request).ok());
  const SequenceId donor = Need(engine.Submit(request));
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(engine.Step());
  const SequenceId heir = Need(engine.Submit(request));
  ASSERT_TRUE(engine.Step());
  engine.Preempt(donor);
  ASSERT_TRUE(engine.Step());
  engine.Release(donor);
  engine.Release(heir);
  Request refused = request;
  refused.prompt[0] = -1;
  ASSERT_FALSE(engine.Submit(refused).ok());
}

// A thousand runs hold what one run holds: every allocation is given back, nothing is mapped, every page is free, and
// the process has not grown. (A kilobyte a run would be a megabyte.)
TEST(Requests, AThousandLeaveNothingBehind) {
  const Model model = TinyModel(TinyOptions{}, 3, WeightDType::kBF16);
  const auto pool = MakeThreadPool(1);
  EngineOptions options;
  options.context = 64;
  options.max_sequences = 2;
  options.prefill_chunk = 8;
  options.page_tokens = 8;
  Engine engine = Need(Engine::Create(model, options, *pool));
  Request request;
  request.prompt = RandomIds(20, model.info().vocab_size, 6);
  request.max_tokens = 4;
  request.sampling.temperature = 1;
  RunEveryKind(engine, request);  // what is had once
  const std::int64_t resident = ResidentBytes();
  ASSERT_GT(resident, 0);
  const Count count = CountIn([&] {
    for (int run = 0; run < 1000 && !HasFatalFailure(); ++run) RunEveryKind(engine, request);
  });
  EXPECT_GT(count.news, 1000);
  EXPECT_EQ(count.news, count.deletes);
  EXPECT_EQ(count.maps, 0);
  EXPECT_EQ(engine.free_pages(), engine.options().cache_pages);
  // Sanitizers keep freed memory for a while.
  if (!kUnderSanitizer) {
    EXPECT_LT(ResidentBytes() - resident, 1 << 20);
  }
}

}  // namespace
}  // namespace mla::testing
