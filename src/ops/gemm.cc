#include "ops/gemm.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/clock.h"
#include "base/parallel.h"
#include "ops/placement.h"

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

constexpr std::int64_t kTasksPerWorker = 4;  // slack for workers that start late
// Of many problems, a layer's experts: no worker is left alone with a large one, and each is a task or more anyway.
constexpr std::int64_t kTasksOfMany = 16;
constexpr std::size_t kManyProblems = 8;
constexpr std::int64_t kPanelGroup = 8;  // a multiple of every kernel's panel group
// Rows from which arithmetic outweighs the reading of weights, roughly: 9 with fp32 products, 64 on AMX here.
constexpr std::int64_t kBusyRows = 16;

// Time that a panel of a problem takes, in bytes of weights.
double PanelCost(const GemmProblem& p) {
  return static_cast<double>(p.w.panel_bytes()) * static_cast<double>(std::max(p.m, kBusyRows)) /
         static_cast<double>(kBusyRows);
}

// The panels of a matrix that lie near one node's workers: all, where there is one node.
struct PanelRange {
  std::int64_t begin;
  std::int64_t end;
};

PanelRange PartOf(const NodeShares& shares, const GemmProblem& p, int node) {
  return {FirstPanelOf(shares, p.w.n, node), FirstPanelOf(shares, p.w.n, node + 1)};
}

// How problems are cut into tasks of like cost: by panels, then by rows where panels alone give too few tasks.
struct Cut {
  double task_cost = 1;
  std::int64_t task_rows = 1;  // of a block of rows

  // Panels of a task, before they are made whole.
  double Ideal(const GemmProblem& p) const {
    return std::min(static_cast<double>(Panels(p.w.n)), task_cost / PanelCost(p));
  }
  // Tasks begin at multiples of so many panels.
  std::int64_t Grain(const GemmProblem& p) const {
    const auto panels = static_cast<std::int64_t>(Ideal(p));
    if (panels > kPanelGroup / 2 || SplitsRows(p)) return kPanelGroup;
    const std::int64_t few = std::max<std::int64_t>(1, panels);
    return p.swiglu > 0 ? (few + 1) / 2 * 2 : few;  // pairs of panels stay together
  }
  bool SplitsRows(const GemmProblem& p) const {
    return p.m > task_rows && task_cost < PanelCost(p) * static_cast<double>(kPanelGroup);
  }
  std::int64_t TaskRows(const GemmProblem& p) const { return SplitsRows(p) ? task_rows : p.m; }
  std::int64_t Grains(const GemmProblem& p, const PanelRange& part) const {
    return (part.end - part.begin + Grain(p) - 1) / Grain(p);
  }
  std::int64_t PanelTasks(const GemmProblem& p, const PanelRange& part) const {
    const std::int64_t grains = Grains(p, part);
    if (Grain(p) < kPanelGroup || SplitsRows(p) || grains == 0) return grains;
    const std::int64_t tasks = std::llround(static_cast<double>(part.end - part.begin) / Ideal(p));
    return std::clamp<std::int64_t>(tasks, 1, grains);
  }
  // The panels of task `task` of PanelTasks, `tasks`: as many as any other's, but for a grain that the first ones have
  // more.
  PanelRange TaskPanels(const GemmProblem& p, const PanelRange& part, std::int64_t tasks, std::int64_t task) const {
    const auto begin = [&](std::int64_t i) {
      return std::min(part.end, part.begin + (Grains(p, part) * i + tasks - 1) / tasks * Grain(p));
    };
    return {begin(task), begin(task + 1)};
  }
  std::int64_t Tasks(const GemmProblem& p, const PanelRange& part) const {
    return p.m == 0 ? 0 : (p.m + TaskRows(p) - 1) / TaskRows(p) * PanelTasks(p, part);
  }
};

// Tasks of one problem after another. A layer's experts or heads are many of one shape, and every task looks for its
// problem: without remembering the count, a step of 128 heads spent a tenth of a millisecond so.
class TaskCounter {
 public:
  TaskCounter(const Cut& cut, const NodeShares& shares, int node) : cut_(cut), shares_(shares), node_(node) {}
  std::int64_t operator()(const GemmProblem& p) {
    if (last_ == nullptr || !SameShape(*last_, p)) count_ = cut_.Tasks(p, PartOf(shares_, p, node_));
    last_ = &p;
    return count_;
  }

