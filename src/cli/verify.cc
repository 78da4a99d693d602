// mla verify MODEL: is this engine right on this checkpoint?
#include "verify/verify.h"

#include <memory>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "base/clock.h"
#include "cli/app.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/load.h"
#include "cli/output.h"
#include "cli/text_input.h"
#include "cli/verify_report.h"
#include "model/model.h"

namespace mla::cli {
namespace {

struct VerifyOptions : ComputeOptions {
  std::string text;  // a path, "-", or "" for none
  double budget = 60;
  bool allow_partial = false;
};

Result<std::vector<std::int32_t>> TextIds(const VerifyOptions& o, const ModelInfo& info) {
  if (o.text.empty()) return std::vector<std::int32_t>();
  MLA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load(o.model));
  MLA_ASSIGN_OR_RETURN(const std::string text, o.text == "-" ? ReadStdin("text") : ReadTextFile(o.text, "text"));
  return EncodeText(text, false, tokenizer, info);
}

Status FitsMemory(const VerifyOptions& o, const model::Opened& opened, int threads) {
  MLA_ASSIGN_OR_RETURN(const std::int64_t limit, MemoryLimit(o));
  const DType kv_dtype = KvDTypeOf(o);
  const MemoryPlan plan =
      verify::Planned(opened.config, model::PlannedWeightBytes(opened, WeightsOf(o)), kv_dtype, threads);
  if (plan.total() <= limit) {
    MemoryPlan reserved;  // the proofs' own caches and workspaces are in ordinary memory
    reserved.weights = plan.weights;
    return FitsHugePages(o, reserved, opened.config.num_hidden_layers);
  }
  return Error{fmt::format(
      "memory: {} are needed (weights {}, caches {}, workspace {}, one layer in float64 and rope tables {}) and {} may "
      "be used; --threads, --weights and --memory change that",
      HumanBytes(plan.total()), HumanBytes(plan.weights), HumanBytes(plan.cache), HumanBytes(plan.workspace),
      HumanBytes(plan.tables), HumanBytes(limit))};
}

int ExitCode(const VerifyReport& report, bool allow_partial) {
  if (report.interrupted) return kInterrupted;
  switch (report.proofs.Summary()) {
    case verify::Verdict::kPass: return kDone;
    case verify::Verdict::kFail: return kFailed;
    default: return allow_partial ? kDone : kFailed;
  }
}

Result<int> Run(VerifyOptions o, const Log& log) {
  InterruptScope interrupt;
  MLA_ASSIGN_OR_RETURN(const model::Opened opened, model::Open(o.model));
  o.weights = KeptWeights(o, opened.config);
  verify::Options options;
  options.budget_seconds = o.budget;
  MLA_ASSIGN_OR_RETURN(options.text, TextIds(o, opened.info));
  VerifyReport report;
  report.threads = ThreadCount(o, log);
  MLA_RETURN_IF_ERROR(FitsMemory(o, opened, report.threads));

  const auto begin = Clock::now();
  const std::unique_ptr<Executor> pool = MakePool(o, report.threads);
  report.threads = pool->workers();
  MLA_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, LoadModel(o, opened, *pool));
  report.load_seconds = Since(begin);

  interrupt.Defer();
  const auto start = Clock::now();
  ProgressLine levels(!o.quiet, "proving level", ProgressLine::Unit::kCount);
  options.cancelled = [&] { return interrupt.Requested(); };
  options.level = [&](int level) { levels.Update(level, verify::kLevels); };
  verify::Subject subject(opened.config, opened.checkpoint, *model, *pool);
  subject.weight_dtype = WeightsOf(o);
  subject.kv_dtype = KvDTypeOf(o);
  subject.kernels = o.kernels;
  MLA_ASSIGN_OR_RETURN(report.proofs, verify::Verify(subject, options));
  report.seconds = Since(start);
  report.interrupted = interrupt.Requested();
  MLA_RETURN_IF_ERROR(WriteOut(o.json ? VerifyJson(o, report) : VerifyText(o, report)));
  MLA_RETURN_IF_ERROR(FlushOut());
  return ExitCode(report, o.allow_partial);
}

void AddFlags(CLI::App& c, VerifyOptions* o) {
  AddModelArgument(c, o);
  c.add_option("--text", o->text, "File with a text that the model should know, or - for stdin: what level 7 needs");
  c.add_option("--budget", o->budget, "About how many seconds it may take; a large checkpoint is sampled")
      ->check(NumberIn(0, false, 1e9))
      ->capture_default_str();
  c.add_flag("--allow-partial", o->allow_partial, "Exit with 0 where nothing failed but a level was not run");
  AddMachineFlags(c, o);
  c.add_flag("--json", o->json, "Print one JSON object");
  c.add_flag("--quiet,-q", o->quiet, "No progress");
  c.footer(
      "Compares the engine with a float64 model that shares the files and the parsed config with it and nothing else: "
      "1 projection, 2 absorption, 3 position, 4 cache, 5 kernel, 6 end to end, 7 reading. Every error has a derived "
      "bound. Exits with 0 for PASS; with 1 for FAIL, and for PARTIAL too (a level was not run: level 7 without "
      "--text, "
      "level 6 where the budget has no room for the model in float64) unless --allow-partial is given.");
}

}  // namespace

Action AddVerify(CLI::App& app, const Log& log) {
  CLI::App* command = app.add_subcommand("verify", "Prove the engine on a checkpoint, path by path, against float64");
  auto options = std::make_shared<VerifyOptions>();
  AddFlags(*command, options.get());
  return [options, log] { return Run(*options, log); };
}

}  // namespace mla::cli
