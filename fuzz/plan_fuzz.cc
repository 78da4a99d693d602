// Any bytes as a config.json to plan for: a report whose numbers hang together, or an error of one line.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "plan/report.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto shape = mla::plan::ParseShape({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!shape.ok()) {
    MLA_CHECK(shape.error().message.find('\n') == std::string::npos);
    return 0;
  }
  // Listing a million tensors is no fault, and too slow to try often.
  if (shape->layers * (1 + shape->experts.experts) > 1 << 14) return 0;
  mla::plan::Subject subject;
  subject.shape = *shape;
  mla::plan::ReportOptions options;
  options.memory.row = *mla::plan::FindRowFormat("bf16");
  options.users = 3;
  options.rates = mla::plan::Rates{"fuzz", 1e12, 1e12, 1e12, 1e12, 1e12, 1e10, 1e9};
  if (shape->parameters) options.limit = std::int64_t{1} << 40;
  const auto report = mla::plan::MakeReport(subject, options);
  if (!report.ok()) {
    MLA_CHECK(report.error().message.find('\n') == std::string::npos);
    return 0;
  }
  MLA_CHECK_LE(report->memory.cache, report->memory.total);
  MLA_CHECK_LE(report->token_bytes, report->sequence_bytes);
  return 0;
}