 private:
  static bool SameShape(const GemmProblem& a, const GemmProblem& b) {
    return a.m == b.m && a.swiglu == b.swiglu && a.w.n == b.w.n && a.w.k == b.w.k && a.w.format == b.w.format &&
           a.w.scale_block == b.w.scale_block;
  }

  const Cut& cut_;
  const NodeShares& shares_;
  int node_;
  const GemmProblem* last_ = nullptr;
  std::int64_t count_ = 0;
};

// Walks a region's problems in order, and knows where the packed input of each is.
class Walk {
 public:
  Walk(const GemmContext& context, std::span<const GemmProblem> problems) : context_(context), problems_(problems) {
    Place();
  }
  const GemmProblem& problem() const { return problems_[at_]; }
  std::byte* packed() const { return packed_; }
  // Whether this problem's input is the one before's.
  bool shared() const { return shared_; }
  bool done() const { return at_ >= problems_.size(); }
  void Next() {
    ++at_;
    Place();
  }

 private:
  void Place() {
    if (done()) return;
    const GemmProblem& p = problem();
    shared_ = at_ > 0 && SameInput(problems_[at_ - 1], p);
    if (shared_) return;
    packed_ = nullptr;
    if (context_.kernels.pack_x == nullptr || p.w.format == PackedFormat::kF32 ||
        p.m <= context_.kernels.rows_packed_alone)
      return;
    const std::int64_t bytes = PackedInputBytes(p.m, p.w.k);
    if (bytes > context_.memory.input_bytes - used_) return;
    packed_ = context_.memory.inputs + used_;
    used_ += bytes;
  }
  static bool SameInput(const GemmProblem& a, const GemmProblem& b) {
    return a.x == b.x && a.ldx == b.ldx && a.x_rows == b.x_rows && a.m == b.m && a.w.k == b.w.k &&
           (a.w.format == PackedFormat::kF32) == (b.w.format == PackedFormat::kF32);
  }

  const GemmContext& context_;
  std::span<const GemmProblem> problems_;
  std::size_t at_ = 0;
  std::byte* packed_ = nullptr;
  bool shared_ = false;
  std::int64_t used_ = 0;
};

GemmBlock BlockOf(const GemmProblem& p, std::byte* packed) {
  GemmBlock block{};
  block.x = p.x;
  block.ldx = p.ldx;
  block.x_rows = p.x_rows;
  block.y = p.y;
  block.ldy = p.ldy;
  block.y_rows = p.y_rows;
  block.m = p.m;
  block.packed_x = packed;
  block.panels = p.w.data;
  block.n = p.swiglu > 0 ? p.swiglu : p.w.n;
  block.k = p.w.k;
  block.scale_block = p.w.scale_block;
  block.add = p.add;
  block.scale = p.scale;
  block.swiglu = p.swiglu > 0;
  return block;
}

// Packs what is to be packed, a tile of rows a task.
void PackInputs(const GemmContext& context, std::span<const GemmProblem> problems) {
  const auto tiles = [](const Walk& walk) {
    const bool packs = walk.packed() != nullptr && !walk.shared();
    return packs ? (walk.problem().m + kPackRows - 1) / kPackRows : 0;
  };
  std::int64_t tasks = 0;
  double elements = 0;
  for (Walk walk(context, problems); !walk.done(); walk.Next()) {
    tasks += tiles(walk);
    elements += static_cast<double>(tiles(walk) * kPackRows * walk.problem().w.k);
  }
  if (tasks == 0) return;
  ParallelForWork(context.executor, tasks, elements * kWorkOfElement, [&](std::int64_t task, int /*worker*/) {
    Walk walk(context, problems);
    for (; task >= tiles(walk); walk.Next()) task -= tiles(walk);
    GemmBlock block = BlockOf(walk.problem(), walk.packed());
    block.row_begin = task * kPackRows;
    block.row_end = std::min(block.m, block.row_begin + kPackRows);
    context.kernels.pack_x(block);
  });
}

