// mla plan CONFIG_OR_MODEL...: what fits, what it costs, and where the forms cross.
#include <memory>
#include <utility>

#include <CLI/CLI.hpp>

#include "cli/app.h"
#include "cli/command.h"
#include "cli/html_page.h"
#include "cli/output.h"
#include "cli/plan_options.h"
#include "cli/plan_report.h"

namespace mla::cli {
namespace {

Status AddReports(const std::string& path, const PlanOptions& options, const plan::ReportOptions& report,
                  PlanReports* reports) {
  MLA_ASSIGN_OR_RETURN(const plan::Subject subject, plan::OpenSubject(path));
  const auto add = [&](const plan::Subject& s) -> Status {
    Result<plan::Report> made = plan::MakeReport(s, report);
    if (!made.ok()) return Error{s.shape.name + ": " + made.error().message};
    reports->push_back(std::move(made).value());
    return {};
  };
  MLA_RETURN_IF_ERROR(add(subject));
  for (const std::string& attention : options.as) {
    Result<plan::Shape> shape = plan::WithAttention(subject.shape, attention);
    if (!shape.ok()) return Error{"--as: " + shape.error().message};
    if (shape->name == subject.shape.name) continue;  // is so already
    plan::Subject other;
    other.shape = std::move(shape).value();
    MLA_RETURN_IF_ERROR(add(other));
  }
  return {};
}

Result<int> Run(const PlanOptions& options) {
  MLA_ASSIGN_OR_RETURN(const plan::ReportOptions report, ReportOptionsOf(options));
  PlanReports reports;
  for (const std::string& path : options.models) MLA_RETURN_IF_ERROR(AddReports(path, options, report, &reports));
  if (!options.html.empty()) MLA_RETURN_IF_ERROR(WritePage(options.html, PlanHtml(reports)));
  MLA_RETURN_IF_ERROR(WriteOut(options.json ? PlanJson(reports) : options.csv ? PlanCsv(reports) : PlanText(reports)));
  MLA_RETURN_IF_ERROR(FlushOut());
  return kDone;
}

}  // namespace

Action AddPlan(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("plan", "Plan a deployment: memory, work and time of a model, and of others beside it");
  auto options = std::make_shared<PlanOptions>();
  AddPlanFlags(*command, options.get());
  return [options] { return Run(*options); };
}

}  // namespace mla::cli
