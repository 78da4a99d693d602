// A step allocates nothing, and planned bytes are allocated bytes.
#include <atomic>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "attention/harness.h"
#include "base/buffer.h"
#include "ops/gemm.h"

namespace {

std::atomic<std::int64_t> allocations{0};

void* Counted(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* p = std::malloc(size == 0 ? 1 : size);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

void* CountedAligned(std::size_t size, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* p = nullptr;
  if (posix_memalign(&p, static_cast<std::size_t>(alignment), size == 0 ? 1 : size) != 0) throw std::bad_alloc();
  return p;
}

}  // namespace

void* operator new(std::size_t size) { return Counted(size); }
void* operator new[](std::size_t size) { return Counted(size); }
void* operator new(std::size_t size, std::align_val_t alignment) { return CountedAligned(size, alignment); }
void* operator new[](std::size_t size, std::align_val_t alignment) { return CountedAligned(size, alignment); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace mla::testing {
namespace {

// Allocations while f runs.
template <class F>
std::int64_t AllocationsIn(F&& f) {
  const std::int64_t before = allocations.load();
  f();
  return allocations.load() - before;
}

TEST(Allocation, TheCounterCounts) {
  EXPECT_GT(AllocationsIn([] {
              std::vector<int> some(100);
              some[0] = 1;
              ASSERT_EQ(some[0], 1);
            }),
            0);
}

TEST(Allocation, RunAllocatesNothing) {
  const MlaDims dims{5, 9, 4, 7, 18};
  std::mt19937_64 rng(41);
  const TestWeights weights = RandomWeights(dims, WeightDType::kBF16, rng);
  const std::unique_ptr<Executor> pool = MakeThreadPool(2);
  Result<KvBWeights> packed = KvBWeights::Pack(
      dims, DType::kF32, reinterpret_cast<const std::byte*>(weights.raw.data()), WeightDType::kBF16, *pool);
  Result<LatentCache> cache = LatentCache::Create(MakeLatentLayout(18, 4, 1, DType::kBF16), 20);
  PoisonPages(*cache);
  std::vector<std::int32_t> pages(20);
  for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<std::int32_t>(i);
  const std::vector<float> row = RandomFloats(22, rng);
  for (std::int64_t slot = 0; slot < 1280; ++slot) WriteCacheRow(cache->Layer(0), slot, row.data(), row.data() + 18);
  pages.resize(24, kNoPage);
  std::vector<std::pair<std::string, bool>> runs;
  for (const std::string& kernels : KernelTables()) {
    for (const bool profile : {false, true}) runs.emplace_back(kernels, profile);
  }
  for (const auto& [kernels, profile] : runs) {
    MlaAttention::Options options = OptionsFor(dims, 100, 1280);
    options.profile = profile;
    options.workers = 2;
    options.kernels = kernels;
    options.expand_bytes = 1 << 18;  // short sequences at once, long ones in pieces
    options.keep_bytes = 2 * MlaAttention::KeptSegmentBytes(dims);
    Result<MlaAttention> attention = MlaAttention::Create(options);
    ASSERT_TRUE(attention.ok());
    const std::vector<AttentionSequence> sequences = {{pages, 0, 1, 1280, Form::kAbsorbed},
                                                      {pages, 1, 40, 1100, Form::kAbsorbed},
                                                      {pages, 41, 30, 1280, Form::kMha},
                                                      {pages, 71, 20, 20, Form::kMha},
                                                      {pages, 91, 5, 1200, Form::kMha, 7, true}};
    const std::vector<float> q = RandomFloats(100 * 5 * 13, rng);
    std::vector<float> out(100 * 5 * 7);
    std::vector<float> lse(100 * 5);
    EXPECT_EQ(AllocationsIn([&] {
                attention->Run(cache->Layer(0), *packed, sequences, q.data(), out.data(), lse.data(), *pool);
              }),
              0)
        << kernels << (profile ? ", profiled" : "");
    EXPECT_EQ(attention->counters().mha_in_pieces, 1);
    EXPECT_EQ(attention->counters().mha_one_shot, 2);
    EXPECT_EQ(AllocationsIn([&] {
                attention->Run(cache->Layer(0), *packed, sequences, q.data(), out.data(), lse.data(), *pool);
                attention->Forget(7);
              }),
              0)
        << kernels;
    EXPECT_EQ(attention->counters().keys_kept, 1195 / 64 * 64);
  }
}

TEST(Allocation, GemmAllocatesNothing) {
  std::mt19937_64 rng(42);
  const std::vector<float> w = RandomFloats(100 * 70, rng);
  std::vector<std::byte> storage(static_cast<std::size_t>(ops::PackedBytes(ops::PackedFormat::kF32, 100, 70)) + 64);
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(storage.data()) + 63) / 64 * 64);
  const ops::PackedMatrix packed{ops::PackedFormat::kF32, 100, 70, aligned};
  ops::PackPanels({DType::kF32, reinterpret_cast<const std::byte*>(w.data()), 70, 1}, 0, 100, packed, 0,
                  ops::Panels(100));
  const std::vector<float> x = RandomFloats(300 * 70, rng);
  std::vector<float> y(300 * 100);
  const std::unique_ptr<Executor> pool = MakeThreadPool(2);
  const ops::OpKernels& kernels = ops::KernelsFor(DetectCpu().best());
  Buffer scratch = std::move(Buffer::Allocate(pool->workers() * ops::kGemmScratch, "scratch")).value();
  for (const std::int64_t m : {1, 5, 300}) {
    ops::GemmProblem problem;
    problem.x = x.data();
    problem.ldx = 70;
    problem.y = y.data();
    problem.ldy = 100;
    problem.m = m;
    problem.w = packed;
    EXPECT_EQ(AllocationsIn([&] { ops::Gemm({*pool, kernels, {scratch.data()}}, problem); }), 0) << m;
  }
}

TEST(Allocation, PlannedBytesAreAllocatedBytes) {
  for (const MlaDims& dims : {MlaDims{1, 1, 0, 1, 1}, MlaDims{3, 7, 6, 13, 33}, MlaDims{128, 128, 64, 128, 512}}) {
    for (const std::int64_t rows : {1, 64, 500}) {
      for (const std::int64_t keys : {1, 1023, 1025, 10000}) {
        for (const std::int64_t expand : {0, 1 << 20, 1 << 26}) {
          for (const std::int64_t keep : {0, 1, 3 << 20}) {
            MlaAttention::Options options = OptionsFor(dims, rows, keys);
            options.expand_bytes = expand;
            options.keep_bytes = keep;
            options.workers = 3;
            const Result<MlaAttention> attention = MlaAttention::Create(options);
            ASSERT_TRUE(attention.ok());
            EXPECT_EQ(attention->bytes(), MlaAttention::WorkspaceBytes(options));
          }
        }
      }
    }
  }
}

// The expansion's share of the workspace is bounded by what was asked for (or by one head's segment), however long the
// context is.
TEST(Allocation, ExpansionIsBounded) {
  const MlaDims dims{128, 128, 64, 128, 512};
  MlaAttention::Options options = OptionsFor(dims, 64, 16384);
  options.expand_bytes = 0;
  const std::int64_t least = MlaAttention::WorkspaceBytes(options);
  options.expand_bytes = std::int64_t{256} << 20;
  const std::int64_t more = MlaAttention::WorkspaceBytes(options);
  EXPECT_GT(more - least, std::int64_t{250} << 20);
  // Beside the 256 MiB, the latents and k_pe of the 4,096 keys that they hold in bf16 (in fp32, of half as many).
  EXPECT_LT(more - least, (std::int64_t{256} << 20) + 4096 * ((512 + 64) * 4 + 512 * 2 + 64 * 2));
  options.expand_bytes = std::int64_t{1} << 50;
  // Never more than the longest sequence needs: K and V of all heads, its latents and k_pe, latents packed in
  // bf16, and k_pe in bf16.
  EXPECT_LE(MlaAttention::WorkspaceBytes(options) - least,
            std::int64_t{16384} * ((128 * 256 + 512 + 64) * 4 + 512 * 2 + 64 * 2));
}

// What is kept takes what was asked for, in whole segments and with a line of a table for each, or nothing.
TEST(Allocation, KeptSegmentsAreBounded) {
  const MlaDims dims{128, 128, 64, 128, 512};
  MlaAttention::Options options = OptionsFor(dims, 64, 16384);
  const std::int64_t without = MlaAttention::WorkspaceBytes(options);
  const std::int64_t segment = MlaAttention::KeptSegmentBytes(dims);
  EXPECT_EQ(segment, std::int64_t{1024} * 4 * (128 * 256 + 64));
  options.keep_bytes = segment - 1;
  EXPECT_EQ(MlaAttention::WorkspaceBytes(options), without);
  options.keep_bytes = std::int64_t{4} << 30;
  const std::int64_t with = MlaAttention::WorkspaceBytes(options);
  EXPECT_LE(with - without, (std::int64_t{4} << 30) + 64 * 128);
  EXPECT_GT(with - without, (std::int64_t{4} << 30) - segment);
}

}  // namespace
}  // namespace mla::testing
