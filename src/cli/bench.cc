// mla bench peak|gemm|moe|attention|layer|crossover|model|serve: speed, beside the machine's limits measured in the
// same run.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/cpu_info.h"
#include "bench/attention_bench.h"
#include "bench/gemm_bench.h"
#include "bench/layer_bench.h"
#include "bench/limits.h"
#include "bench/moe_bench.h"
#include "cli/app.h"
#include "cli/bench_crossover.h"
#include "cli/bench_model.h"
#include "cli/bench_options.h"
#include "cli/bench_report.h"
#include "cli/bench_serve.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/load.h"
#include "cli/output.h"

namespace mla::cli {
namespace {

Status Fits(std::int64_t needed, std::string_view flags) {
  const std::int64_t usable = UsableMemory();
  if (needed <= usable) return {};
  return Error{fmt::format("memory: {} are needed and {} may be used; {} change that", HumanBytes(needed),
                           HumanBytes(usable), flags)};
}

// A report as it grows: the table's lines at once, JSON and CSV at the end.
class Output {
 public:
  Output(const BenchOptions& options, BenchReport* report)
      : table_(!options.json && !options.csv), json_(options.json), report_(report) {}

  Status Limits() const {
    if (!table_) return {};
    std::string text = BenchMachineText(report_->machine) + BenchLimitsText(report_->limits);
    if (report_->what != "peak") text += "\n" + BenchTableHead();
    return Show(text);
  }
  Status Case(const bench::CaseResult& result) {
    report_->cases.push_back(result);
    return table_ ? Show(BenchCaseText(result)) : Status();
  }
  Status End() const {
    if (table_) return {};
    return Show(json_ ? BenchJson(*report_) : BenchCsv(*report_));
  }

 private:
  static Status Show(const std::string& text) {
    MLA_RETURN_IF_ERROR(WriteOut(text));
    return FlushOut();
  }

  bool table_;
  bool json_;
  BenchReport* report_;
};

Result<int> RunPeak(const BenchOptions& o, const Log& log) {
  const InterruptScope interrupt;
  MLA_ASSIGN_OR_RETURN(const std::int64_t working_set, WorkingSetOf(o));
  MLA_RETURN_IF_ERROR(Fits(working_set, "--working-set"));
  const CpuInfo cpu = DetectCpu();
  const std::unique_ptr<Executor> pool = MakePool(o, ThreadCount(o, log));
  bench::Probe probe(*pool, cpu);
  BenchReport report{"peak", {cpu.model, "", pool->workers()}, {}, {}};
  Output output(o, &report);
  std::vector<std::int64_t> sizes;
  if (working_set > 0) sizes = bench::ReadSizes(working_set);
  MLA_ASSIGN_OR_RETURN(report.limits, bench::MeasureLimits(probe, cpu, sizes));
  MLA_RETURN_IF_ERROR(output.Limits());
  MLA_RETURN_IF_ERROR(output.End());
  return kDone;
}

// Limits first, then each job's cases. Bench is one of the benches, Job its plan with numbers of rows.
template <class Bench, class Job>
Result<int> RunJobs(const char* what, const BenchOptions& o, const std::vector<Job>& jobs, const Log& log) {
  const InterruptScope interrupt;
  const CpuInfo cpu = DetectCpu();
  MLA_ASSIGN_OR_RETURN(const Isa isa, UsableIsa(o, log));
  MLA_ASSIGN_OR_RETURN(const std::int64_t working_set, WorkingSetOf(o));
  const int threads = ThreadCount(o, log);
  std::int64_t needed = working_set;
  for (const Job& job : jobs) needed = std::max(needed, Bench::PlannedBytes(job.plan, threads));
  MLA_RETURN_IF_ERROR(Fits(needed, "the shapes, --rows and --working-set"));

  const std::unique_ptr<Executor> pool = MakePool(o, threads);
  bench::Probe probe(*pool, cpu);
  BenchReport report{what, {cpu.model, IsaName(isa), pool->workers()}, {}, {}};
  Output output(o, &report);
  std::vector<std::int64_t> sizes;
  if (working_set > 0) sizes.push_back(working_set);
  MLA_ASSIGN_OR_RETURN(report.limits, bench::MeasureLimits(probe, cpu, sizes));
  MLA_RETURN_IF_ERROR(output.Limits());
  for (const Job& job : jobs) {
    MLA_ASSIGN_OR_RETURN(Bench bench, Bench::Create(job.plan, *pool));
    for (const std::int64_t rows : job.rows) {
      MLA_RETURN_IF_ERROR(output.Case(bench.Run(probe, isa, rows, o.repeats)));
    }
  }
  MLA_RETURN_IF_ERROR(output.End());
  return kDone;
}

Result<int> RunGemm(const BenchOptions& o, const Log& log) {
  MLA_ASSIGN_OR_RETURN(const std::vector<GemmJob> jobs, GemmJobs(o));
  return RunJobs<bench::GemmBench>("gemm", o, jobs, log);
}

Result<int> RunMoe(const BenchOptions& o, const Log& log) {
  MLA_ASSIGN_OR_RETURN(const std::vector<MoeJob> jobs, MoeJobs(o));
  return RunJobs<bench::MoeBench>("moe", o, jobs, log);
}

Result<int> RunAttention(const BenchOptions& o, const Log& log) {
  MLA_ASSIGN_OR_RETURN(const std::vector<AttentionJob> jobs, AttentionJobs(o));
  return RunJobs<bench::AttentionBench>("attention", o, jobs, log);
}

Result<int> RunLayer(const BenchOptions& o, const Log& log) {
  MLA_ASSIGN_OR_RETURN(const std::vector<LayerJob> jobs, LayerJobs(o));
  return RunJobs<bench::LayerBench>("layer", o, jobs, log);
}

}  // namespace

Action AddBench(CLI::App& app, const Log& log) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed beside the machine's own limits");
  bench->require_subcommand(1);
  using Flags = void (*)(CLI::App&, BenchOptions*);
  using Runner = Result<int> (*)(const BenchOptions&, const Log&);
  struct Kind {
    const char* name;
    const char* help;
    Flags flags;
    Runner run;
  };
  constexpr Kind kKinds[] = {
      {"peak", "The limits alone: multiply-adds and reads", AddPeakFlags, RunPeak},
      {"gemm", "Products with packed weights", AddGemmFlags, RunGemm},
      {"moe", "A layer's mixture of experts", AddMoeFlags, RunMoe},
      {"attention", "A layer's attention over cached rows", AddAttentionFlags, RunAttention},
      {"layer", "A whole attention layer, beside its kernels by themselves", AddLayerFlags, RunLayer},
      {"crossover", "Where the two forms of the attention cross, and what choosing wrongly costs", AddCrossoverFlags,
       RunCrossover},
      {"model", "A model's prompts and output, in tokens a second", AddModelFlags, RunModel},
  };
  std::vector<std::pair<CLI::App*, Action>> actions;
  for (const Kind& kind : kKinds) {
    CLI::App* command = bench->add_subcommand(kind.name, kind.help);
    auto options = std::make_shared<BenchOptions>();
    kind.flags(*command, options.get());
    actions.emplace_back(command, [options, log, run = kind.run] { return run(*options, log); });
  }
  const Action serve = AddBenchServe(*bench, log);
  actions.emplace_back(bench->get_subcommand("serve"), serve);
  return [actions]() -> Result<int> {
    for (const auto& [command, action] : actions) {
      if (command->parsed()) return action();
    }
    return kUsage;
  };
}

}  // namespace mla::cli
