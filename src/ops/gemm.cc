#include "ops/gemm.h"

#include <algorithm>

#include "base/check.h"
#include "base/parallel.h"

namespace mla::ops {

const OpKernels& KernelsFor(Isa isa) {
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
  if (isa == Isa::kAmx) return kOpsAmx;
  if (isa == Isa::kAvx512Bf16) return kOpsAvx512Bf16;
  if (isa == Isa::kAvx512) return kOpsAvx512;
  if (isa == Isa::kAvx2) return kOpsAvx2;
#endif
  MLA_CHECK(isa == Isa::kPortable);
  return kOpsPortable;
}

namespace {

// How a problem is cut: blocks of panels, then blocks of rows where panels alone give too few tasks.
struct Cut {
  std::int64_t panels_per_task = 1;
  std::int64_t rows_per_task = 1;

  std::int64_t PanelTasks(const GemmProblem& p) const {
    return (Panels(p.w.n) + panels_per_task - 1) / panels_per_task;
  }
  std::int64_t RowTasks(const GemmProblem& p) const { return (p.m + rows_per_task - 1) / rows_per_task; }
  std::int64_t Tasks(const GemmProblem& p) const { return PanelTasks(p) * RowTasks(p); }
};

constexpr std::int64_t kTasksPerWorker = 4;  // slack for workers that start late
constexpr std::int64_t kPanelGroup = 8;      // a multiple of every kernel's panel group
constexpr std::int64_t kRowBlock = 96;       // a multiple of every kernel's row block

Cut ChooseCut(std::span<const GemmProblem> problems, int workers) {
  std::int64_t panels = 0;
  std::int64_t rows = 1;
  for (const GemmProblem& p : problems) {
    MLA_DCHECK(p.swiglu == 0 || (p.w.n == SwigluRows(p.swiglu) && !p.add && p.scale == 1));
    panels += Panels(p.w.n);
    rows = std::max(rows, p.m);
  }
  Cut cut;
  const std::int64_t wanted = workers * kTasksPerWorker;
  cut.panels_per_task = std::max<std::int64_t>(1, panels / wanted);
  if (cut.panels_per_task > kPanelGroup / 2) {
    cut.panels_per_task = (cut.panels_per_task + kPanelGroup - 1) / kPanelGroup * kPanelGroup;
  }
  cut.panels_per_task = (cut.panels_per_task + 1) / 2 * 2;  // pairs of panels stay together
  cut.rows_per_task = rows;
  if (panels < wanted * kPanelGroup && rows > kRowBlock) {
    cut.panels_per_task = std::max<std::int64_t>(cut.panels_per_task, kPanelGroup);
    cut.rows_per_task = kRowBlock;
  }
  return cut;
}

void RunTask(const GemmContext& context, const GemmProblem& p, const Cut& cut, std::int64_t task, int worker) {
  const std::int64_t panel_task = task % cut.PanelTasks(p);
  const std::int64_t row_task = task / cut.PanelTasks(p);
  GemmBlock block{};
  block.x = p.x;
  block.ldx = p.ldx;
  block.x_rows = p.x_rows;
  block.y = p.y;
  block.ldy = p.ldy;
  block.y_rows = p.y_rows;
  block.panels = p.w.data;
  block.n = p.swiglu > 0 ? p.swiglu : p.w.n;
  block.k = p.w.k;
  block.row_begin = row_task * cut.rows_per_task;
  block.row_end = std::min(p.m, block.row_begin + cut.rows_per_task);
  block.panel_begin = panel_task * cut.panels_per_task;
  block.panel_end = std::min(Panels(p.w.n), block.panel_begin + cut.panels_per_task);
  block.add = p.add;
  block.scale = p.scale;
  block.swiglu = p.swiglu > 0;
  block.scratch = context.scratch + worker * kGemmScratch;
  (p.w.format == PackedFormat::kF32 ? context.kernels.gemm_f32 : context.kernels.gemm_bf16)(block);
}

}  // namespace

void Gemm(const GemmContext& context, std::span<const GemmProblem> problems) {
  const Cut cut = ChooseCut(problems, context.executor.workers());
  std::int64_t tasks = 0;
  double work = 0;
  for (const GemmProblem& p : problems) {
    tasks += cut.Tasks(p);
    work += static_cast<double>(p.m) * static_cast<double>(p.w.n) * static_cast<double>(p.w.k);
  }
  ParallelForWork(context.executor, tasks, work, [&](std::int64_t task, int worker) {
    std::size_t i = 0;
    for (; task >= cut.Tasks(problems[i]); ++i) task -= cut.Tasks(problems[i]);
    RunTask(context, problems[i], cut, task, worker);
  });
}

}  // namespace mla::ops
