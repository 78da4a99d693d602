#include "bench/moe_bench.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "bench/random_fill.h"
#include "layers/mlp.h"
#include "layers/parts.h"
#include "ops/gemm.h"

namespace mla::bench {
namespace {

// Matrices of an MLP, without memory.
weights::Mlp Shape(const WeightFormat& format, std::int64_t hidden, std::int64_t intermediate) {
  return {intermediate, ShapeOf(format, ops::SwigluRows(intermediate), hidden), ShapeOf(format, hidden, intermediate)};
}

std::int64_t Bytes(const weights::Mlp& mlp) { return mlp.gate_up.bytes() + mlp.down.bytes(); }

void PlaceMlp(weights::Mlp* mlp, Carver* carver) {
  mlp->gate_up.data = carver->Take<std::byte>(mlp->gate_up.bytes());
  mlp->down.data = carver->Take<std::byte>(mlp->down.bytes());
}

void FillMlp(const WeightFormat& format, std::byte* source, const weights::Mlp& mlp, Executor& executor) {
  FillWeights(format, source, mlp.gate_up, executor);
  FillWeights(format, source, mlp.down, executor);
}

const WeightFormat& RouterFormat() { return WeightFormats().front(); }

}  // namespace

Work MoeWork(const contract::MoeConfig& moe, std::int64_t hidden, const WeightFormat& format, std::int64_t rows,
             std::int64_t experts, Isa isa) {
  const std::int64_t shared = moe.n_shared_experts * moe.moe_intermediate_size;
  const std::int64_t per_row = 3 * hidden * (moe.num_experts_per_tok * moe.moe_intermediate_size + shared);
  Work work;
  work.operations = 2.0 * static_cast<double>(rows) * static_cast<double>(per_row);
  work.peak = PeakFor(isa, format.format);
  work.f32_operations = 2.0 * static_cast<double>(rows) * static_cast<double>(hidden * moe.n_routed_experts);
  work.f32_peak = PeakFor(isa, ops::PackedFormat::kF32);
  std::int64_t bytes = experts * Bytes(Shape(format, hidden, moe.moe_intermediate_size));
  if (shared > 0) bytes += Bytes(Shape(format, hidden, shared));
  bytes += ShapeOf(RouterFormat(), moe.n_routed_experts, hidden).bytes();
  work.bytes = static_cast<double>(bytes);
  return work;
}

void MoeBench::Place(int workers, Carver* carver) {
  const contract::MoeConfig& m = *plan_.config.moe;
  const std::int64_t hidden = plan_.config.hidden_size;
  const std::int64_t shared = m.n_shared_experts * m.moe_intermediate_size;
  const std::int64_t begin = carver->used();
  weights_ = carver->Take<std::byte>(0);
  weights::Moe& moe = layer_.moe.emplace();
  moe.router = ShapeOf(RouterFormat(), m.n_routed_experts, hidden);
  moe.router.data = carver->Take<std::byte>(moe.router.bytes());
  moe.experts.assign(static_cast<std::size_t>(m.n_routed_experts),
                     Shape(plan_.format, hidden, m.moe_intermediate_size));
  for (weights::Mlp& expert : moe.experts) PlaceMlp(&expert, carver);
  if (shared > 0) PlaceMlp(&moe.shared.emplace(Shape(plan_.format, hidden, shared)), carver);
  weight_bytes_ = carver->used() - begin;
  other_ = carver->Take<std::byte>(plan_.working_set);
  const std::int64_t widest = ops::SwigluRows(std::max(m.moe_intermediate_size, shared));
  source_ = carver->Take<std::byte>(
      std::max({SourceBytes(RouterFormat(), m.n_routed_experts, hidden), SourceBytes(plan_.format, widest, hidden),
                SourceBytes(plan_.format, hidden, widest / 2)}));
  norm_ = carver->Take<float>(hidden);
  bias_ = carver->Take<float>(m.n_routed_experts);
  x_ = carver->Take<float>(plan_.max_rows * hidden);
  layers::StepLimits limits;
  limits.max_rows = plan_.max_rows;
  limits.workers = workers;
  layers::PlaceWorkspace(plan_.config, limits, carver, &ws_);
}

std::int64_t MoeBench::PlannedBytes(const MoePlan& plan, int workers) {
  Carver carver;
  MoeBench(plan).Place(workers, &carver);
  return carver.used();
}

void MoeBench::Fill(Executor& executor) {
  const weights::Moe& moe = *layer_.moe;
  FillWeights(RouterFormat(), source_, moe.router, executor);
  const weights::Mlp& first = moe.experts.front();
  FillMlp(plan_.format, source_, first, executor);
  for (std::size_t i = 1; i < moe.experts.size(); ++i) {
    CopyWeights(first.gate_up, moe.experts[i].gate_up.data, executor);
    CopyWeights(first.down, moe.experts[i].down.data, executor);
  }
  if (moe.shared) FillMlp(plan_.format, source_, *moe.shared, executor);
  FillNormal(reinterpret_cast<float*>(other_), plan_.working_set / 4, TensorKey(1, "other"), executor);
  FillNormal(x_, plan_.max_rows * plan_.config.hidden_size, TensorKey(1, "x"), executor);
  std::fill_n(norm_, plan_.config.hidden_size, 1.0F);
  layer_.post_attention_norm = norm_;
  layer_.moe->bias = bias_;  // zero, as memory comes
}

Result<MoeBench> MoeBench::Create(const MoePlan& plan, Executor& executor) {
  MoeBench bench(plan);
  MLA_ASSIGN_OR_RETURN(bench.buffer_, Buffer::Allocate(PlannedBytes(plan, executor.workers()), "bench moe"));
  Carver carver(bench.buffer_);
  bench.Place(executor.workers(), &carver);
  bench.Fill(executor);
  return bench;
}

std::int64_t MoeBench::DistinctExperts(std::int64_t rows) const {
  const std::int64_t chosen = rows * plan_.config.moe->num_experts_per_tok;
  return std::ssize(std::set<std::int32_t>(ws_.expert, ws_.expert + chosen));
}

void MoeBench::EmptyCaches(Probe& probe) const {
  probe.ReadSeconds({other_, static_cast<std::size_t>(plan_.working_set)});
}

CaseResult MoeBench::Run(Probe& probe, Isa isa, std::int64_t rows, const Repeats& repeats) {
  const contract::ModelConfig& config = plan_.config;
  const std::vector<std::int32_t> zeros(static_cast<std::size_t>(rows));
  layers::Batch batch;
  batch.ids = zeros;
  batch.positions = zeros;
  const layers::RouteFn route = layers::RouteByOps;
  const layers::MlpContext context{config, ops::KernelsFor(isa), route, probe.executor(), ws_};
  const auto load = [&] { std::copy_n(x_, rows * config.hidden_size, ws_.x); };  // the layer works in place

  Timed timed;
  timed.prepare = [&] {
    load();
    EmptyCaches(probe);
  };
  timed.run = [&] { layers::RunMlp(context, layer_, config.first_k_dense_replace, batch); };
  load();
  timed.run();
  CaseResult result;
  result.name = plan_.name;
  result.rows = rows;
  result.experts = DistinctExperts(rows);
  result.format = plan_.format.name;
  result.work = MoeWork(*config.moe, config.hidden_size, plan_.format, rows, result.experts, isa);
  result.working_set = plan_.working_set > 0 ? plan_.working_set : static_cast<std::int64_t>(result.work.bytes);
  timed.read = [&] {
    EmptyCaches(probe);
    const auto bytes = std::min(static_cast<std::int64_t>(result.work.bytes), weight_bytes_);
    return probe.ReadRate({weights_, static_cast<std::size_t>(bytes)});
  };
  result.measured = MeasureCase(probe, result.work, timed, repeats);
  return result;
}

}  // namespace mla::bench
