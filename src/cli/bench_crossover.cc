#include "cli/bench_crossover.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "base/cpu_info.h"
#include "bench/tune.h"
#include "cli/app.h"
#include "cli/form_table.h"
#include "cli/interrupt.h"
#include "cli/load.h"
#include "cli/output.h"
#include "io/new_file.h"

namespace mla::cli {
namespace {

Result<bench::FormPlan> PlanOf(const BenchOptions& o, const MlaDims& dims, const FormTable& table) {
  bench::FormPlan plan;
  plan.dims = dims;
  plan.kv_dtype = KvDTypeOf(o);
  plan.weights = PlainWeightsOf(o);
  plan.chunk = std::min(table.chunk, std::min(o.max_rows, o.max_keys));
  plan.max_keys = o.max_keys;
  plan.layers = o.layers > 0 ? o.layers : bench::LayersFor(plan);
  return plan;
}

}  // namespace

Result<int> RunCrossover(const BenchOptions& o, const Log& log) {
  const InterruptScope interrupt;
  CrossoverReport report;
  MLA_ASSIGN_OR_RETURN(const bench::TuneShape shape, bench::TuneShapeOf(o.like.front()));
  MLA_ASSIGN_OR_RETURN(const Isa isa, UsableIsa(o, log));
  MLA_ASSIGN_OR_RETURN(report.table, ChooseFormTable(o, log));
  MLA_ASSIGN_OR_RETURN(const bench::FormPlan plan, PlanOf(o, shape.dims, report.table));
  const int threads = ThreadCount(o, log);
  const std::int64_t needed = bench::FormBench::PlannedBytes(plan, threads);
  if (const std::int64_t usable = UsableMemory(); needed > usable) {
    return Error{
        fmt::format("memory: {} are needed and {} may be used; --max-rows, --max-keys and --layers change that",
                    HumanBytes(needed), HumanBytes(usable))};
  }
  const std::unique_ptr<Executor> pool = MakePool(o, threads);
  report.machine = {DetectCpu().model, IsaName(isa), pool->workers()};
  report.shape = shape.name;
  report.dims = shape.dims;
  report.kv_dtype = o.kv_dtype;
  report.weights = plan.weights == WeightDType::kF32 ? "f32" : "bf16";
  report.layers = plan.layers;
  report.rules = bench::FormRules(report.table, shape.dims);
  report.points = bench::CrossoverGrid(o.max_rows, o.max_keys, o.quick ? 4 : 2);
  {
    MLA_ASSIGN_OR_RETURN(bench::FormBench bench, bench::FormBench::Create(plan, isa, *pool));
    ProgressLine progress(!o.json && !o.csv, "measuring point", ProgressLine::Unit::kCount);
    const auto step = [&](std::size_t i) {
      progress.Update(static_cast<std::int64_t>(i) + 1, static_cast<std::int64_t>(report.points.size()));
    };
    bench::MeasureCrossover(&bench, o.effort, step, &report.points);
  }
  if (!o.svg.empty()) MLA_RETURN_IF_ERROR(io::ReplaceFile(o.svg, CrossoverSvg(report)));
  MLA_RETURN_IF_ERROR(WriteOut(o.json ? CrossoverJson(report) : o.csv ? CrossoverCsv(report) : CrossoverText(report)));
  MLA_RETURN_IF_ERROR(FlushOut());
  return kDone;
}

}  // namespace mla::cli
