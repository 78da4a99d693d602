// MLA's attention over its paged latent cache, inside a program that brings weights, queries and threads of its own.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "mla/attention.h"
#include "mla/cache.h"
#include "mla/executor.h"

namespace {

// The least that an executor can be: new threads for every region. A runtime would put its own pool here.
class ThreadExecutor final : public mla::Executor {
 public:
  explicit ThreadExecutor(int workers) : workers_(workers) {}
  int workers() const override { return workers_; }
  void Run(std::int64_t tasks, TaskFn fn, void* context) override {
    std::atomic<std::int64_t> next{0};
    const auto work = [&](int worker) {
      for (std::int64_t task = next++; task < tasks; task = next++) fn(context, task, worker);
    };
    std::vector<std::thread> threads;
    for (int worker = 1; worker < workers_; ++worker) threads.emplace_back(work, worker);
    work(0);
    for (std::thread& thread : threads) thread.join();
  }

 private:
  int workers_;
};

std::vector<float> Random(std::int64_t count, float scale, std::mt19937& rng) {
  std::uniform_real_distribution<float> uniform(-scale, scale);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = uniform(rng);
  return values;
}

template <class T>
T OrExit(mla::Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::exit(1);
}

}  // namespace

int main() {
  const mla::MlaDims dims{.num_attention_heads = 16,
                          .qk_nope_head_dim = 128,
                          .qk_rope_head_dim = 64,
                          .v_head_dim = 128,
                          .kv_lora_rank = 512};
  const std::int64_t rows = 8;    // new tokens
  const std::int64_t keys = 200;  // all tokens, the new ones included
  std::mt19937 rng(1);
  ThreadExecutor executor(2);

  // One layer's kv_b_proj [H (N + V), R], packed. Kept in bf16 it would be half as large; the kernels avx512bf16 and
  // amx would then round what meets it to bf16 as well, and the two forms would differ by some 2^-8 of their results.
  const std::vector<float> kv_b = Random(16 * 256 * 512, 0.05F, rng);
  const mla::KvBWeights weights = OrExit(mla::KvBWeights::Pack(
      dims, mla::DType::kF32, reinterpret_cast<const std::byte*>(kv_b.data()), mla::WeightDType::kF32, executor));

  // A cache of one layer; the sequence takes its pages from a pool. Rows: the normed latent, then the rotated k_pe.
  const mla::CacheLayout layout = mla::MakeLatentLayout(512, 64, 1, mla::DType::kBF16);
  mla::PagePool pool(layout.PagesFor(keys));
  const mla::LatentCache cache = OrExit(mla::LatentCache::Create(layout, pool.pages()));
  std::vector<std::int32_t> pages;
  while (pool.free_pages() > 0) pages.push_back(pool.Take());

  mla::RopeSpec rope;
  rope.dim = dims.qk_rope_head_dim;
  const mla::RopeTable table = OrExit(mla::RopeTable::Create(rope, keys));
  for (std::int64_t position = 0; position < keys; ++position) {
    const std::vector<float> latent = Random(512, 1, rng);
    std::vector<float> k_pe = Random(64, 1, rng);
    table.Rotate(k_pe.data(), position);
    const std::int64_t page = pages[static_cast<std::size_t>(position / layout.page_tokens)];
    mla::WriteCacheRow(cache.Layer(0), page * layout.page_tokens + position % layout.page_tokens, latent.data(),
                       k_pe.data());
  }

  mla::MlaAttention::Options options;
  options.dims = dims;
  options.softmax_scale = 1 / std::sqrt(192.0);
  options.max_rows = rows;
  options.max_keys = keys;
  options.workers = executor.workers();
  mla::MlaAttention attention = OrExit(mla::MlaAttention::Create(options));

  std::vector<float> q = Random(rows * 16 * 192, 1, rng);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t head = 0; head < 16; ++head) {
      table.Rotate(q.data() + (row * 16 + head) * 192 + 128, keys - rows + row);
    }
  }
  std::vector<float> out[2];
  std::vector<float> lse(static_cast<std::size_t>(rows * 16));
  for (const mla::Form form : {mla::Form::kMha, mla::Form::kAbsorbed}) {
    std::vector<float>& o = out[static_cast<std::size_t>(form)];
    o.resize(static_cast<std::size_t>(rows * 16 * 128));
    const mla::AttentionSequence sequence{.pages = pages, .first_row = 0, .rows = rows, .keys = keys, .form = form};
    attention.Run(cache.Layer(0), weights, {&sequence, 1}, q.data(), o.data(), lse.data(), executor);
  }
  float largest = 0;
  float difference = 0;
  for (std::size_t i = 0; i < out[0].size(); ++i) {
    largest = std::max(largest, std::fabs(out[0][i]));
    difference = std::max(difference, std::fabs(out[0][i] - out[1][i]));
  }

  std::printf("kernels                %s\n", attention.kernels());
  std::printf("weights                %lld bytes\n", static_cast<long long>(weights.bytes()));
  std::printf("cache                  %lld bytes, %lld a token\n", static_cast<long long>(cache.bytes()),
              static_cast<long long>(layout.bytes_per_token()));
  std::printf("workspace              %lld bytes\n", static_cast<long long>(attention.bytes()));
  std::printf("largest output         %g\n", static_cast<double>(largest));
  std::printf("mha against absorbed   %g at most\n", static_cast<double>(difference));
  // Both sum the same products in fp32, in other orders: some 1,000 roundings of 6e-8, mostly cancelling. These two
  // sets of kernels round to bf16 what they multiply with a bf16 cache, by 2^-9 on average, and in each form something
  // else.
  const std::string_view kernels = attention.kernels();
  const bool bf16 = kernels == "amx" || kernels == "avx512bf16";
  return largest > 0 && difference < (bf16 ? 0x1p-6F : 1e-4F) * largest ? 0 : 1;
}
