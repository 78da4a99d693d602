#include <fmt/format.h>

#include "cli/plan_report.h"

namespace mla::cli {
namespace {

using plan::Report;

// RFC 4180: quoted where it must be.
std::string Field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

class Csv {
 public:
  explicit Csv(std::string* out) : out_(out) {}
  void Model(const std::string& name) { model_ = Field(name); }
  template <class Number>
  void Add(const char* section, const std::string& name, Number value, const char* unit) {
    *out_ += fmt::format("{},{},{},{},{}\r\n", model_, section, Field(name), value, unit);
  }

 private:
  std::string* out_;
  std::string model_;
};

void AddMemory(const Report& r, Csv* csv) {
  csv->Add("cache", "elements a token", r.elements, "elements");
  csv->Add("cache", "bytes a token", r.token_bytes, "bytes");
  csv->Add("cache", "bytes a sequence", r.sequence_bytes, "bytes");
  for (const PlanItem& item : PlanMemory(r)) {
    csv->Add("memory", item.name.starts_with("weights") ? item.name + " " + item.note : item.name, item.bytes, "bytes");
  }
  if (r.longest_context) csv->Add("limit", "longest context", *r.longest_context, "tokens");
  if (r.most_users) csv->Add("limit", "most users", *r.most_users, "users");
  if (r.ranks_needed) csv->Add("limit", "ranks needed", *r.ranks_needed, "ranks");
  for (const plan::Collective& c : r.collectives) csv->Add("sent", c.name + ": " + c.what, c.sent, "bytes");
}

void AddWork(const Report& r, Csv* csv) {
  for (const plan::FormReport& form : r.forms) {
    const std::string name = r.forms.size() > 1 ? FormName(form.form) : "heads";
    for (const plan::PartWork& p : form.parts) {
      csv->Add("work", fmt::format("{}: {}", name, p.name), p.multiply_adds, "multiply-adds");
      csv->Add("work", fmt::format("{}: {}", name, p.name), p.bytes(), "bytes");
    }
    if (r.options.rates) csv->Add("work", name, form.seconds, "seconds");
  }
}

void AddCurves(const Report& r, Csv* csv) {
  for (const plan::Crossing& c : r.crossings) {
    if (r.crossing_constant) csv->Add("crossing", fmt::format("closed at {}", c.keys), c.closed, "tokens");
    if (c.causal) csv->Add("crossing", fmt::format("causal at {}", c.keys), *c.causal, "tokens");
    if (c.seconds) csv->Add("crossing", fmt::format("by time at {}", c.keys), *c.seconds, "tokens");
  }
  if (r.times) {
    csv->Add("time", "first token", r.times->first_token(), "seconds");
    csv->Add("time", "a token", r.times->token, "seconds");
    csv->Add("time", "tokens a second", r.times->tokens_per_second, "tokens/s");
  }
  for (const plan::Point& p : r.contexts) {
    csv->Add("context", fmt::format("cache at {}", p.context), p.sequence_bytes, "bytes");
    if (p.users) csv->Add("context", fmt::format("users at {}", p.context), *p.users, "users");
    if (p.token_seconds) csv->Add("context", fmt::format("a token at {}", p.context), *p.token_seconds, "seconds");
  }
  for (const plan::BatchPoint& b : r.batches) {
    csv->Add("batch", fmt::format("a token of {}", b.users), b.token_seconds, "seconds");
  }
}

}  // namespace

std::string PlanCsv(const PlanReports& reports) {
  std::string text = "model,section,name,value,unit\r\n";
  Csv csv(&text);
  for (const Report& r : reports) {
    csv.Model(r.shape.name);
    AddMemory(r, &csv);
    AddWork(r, &csv);
    AddCurves(r, &csv);
  }
  return text;
}

}  // namespace mla::cli
