#include "bench/gemm_bench.h"

#include <algorithm>
#include <utility>

#include "bench/random_fill.h"

namespace mla::bench {
namespace {

// Between copies: each begins at a cache line.
std::int64_t Stride(const ops::PackedMatrix& w) { return (w.bytes() + 63) / 64 * 64; }

constexpr double kLeastReadSeconds = 8e-3;  // of a measurement of the read rate; one copy at least

}  // namespace

std::int64_t GemmPlan::copies() const {
  const std::int64_t bytes = ShapeOf(format, shape.n, shape.k).bytes();
  return std::max<std::int64_t>(1, (working_set + bytes - 1) / bytes);
}

Work GemmWork(const WeightShape& shape, const WeightFormat& format, std::int64_t rows, Isa isa) {
  Work work;
  work.operations = 2.0 * static_cast<double>(rows) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  work.peak = PeakFor(isa, format.format);
  work.bytes = static_cast<double>(ShapeOf(format, shape.n, shape.k).bytes());
  return work;
}

void GemmBench::Place(int workers, Carver* carver) {
  const WeightShape& s = plan_.shape;
  first_ = ShapeOf(plan_.format, s.n, s.k);
  first_.data = carver->Take<std::byte>(Stride(first_) * plan_.copies());
  source_ = carver->Take<std::byte>(SourceBytes(plan_.format, s.n, s.k));
  x_ = carver->Take<float>(plan_.max_rows * s.k);
  y_ = carver->Take<float>(plan_.max_rows * s.n);
  gemm_ = ops::GemmMemory::Place(workers, ops::PackedInputBytes(plan_.max_rows, s.k), carver);
}

std::int64_t GemmBench::PlannedBytes(const GemmPlan& plan, int workers) {
  Carver carver;
  GemmBench(plan).Place(workers, &carver);
  return carver.used();
}

Result<GemmBench> GemmBench::Create(const GemmPlan& plan, Executor& executor) {
  GemmBench bench(plan);
  MLA_ASSIGN_OR_RETURN(bench.buffer_, Buffer::Allocate(PlannedBytes(plan, executor.workers()), "bench gemm"));
  Carver carver(bench.buffer_);
  bench.Place(executor.workers(), &carver);
  FillWeights(plan.format, bench.source_, bench.first_, executor);
  for (std::int64_t i = 1; i < plan.copies(); ++i) {
    CopyWeights(bench.first_, bench.first_.data + i * Stride(bench.first_), executor);
  }
  FillNormal(bench.x_, plan.max_rows * plan.shape.k, TensorKey(1, "x"), executor);
  return bench;
}

ops::PackedMatrix GemmBench::NextCopy() {
  ops::PackedMatrix w = first_;
  w.data += copy_ * Stride(first_);
  copy_ = (copy_ + 1) % plan_.copies();
  return w;
}

// Goes on where the products are in their round over the copies, so that it finds what they find.
double GemmBench::ReadRate(Probe& probe) {
  double bytes = 0;
  double seconds = 0;
  while (seconds < kLeastReadSeconds) {
    const ops::PackedMatrix w = NextCopy();
    seconds += probe.ReadSeconds({w.data, static_cast<std::size_t>(w.bytes())});
    bytes += static_cast<double>(w.bytes());
  }
  return bytes / seconds;
}

CaseResult GemmBench::Run(Probe& probe, Isa isa, std::int64_t rows, const Repeats& repeats) {
  CaseResult result;
  result.name = plan_.shape.name;
  result.rows = rows;
  result.n = plan_.shape.n;
  result.k = plan_.shape.k;
  result.format = plan_.format.name;
  result.working_set = plan_.copies() * Stride(first_);
  result.work = GemmWork(plan_.shape, plan_.format, rows, isa);
  const ops::GemmContext context{probe.executor(), ops::KernelsFor(isa), gemm_};
  Timed timed;
  timed.run = [&] { ops::Gemm(context, ops::GemmProblem{x_, plan_.shape.k, y_, plan_.shape.n, rows, NextCopy()}); };
  timed.read = [&] { return ReadRate(probe); };
  result.measured = MeasureCase(probe, result.work, timed, repeats);
  return result;
}

}  // namespace mla::bench
