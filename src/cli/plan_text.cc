#include <algorithm>

#include <fmt/format.h>

#include "cli/output.h"
#include "cli/plan_report.h"

namespace mla::cli {
namespace {

using plan::Report;

class Text {
 public:
  void Head(std::string_view title) { text_ += fmt::format("\n{}\n", title); }
  void Line(std::string_view name, std::string_view value) { text_ += fmt::format("  {:<26} {}\n", name, value); }
  void Raw(std::string_view line) {
    text_ += line;
    text_.erase(text_.find_last_not_of(' ') + 1);
    text_ += '\n';
  }
  std::string Take() && { return std::move(text_); }

 private:
  std::string text_;
};

std::string Bytes(std::int64_t n) { return fmt::format("{} ({})", Grouped(n), HumanBytes(n)); }

void AddModel(const Report& r, Text* t) {
  t->Raw(r.shape.name);
  t->Line("family", r.shape.model_type);
  t->Line("runs here", r.shape.not_run.empty() ? "yes" : "no: " + r.shape.not_run);
  for (const std::string& words : AttentionWords(r.shape)) t->Line("attention", words);
  if (r.shape.parameters) {
    std::string text = Grouped(r.shape.parameters->total());
    if ((*r.shape.parameters)[plan::Part::kMtp] > 0) {
      text += fmt::format(", and {} in MTP layers", Grouped((*r.shape.parameters)[plan::Part::kMtp]));
    }
    t->Line("parameters", text);
  }
  for (const std::string& note : r.shape.notes) t->Line("note", note);
}

void AddMemory(const Report& r, Text* t) {
  const plan::MemoryOptions& o = r.options.memory;
  const bool ranks = o.ranks.count() > 1;
  t->Head(fmt::format("Memory{}: {} of {} tokens, rows in {}", ranks ? " of one rank" : "",
                      r.options.users == 1 ? "one sequence" : fmt::format("{} sequences", r.options.users),
                      r.options.context, o.row.name));
  t->Line("cache elements a token",
          fmt::format("{} over all layers{}", Grouped(r.elements), ranks ? ", before they are split" : ""));
  t->Line("cache bytes a token", Grouped(r.token_bytes));
  t->Line("cache of a sequence", fmt::format("{} in whole pages of {}", Bytes(r.sequence_bytes), o.page_tokens));
  for (const PlanItem& item : PlanMemory(r)) {
    t->Raw(
        fmt::format("  {:<26} {:>20}  {:>9}  {}", item.name, Grouped(item.bytes), HumanBytes(item.bytes), item.note));
  }
  if (!r.memory.weights_known) t->Line("weights", "not known, and not in the total");
  t->Line("these bytes are", r.memory.engines ? "what the engine allocates: weights, cache, workspace, tables"
                                              : "arithmetic: this engine does not allocate them so");
}

void AddLimits(const Report& r, Text* t) {
  if (!r.options.limit) return;
  t->Head(fmt::format("In {} a rank", HumanBytes(*r.options.limit)));
  const bool whole = *r.longest_context == r.shape.max_positions;
  t->Line("longest context", fmt::format("{} tokens for {} users{}", Grouped(*r.longest_context), r.options.users,
                                         whole ? ", all that the model has" : ""));
  t->Line("most users", fmt::format("{} at {} tokens", Grouped(*r.most_users), r.options.context));
  t->Line("ranks needed",
          r.ranks_needed ? fmt::format("{} by --tp", *r.ranks_needed) : "more than --tp can split the model over");
}

void AddRanks(const Report& r, Text* t) {
  const plan::Ranks& ranks = r.options.memory.ranks;
  if (ranks.count() == 1) return;
  t->Head(fmt::format("{} ranks: {} groups of {}", ranks.count(), ranks.dp, ranks.tp));
  for (const plan::Placement& p : r.placements) t->Line(p.part, p.how);
  t->Head("Collectives of the step below, fp32");
  for (const plan::Collective& c : r.collectives) {
    t->Raw(fmt::format("  {:<15} {:<52} {:>5} ranks, {:>4} times, {:>14} bytes each, a rank sends {}", c.name, c.what,
                       c.ranks, c.times, Grouped(c.payload), HumanBytes(c.sent)));
  }
}

// FLOP a byte; a multiply-add is two.
double Intensity(std::int64_t multiply_adds, std::int64_t bytes) {
  return 2 * static_cast<double>(multiply_adds) / static_cast<double>(std::max<std::int64_t>(1, bytes));
}

void AddWork(const Report& r, Text* t) {
  t->Head(fmt::format("Work of a step{}: T = {} new rows over S = {} keys, {} sequence{}",
                      r.options.memory.ranks.count() > 1 ? ", of one rank" : "", r.step.rows, r.step.keys,
                      r.step.sequences, r.step.sequences == 1 ? "" : "s"));
  for (const plan::FormReport& form : r.forms) {
    const bool latent = r.forms.size() > 1;
    t->Raw(fmt::format("  {:<18} {:>7} {:>21} {:>21} {:>13} {:>12} {:>11}", latent ? FormName(form.form) : "part",
                       "layers", "multiply-adds a layer", "all layers", "weight bytes", "cache bytes", "FLOP/byte"));
    for (const plan::PartWork& p : form.parts) {
      t->Raw(fmt::format("  {:<18} {:>7} {:>21} {:>21} {:>13} {:>12} {:>11.1f}", p.name, p.layers,
                         Grouped(p.multiply_adds / p.layers), Grouped(p.multiply_adds), HumanBytes(p.weight_bytes),
                         HumanBytes(p.cache_bytes), Intensity(p.multiply_adds, p.bytes())));
    }
    std::string sum = fmt::format("{} multiply-adds, {}: {:.1f} FLOP a byte", Grouped(form.multiply_adds),
                                  HumanBytes(form.bytes), Intensity(form.multiply_adds, form.bytes));
    if (r.options.rates) sum += ", " + HumanSeconds(form.seconds);
    t->Line("in all", sum);
  }
}

void AddCrossings(const Report& r, Text* t) {
  if (r.crossings.empty()) return;
  t->Head("Where expanding begins to need less than absorbing");
  if (!r.crossing_constant) {
    t->Raw("  never: 2R <= N + V");
    return;
  }
  t->Raw(fmt::format("  a = {:.2f}; T* = a S / (S + a)", *r.crossing_constant));
  t->Raw(fmt::format("  {:>12} {:>12} {:>22} {:>12}", "S, or cached", "T* closed", "T by causal count",
                     r.options.rates ? "T by time" : ""));
  for (const plan::Crossing& c : r.crossings) {
    const auto whole = [](const std::optional<std::int64_t>& n) { return n ? std::to_string(*n) : "never"; };
    t->Raw(fmt::format("  {:>12} {:>12.1f} {:>22} {:>12}", c.keys, c.closed, whole(c.causal),
                       r.options.rates ? whole(c.seconds) : ""));
  }
}

void AddTimes(const Report& r, Text* t) {
  if (!r.times) return;
  const plan::Times& time = *r.times;
  const plan::Rates& rates = *r.options.rates;
  t->Head(rates.forms ? fmt::format("Time by table {}: products and attention as they were measured", rates.id)
                      : "Time at the given rates: each part at the slower of its multiply-adds and its bytes");
  t->Line("first token", fmt::format("{} after a prompt of {} tokens", HumanSeconds(time.first_token()), time.context));
  if (r.forms.size() > 1) {
    t->Line("",
            fmt::format("expanded {}, absorbed {}", HumanSeconds(time.prompt_mha), HumanSeconds(time.prompt_absorbed)));
  }
  t->Line("a token",
          fmt::format("{} for each of {} sequences of {} tokens", HumanSeconds(time.token), time.users, time.context));
  t->Line("tokens a second", fmt::format("{:.4g} in all", time.tokens_per_second));
  if (r.options.memory.ranks.count() > 1 && rates.link_bytes <= 0) {
    t->Line("", "without collectives: --link says their rate");
  }
  for (const plan::BatchPoint& b : r.batches) {
    t->Raw(fmt::format("  {:>8} sequences {:>12} a token {:>12.4g} tokens/s", b.users, HumanSeconds(b.token_seconds),
                       b.tokens_per_second));
  }
}

std::string One(const Report& r) {
  Text t;
  AddModel(r, &t);
  AddMemory(r, &t);
  AddLimits(r, &t);
  AddRanks(r, &t);
  AddWork(r, &t);
  AddCrossings(r, &t);
  AddTimes(r, &t);
  return std::move(t).Take();
}

// The end of a long path tells more than its beginning.
std::string Short(const std::string& name, std::size_t width) {
  return name.size() <= width ? name : "..." + name.substr(name.size() - width + 3);
}

}  // namespace

std::string PlanText(const PlanReports& reports) {
  if (reports.size() == 1) return One(reports.front());
  Text t;
  constexpr std::size_t kWidth = 30;
  for (const PlanRow& row : PlanComparison(reports)) {
    std::string line = fmt::format("{:<26}", row.name);
    for (const std::string& value : row.values) line += fmt::format(" {:>{}}", Short(value, kWidth), kWidth);
    t.Raw(line);
  }
  return std::move(t).Take();
}

}  // namespace mla::cli
