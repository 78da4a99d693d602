#include "cli/plan_report.h"
namespace mla::cli {
std::string PlanHtml(const PlanReports& reports) { return std::to_string(reports.size()); }
}  // namespace mla::cli
