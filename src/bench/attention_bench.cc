#include "bench/attention_bench.h"

#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"
#include "bench/random_attention.h"
#include "bench/random_fill.h"
#include "bench/random_weights.h"

namespace mla::bench {
namespace {

constexpr int kLayers = 1;

CacheLayout LayoutOf(const AttentionPlan& plan) {
  return MakeLatentLayout(plan.dims.kv_lora_rank, plan.dims.qk_rope_head_dim, kLayers, plan.kv_dtype);
}

std::int64_t PagesOf(const AttentionPlan& plan) {
  const CacheLayout layout = LayoutOf(plan);
  std::int64_t pages = 0;
  for (std::int64_t i = 0; i < plan.requests; ++i) pages += layout.PagesFor(plan.KeysOf(i));
  return pages;
}

std::int64_t PositionsOf(const AttentionPlan& plan) {
  std::int64_t positions = 0;
  for (std::int64_t i = 0; i < plan.requests; ++i) positions += plan.KeysOf(i);
  return positions;
}

}  // namespace

Work AttentionWork(const AttentionPlan& plan, std::int64_t rows, Isa isa) {
  const ops::PackedFormat kept = plan.kv_dtype == DType::kBF16 ? ops::PackedFormat::kBF16 : ops::PackedFormat::kF32;
  Work out;
  out.peak = PeakFor(isa, kept);
  for (std::int64_t i = 0; i < plan.requests; ++i) {
    out.operations += 2 * WorkOf(plan.form, plan.dims, rows, plan.KeysOf(i)).total();
  }
  const std::int64_t row_bytes = LayoutOf(plan).row_bytes;
  out.bytes = static_cast<double>(PositionsOf(plan) * row_bytes) + 2.0 * static_cast<double>(KvBElements(plan.dims));
  return out;
}

MlaAttention::Options AttentionBench::Options(Isa isa, int workers) const {
  MlaAttention::Options options;
  options.dims = plan_.dims;
  options.softmax_scale = 1 / std::sqrt(static_cast<double>(plan_.dims.qk_nope_head_dim + plan_.dims.qk_rope_head_dim));
  options.max_rows = plan_.requests * plan_.max_rows;
  options.max_keys = plan_.keys;
  options.workers = workers;
  options.expand_bytes = plan_.expand_bytes;
  options.kernels = IsaName(isa);
  options.profile = plan_.profile;
  return options;
}

void AttentionBench::Place(Carver* carver) {
  const MlaDims& d = plan_.dims;
  const std::int64_t rows = plan_.requests * plan_.max_rows * d.num_attention_heads;
  other_ = carver->Take<std::byte>(plan_.working_set);
  kv_b_ = carver->Take<float>(KvBElements(d));
  q_ = carver->Take<float>(rows * (d.qk_nope_head_dim + d.qk_rope_head_dim));
  out_ = carver->Take<float>(rows * d.v_head_dim);
}

std::int64_t AttentionBench::PlannedBytes(const AttentionPlan& plan, int workers) {
  AttentionBench bench(plan);
  Carver carver;
  bench.Place(&carver);
  return carver.used() + KvBWeights::Bytes(plan.dims, WeightDType::kBF16) + LayoutOf(plan).StorageBytes(PagesOf(plan)) +
         MlaAttention::WorkspaceBytes(bench.Options(Isa::kPortable, workers));
}

Result<AttentionBench> AttentionBench::Create(const AttentionPlan& plan, Executor& executor) {
  AttentionBench bench(plan);
  Carver count;
  bench.Place(&count);
  MLA_ASSIGN_OR_RETURN(bench.buffer_, Buffer::Allocate(count.used(), "bench attention"));
  Carver carver(bench.buffer_);
  bench.Place(&carver);
  const MlaDims& d = plan.dims;
  FillNormal(reinterpret_cast<float*>(bench.other_), plan.working_set / 4, TensorKey(1, "other"), executor);
  FillNormal(bench.q_,
             plan.requests * plan.max_rows * d.num_attention_heads * (d.qk_nope_head_dim + d.qk_rope_head_dim),
             TensorKey(1, "q"), executor);
  MLA_ASSIGN_OR_RETURN(KvBWeights packed, RandomKvB(d, WeightDType::kBF16, bench.kv_b_, executor));
  bench.weights_.emplace(std::move(packed));
  MLA_ASSIGN_OR_RETURN(LatentCache cache, LatentCache::Create(LayoutOf(plan), PagesOf(plan)));
  bench.cache_.emplace(std::move(cache));
  FillCacheRows(bench.cache_->Layer(0), executor);
  bench.pages_.resize(static_cast<std::size_t>(PagesOf(plan)));
  std::iota(bench.pages_.begin(), bench.pages_.end(), 0);
  return bench;
}

std::vector<AttentionSequence> AttentionBench::Sequences(std::int64_t rows) const {
  const CacheLayout layout = LayoutOf(plan_);
  std::span<const std::int32_t> left = pages_;
  std::vector<AttentionSequence> sequences;
  for (std::int64_t i = 0; i < plan_.requests; ++i) {
    AttentionSequence s;
    s.keys = plan_.KeysOf(i);
    const auto pages = static_cast<std::size_t>(layout.PagesFor(s.keys));
    s.pages = left.first(pages);
    left = left.subspan(pages);
    s.first_row = i * rows;
    s.rows = rows;
    s.form = plan_.form;
    sequences.push_back(s);
  }
  return sequences;
}

CaseResult AttentionBench::Run(Probe& probe, Isa isa, std::int64_t rows, const Repeats& repeats) {
  Result<MlaAttention> attention = MlaAttention::Create(Options(isa, probe.executor().workers()));
  MLA_CHECK(attention.ok());
  attention->FirstTouch(probe.executor());
  const std::vector<AttentionSequence> sequences = Sequences(rows);
  const CacheLayerView layer = cache_->Layer(0);
  CaseResult result;
  result.name = plan_.name;
  result.rows = rows;
  result.keys = plan_.mixed_keys.empty() ? plan_.keys : 0;
  result.positions = PositionsOf(plan_);
  result.requests = plan_.requests;
  result.format = plan_.kv_dtype == DType::kBF16 ? "bf16" : "f32";
  result.work = AttentionWork(plan_, rows, isa);
  result.working_set = plan_.working_set > 0 ? plan_.working_set : static_cast<std::int64_t>(result.work.bytes);
  const auto empty_caches = [&] { probe.ReadSeconds({other_, static_cast<std::size_t>(plan_.working_set)}); };
  Timed timed;
  timed.prepare = empty_caches;
  std::vector<AttentionProfile> runs;
  timed.run = [&] {
    attention->Run(layer, *weights_, sequences, q_, out_, nullptr, probe.executor());
    if (!plan_.profile) return;
    runs.push_back(attention->profile());
    attention->ResetProfile();
  };
  // Of rows or of kv_b_proj before it was packed, whichever is larger: a few hundred KiB say little about memory.
  const std::span<const std::byte> rows_read(
      layer.data, static_cast<std::size_t>(layer.pages * layer.page_tokens * layer.row_bytes));
  const std::span<const std::byte> weights_read =
      std::as_bytes(std::span(kv_b_, static_cast<std::size_t>(KvBElements(plan_.dims))));
  const std::span<const std::byte> larger = rows_read.size() > weights_read.size() ? rows_read : weights_read;
  timed.read = [&] {
    empty_caches();
    return probe.ReadRate(larger);
  };
  result.measured = MeasureCase(probe, result.work, timed, repeats);
  if (!plan_.profile) return result;
  const std::span<const AttentionProfile> timed_runs = std::span(std::as_const(runs)).subspan(1);  // one to warm up
  result.profile = SummariseAttention(plan_.dims, timed_runs, probe.executor().workers());
  return result;
}

}  // namespace mla::bench
