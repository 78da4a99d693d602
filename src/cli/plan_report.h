// What `mla plan` prints.
#ifndef MLA_CLI_PLAN_REPORT_H_
#define MLA_CLI_PLAN_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plan/report.h"

namespace mla::cli {

using PlanReports = std::vector<plan::Report>;

// One report as text; several as a table of them side by side.
std::string PlanText(const PlanReports& reports);
// {"models": [...]}: bytes and counts as whole numbers, seconds as decimals.
std::string PlanJson(const PlanReports& reports);
// RFC 4180: model,section,name,value,unit.
std::string PlanCsv(const PlanReports& reports);
// A page of one file: tables, and charts as inline SVG. No script, no request.
std::string PlanHtml(const PlanReports& reports);

// A name for each report: the folder's or the file's own, without ".json"; whole paths where two are alike.
std::vector<std::string> PlanNames(const PlanReports& reports);

// What stands on both the page and the table: a name, and its text for each report.
struct PlanRow {
  std::string name;
  std::vector<std::string> values;
};
std::vector<PlanRow> PlanComparison(const PlanReports& reports);
// Bytes of a rank by item, without what is zero.
struct PlanItem {
  std::string name;
  std::string note;
  std::int64_t bytes = 0;
};
std::vector<PlanItem> PlanMemory(const plan::Report& report);

// The attentions of a model in words, one for each group of layers.
std::vector<std::string> AttentionWords(const plan::Shape& shape);

}  // namespace mla::cli

#endif  // MLA_CLI_PLAN_REPORT_H_
