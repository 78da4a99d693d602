#include "bench/form_bench.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "bench/measure.h"
#include "bench/random_attention.h"
#include "bench/random_fill.h"
#include "bench/random_weights.h"

namespace mla::bench {
namespace {

CacheLayout LayoutOf(const FormPlan& plan) {
  return MakeLatentLayout(plan.dims.kv_lora_rank, plan.dims.qk_rope_head_dim, plan.layers, plan.kv_dtype);
}

std::int64_t PagesOf(const FormPlan& plan) { return LayoutOf(plan).PagesFor(plan.max_keys); }

}  // namespace

std::int64_t LayersFor(const FormPlan& plan) {
  constexpr std::int64_t kWanted = std::int64_t{256} << 20;
  FormPlan one = plan;
  one.layers = 1;
  const std::int64_t bytes = KvBWeights::Bytes(plan.dims, plan.weights) + LayoutOf(one).StorageBytes(PagesOf(one));
  return std::clamp<std::int64_t>((kWanted + bytes - 1) / bytes, 2, 16);
}

MlaAttention::Options FormBench::Options(Isa isa, int workers) const {
  MlaAttention::Options options;
  options.dims = plan_.dims;
  options.softmax_scale = 1 / std::sqrt(static_cast<double>(plan_.dims.qk_nope_head_dim + plan_.dims.qk_rope_head_dim));
  options.max_rows = plan_.chunk;
  options.max_keys = plan_.max_keys;
  options.workers = workers;
  options.kernels = IsaName(isa);
  return options;
}

void FormBench::Place(Carver* carver) {
  const MlaDims& d = plan_.dims;
  const std::int64_t rows = plan_.chunk * d.num_attention_heads;
  drawn_ = carver->Take<float>(KvBElements(d));
  q_ = carver->Take<float>(rows * (d.qk_nope_head_dim + d.qk_rope_head_dim));
  out_ = carver->Take<float>(rows * d.v_head_dim);
}

std::int64_t FormBench::PlannedBytes(const FormPlan& plan, int workers) {
  FormBench bench(plan, nullptr);
  Carver carver;
  bench.Place(&carver);
  return carver.used() + plan.layers * KvBWeights::Bytes(plan.dims, plan.weights) +
         LayoutOf(plan).StorageBytes(PagesOf(plan)) +
         MlaAttention::WorkspaceBytes(bench.Options(Isa::kPortable, workers));
}

Status FormBench::Fill() {
  const MlaDims& d = plan_.dims;
  FillNormal(q_, plan_.chunk * d.num_attention_heads * (d.qk_nope_head_dim + d.qk_rope_head_dim), TensorKey(1, "q"),
             *executor_);
  for (std::int64_t layer = 0; layer < plan_.layers; ++layer) {
    MLA_ASSIGN_OR_RETURN(KvBWeights packed, RandomKvB(d, plan_.weights, drawn_, *executor_));
    weights_.push_back(std::move(packed));
    FillCacheRows(cache_->Layer(layer), *executor_);
  }
  pages_.resize(static_cast<std::size_t>(PagesOf(plan_)));
  std::iota(pages_.begin(), pages_.end(), 0);
  attention_->FirstTouch(*executor_);
  return {};
}

Result<FormBench> FormBench::Create(const FormPlan& plan, Isa isa, Executor& executor) {
  FormBench bench(plan, &executor);
  Carver count;
  bench.Place(&count);
  MLA_ASSIGN_OR_RETURN(bench.buffer_, Buffer::Allocate(count.used(), "bench attention"));
  Carver carver(bench.buffer_);
  bench.Place(&carver);
  MLA_ASSIGN_OR_RETURN(LatentCache cache, LatentCache::Create(LayoutOf(plan), PagesOf(plan)));
  bench.cache_.emplace(std::move(cache));
  MLA_ASSIGN_OR_RETURN(MlaAttention attention, MlaAttention::Create(bench.Options(isa, executor.workers())));
  bench.attention_.emplace(std::move(attention));
  MLA_RETURN_IF_ERROR(bench.Fill());
  return bench;
}

double FormBench::Seconds(Form form, std::int64_t first, std::int64_t rows) {
  MLA_CHECK(first + rows <= plan_.max_keys);
  AttentionSequence sequence;
  sequence.pages = pages_;
  sequence.form = form;
  const auto begin = Clock::now();
  for (std::int64_t done = 0; done < rows; done += plan_.chunk) {
    sequence.rows = std::min(plan_.chunk, rows - done);
    sequence.keys = first + done + sequence.rows;
    attention_->Run(cache_->Layer(next_layer_), weights_[static_cast<std::size_t>(next_layer_)],
                    std::span(&sequence, 1), q_, out_, nullptr, *executor_);
    next_layer_ = (next_layer_ + 1) % plan_.layers;
  }
  return Since(begin);
}

double FormPairs::Seconds(Form form) const { return Quantile(form == Form::kMha ? mha : absorbed, 0.1); }

void AddPairs(FormBench* bench, std::int64_t first, std::int64_t rows, double seconds, std::int64_t most,
              FormPairs* pairs) {
  double spent = 0;
  const auto go_on = [&](std::int64_t done) {
    return done == 0 || (done < most && spent < (done < 3 ? 4 * seconds : seconds));
  };
  for (std::int64_t i = 0; go_on(i); ++i) {
    // Each form comes first in turn: what the other leaves behind in the caches is then shared out fairly.
    const bool mha_first = pairs->mha.size() % 2 == 0;
    const double before = bench->Seconds(mha_first ? Form::kMha : Form::kAbsorbed, first, rows);
    const double after = bench->Seconds(mha_first ? Form::kAbsorbed : Form::kMha, first, rows);
    pairs->mha.push_back(mha_first ? before : after);
    pairs->absorbed.push_back(mha_first ? after : before);
    spent += before + after;
  }
}

}  // namespace mla::bench
