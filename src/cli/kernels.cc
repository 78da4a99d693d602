// mla kernels [MODEL]: the kernels there are, what their self-tests say on this machine, and which are chosen.
#include <memory>

#include <CLI/CLI.hpp>

#include "cli/app.h"
#include "cli/command.h"
#include "cli/kernels_report.h"
#include "cli/output.h"
#include "contract/config.h"

namespace mla::cli {
namespace {

Result<int> RunKernels(const std::string& model, bool json) {
  KernelsReport report = ReportKernels(DetectCpu());
  if (!model.empty()) {
    MLA_ASSIGN_OR_RETURN(const contract::ModelConfig config, contract::LoadConfig(model));
    report.model = model;
    report.uses = UsesOf(config, report);
  }
  MLA_RETURN_IF_ERROR(WriteOut(json ? KernelsJson(report) : KernelsText(report)));
  MLA_RETURN_IF_ERROR(FlushOut());
  return report.ok() ? kDone : kFailed;
}

}  // namespace

Action AddKernels(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "kernels", "Test every kernel that this machine can run, and show which are chosen; exit 1 where one fails");
  auto model = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  command->add_option("MODEL", *model, "Model folder, or a config.json: what it needs of them");
  command->add_flag("--json", *json, "One JSON object");
  return [model, json] { return RunKernels(*model, *json); };
}

}  // namespace mla::cli
