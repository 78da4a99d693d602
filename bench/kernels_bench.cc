// Products and attention at published models' shapes, on random data, one and two threads. Prints GFLOP/s from the
// shape's multiply-adds and GB/s from the bytes that it must read; BM_Fma and BM_Read are the limits beside them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/buffer.h"
#include "base/cpu_info.h"
#include "mla/attention.h"
#include "ops/gemm.h"

namespace {

using mla::ops::PackedFormat;

std::vector<float> Random(std::int64_t n, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> out(static_cast<std::size_t>(n));
  for (float& x : out) x = uniform(rng);
  return out;
}

void Rates(benchmark::State& state, double flops, double bytes) {
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

// The fp32 limit as the product kernel reaches it: everything in the nearest caches.
void BM_Fma(benchmark::State& state) {
  const auto pool = mla::MakeThreadPool(1);
  const std::int64_t m = 96;
  const std::int64_t n = 64;
  const std::int64_t k = 256;
  const auto x = Random(m * k, 1);
  std::vector<float> y(static_cast<std::size_t>(m * n));
  mla::Buffer buffer = std::move(mla::Buffer::Allocate(mla::ops::PackedBytes(PackedFormat::kF32, n, k), "w")).value();
  const mla::ops::PackedMatrix w{PackedFormat::kF32, n, k, buffer.data()};
  const auto source = Random(n * k, 2);
  mla::ops::PackPanels({mla::DType::kF32, reinterpret_cast<const std::byte*>(source.data()), k, 1}, 0, n, w, 0,
                       mla::ops::Panels(n));
  const auto& kernels = mla::ops::KernelsFor(mla::DetectCpu().best());
  mla::Buffer scratch = std::move(mla::Buffer::Allocate(pool->workers() * mla::ops::kGemmScratch, "scratch")).value();
  for (auto _ : state) {
    for (int i = 0; i < 64; ++i)
      mla::ops::Gemm({*pool, kernels, {scratch.data()}}, mla::ops::GemmProblem{x.data(), k, y.data(), n, m, w});
    benchmark::DoNotOptimize(y.data());
  }
  Rates(state, 64.0 * 2 * m * n * k, 0);
}
BENCHMARK(BM_Fma);

// The read limit: a buffer far past the caches, by both threads.
void BM_Read(benchmark::State& state) {
  const auto pool = mla::MakeThreadPool(static_cast<int>(state.range(0)));
  const std::int64_t n = std::int64_t{256} << 20;
  mla::Buffer data = std::move(mla::Buffer::Allocate(n, "read")).value();  // huge pages, as weights have them
  std::fill_n(data.data(), n, std::byte{3});
  std::vector<std::uint64_t> sums(1024);
  for (auto _ : state) {
    mla::ParallelFor(*pool, 64, [&](std::int64_t task, int /*worker*/) {
      const auto* p = reinterpret_cast<const std::uint64_t*>(data.data()) + task * (n / 8 / 64);
      std::uint64_t sum[8] = {};
      for (std::int64_t i = 0; i < n / 8 / 64; i += 8) {
        for (int j = 0; j < 8; ++j) sum[j] += p[i + j];
      }
      for (const std::uint64_t s : sum) sums[static_cast<std::size_t>(task)] += s;
    });
    benchmark::DoNotOptimize(sums.data());
  }
  Rates(state, 0, static_cast<double>(n));
}
BENCHMARK(BM_Read)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

// y [m, n] = x [m, k] W^T; arguments m, n, k, bf16, threads.
void BM_Gemm(benchmark::State& state) {
  const std::int64_t m = state.range(0);
  const std::int64_t n = state.range(1);
  const std::int64_t k = state.range(2);
  const PackedFormat format = state.range(3) != 0 ? PackedFormat::kBF16 : PackedFormat::kF32;
  const auto pool = mla::MakeThreadPool(static_cast<int>(state.range(4)));
  const auto x = Random(m * k, 1);
  const auto source = Random(n * k, 2);
  std::vector<float> y(static_cast<std::size_t>(m * n));
  mla::Buffer buffer = std::move(mla::Buffer::Allocate(mla::ops::PackedBytes(format, n, k), "w")).value();
  const mla::ops::PackedMatrix w{format, n, k, buffer.data()};
  mla::ops::PackPanels({mla::DType::kF32, reinterpret_cast<const std::byte*>(source.data()), k, 1}, 0, n, w, 0,
                       mla::ops::Panels(n));
  const auto& kernels = mla::ops::KernelsFor(mla::DetectCpu().best());
  mla::Buffer scratch = std::move(mla::Buffer::Allocate(pool->workers() * mla::ops::kGemmScratch, "scratch")).value();
  for (auto _ : state) {
    mla::ops::Gemm({*pool, kernels, {scratch.data()}}, mla::ops::GemmProblem{x.data(), k, y.data(), n, m, w});
    benchmark::DoNotOptimize(y.data());
  }
  Rates(state, 2.0 * static_cast<double>(m * n * k), static_cast<double>(w.bytes()));
}
BENCHMARK(BM_Gemm)
    ->ArgNames({"m", "n", "k", "bf16", "threads"})
    ->Args({1, 7168, 16384, 1, 2})
    ->Args({1, 2112, 7168, 1, 2})
    ->Args({8, 2112, 7168, 1, 2})
    ->Args({512, 2112, 7168, 1, 1})
    ->Args({512, 2112, 7168, 0, 1})
    ->Args({512, 2112, 7168, 1, 2})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// One layer's attention at DeepSeek-V3's dims; arguments heads, rows T, keys S, mha, threads.
void BM_Attention(benchmark::State& state) {
  const mla::MlaDims dims{state.range(0), 128, 64, 128, 512};
  const std::int64_t rows = state.range(1);
  const std::int64_t keys = state.range(2);
  const mla::Form form = state.range(3) != 0 ? mla::Form::kMha : mla::Form::kAbsorbed;
  const int threads = static_cast<int>(state.range(4));
  const auto pool = mla::MakeThreadPool(threads);
  const std::int64_t kv_rows = dims.num_attention_heads * 256;
  const auto source = Random(kv_rows * 512, 1);
  const mla::KvBWeights weights =
      std::move(mla::KvBWeights::Pack(dims, mla::DType::kF32, reinterpret_cast<const std::byte*>(source.data()),
                                      mla::WeightDType::kBF16, *pool))
          .value();
  const auto layout = mla::MakeLatentLayout(512, 64, 1, mla::DType::kBF16);
  const mla::LatentCache cache = std::move(mla::LatentCache::Create(layout, layout.PagesFor(keys))).value();
  const auto row = Random(576, 2);
  std::vector<std::int32_t> pages;
  for (std::int64_t p = 0; p < layout.PagesFor(keys); ++p) pages.push_back(static_cast<std::int32_t>(p));
  for (std::int64_t s = 0; s < keys; ++s) {
    const auto values = Random(576, static_cast<std::uint64_t>(s + 10));
    mla::WriteCacheRow(cache.Layer(0), s, values.data(), values.data() + 512);
  }
  mla::MlaAttention::Options options;
  options.dims = dims;
  options.softmax_scale = 0.05;
  options.max_rows = rows;
  options.max_keys = keys;
  options.workers = threads;
  mla::MlaAttention attention = std::move(mla::MlaAttention::Create(options)).value();
  const auto q = Random(rows * dims.num_attention_heads * 192, 3);
  std::vector<float> out(static_cast<std::size_t>(rows * dims.num_attention_heads * 128));
  mla::AttentionSequence sequence;
  sequence.pages = pages;
  sequence.rows = rows;
  sequence.keys = keys;
  sequence.form = form;
  for (auto _ : state) {
    attention.Run(cache.Layer(0), weights, {&sequence, 1}, q.data(), out.data(), nullptr, *pool);
    benchmark::DoNotOptimize(out.data());
  }
  const mla::FormWork work = mla::WorkOf(form, dims, rows, keys);
  Rates(state, 2 * (work.projection + work.attention), static_cast<double>(keys * layout.row_bytes));
}
BENCHMARK(BM_Attention)
    ->ArgNames({"heads", "T", "S", "mha", "threads"})
    ->Args({128, 1, 8192, 0, 1})
    ->Args({128, 1, 8192, 0, 2})
    ->Args({16, 1, 8192, 0, 2})
    ->Args({16, 512, 512, 1, 2})
    ->Args({16, 512, 512, 0, 2})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