GemmFn KernelOf(const OpKernels& kernels, PackedFormat format) {
  switch (format) {
    case PackedFormat::kF32: return kernels.gemm_f32;
    case PackedFormat::kBF16: return kernels.gemm_bf16;
    case PackedFormat::kF8: break;
  }
  return kernels.gemm_f8;
}

void RunTask(const GemmContext& context, const Walk& walk, const Cut& cut, const PanelRange& part, std::int64_t task,
             int worker) {
  const GemmProblem& p = walk.problem();
  const std::int64_t rows = cut.TaskRows(p);
  GemmBlock block = BlockOf(p, walk.packed());
  const std::int64_t panel_tasks = cut.PanelTasks(p, part);
  MLA_CHECK(panel_tasks > 0);  // or there were no task
  block.row_begin = task / panel_tasks * rows;
  block.row_end = std::min(p.m, block.row_begin + rows);
  const PanelRange panels = cut.TaskPanels(p, part, panel_tasks, task % panel_tasks);
  block.panel_begin = panels.begin;
  block.panel_end = panels.end;
  block.scratch = context.memory.scratch + worker * kGemmScratch;
  KernelOf(context.kernels, p.w.format)(block);
}

bool Within(std::span<const std::byte> memory, const PackedMatrix& w) {
  return w.data >= memory.data() && w.data + w.bytes() <= memory.data() + memory.size();
}

// A region's problems, and how they were cut.
void Count(std::span<const GemmProblem> problems, const Cut& cut, GemmCounts* counts) {
  for (const GemmProblem& p : problems) {
    if (p.m == 0) continue;
    counts->operations += 2.0 * static_cast<double>(p.m) * static_cast<double>(p.w.n) * static_cast<double>(p.w.k);
    counts->weight_bytes += (p.m + cut.TaskRows(p) - 1) / cut.TaskRows(p) * p.w.bytes();
    if (!Within(counts->loaded, p.w)) ++counts->conversions;
  }
}

}  // namespace

void Gemm(const GemmContext& context, std::span<const GemmProblem> problems) {
  const auto begin = context.counts != nullptr ? Clock::now() : Clock::time_point();
  PackInputs(context, problems);
  Cut cut;
  double work = 0;
  double cost = 0;
  for (const GemmProblem& p : problems) {
    MLA_DCHECK(p.swiglu == 0 || (p.w.n == SwigluRows(p.swiglu) && !p.add && p.scale == 1));
    work += static_cast<double>(p.m) * static_cast<double>(p.w.n) * static_cast<double>(p.w.k);
    if (p.m > 0) cost += PanelCost(p) * static_cast<double>(Panels(p.w.n));
  }
  const std::int64_t tasks_per_worker = problems.size() < kManyProblems ? kTasksPerWorker : kTasksOfMany;
  cut.task_cost = cost / static_cast<double>(context.executor.workers() * tasks_per_worker);
  cut.task_rows = context.kernels.task_rows;
  const NodeShares shares(context.executor);
  std::array<std::int64_t, kMaxNodes> tasks;
  for (int node = 0; node < shares.nodes(); ++node) {
    std::int64_t& sum = tasks[static_cast<std::size_t>(node)] = 0;
    TaskCounter count(cut, shares, node);
    for (const GemmProblem& p : problems) sum += count(p);
  }
  ParallelForPlacedWork(context.executor, std::span(tasks).first(static_cast<std::size_t>(shares.nodes())), work,
                        [&](int node, std::int64_t task, int worker) {
                          TaskCounter count(cut, shares, node);
                          Walk walk(context, problems);
                          for (; task >= count(walk.problem()); walk.Next()) task -= count(walk.problem());
                          RunTask(context, walk, cut, PartOf(shares, walk.problem(), node), task, worker);
                        });
  if (context.counts == nullptr) return;
  Count(problems, cut, context.counts);
  context.counts->seconds += Since(begin);
}

}  // namespace mla::ops
