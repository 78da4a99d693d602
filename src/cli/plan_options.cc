#include "cli/plan_options.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/cpu_info.h"
#include "bench/tune_file.h"
#include "cli/flags.h"

namespace mla::cli {
namespace {

struct NamedRate {
  const char* name;
  double plan::Rates::*field;
};
constexpr std::array<NamedRate, 5> kRates = {{{"products", &plan::Rates::products},
                                              {"expand", &plan::Rates::expand},
                                              {"absorb", &plan::Rates::absorb},
                                              {"mha", &plan::Rates::mha},
                                              {"absorbed", &plan::Rates::absorbed}}};

struct PartRate {
  double plan::Rates::*field;
  double flops;
};

// "absorbed=1.2T".
Result<PartRate> ParsePartRate(const std::string& text) {
  const std::size_t equals = text.find('=');
  for (const NamedRate& rate : kRates) {
    if (equals == std::string::npos || text.substr(0, equals) != rate.name) continue;
    MLA_ASSIGN_OR_RETURN(const double flops, ParseRate(text.substr(equals + 1)));
    return PartRate{rate.field, flops};
  }
  return Error{fmt::format("expected products=, expand=, absorb=, mha= or absorbed= with a rate, found '{}'", text)};
}

void AddMemoryFlags(CLI::App& c, PlanOptions* o) {
  c.add_option("--context", o->context, "Tokens of each sequence, prompt and output; 0: all that the model has")
      ->check(WholeIn(0, std::uint64_t{1} << 31))
      ->capture_default_str();
  c.add_option("--users", o->users, "Sequences at a time")->check(WholeIn(1, 1 << 20))->capture_default_str();
  c.add_option("--memory", o->memory,
               "Memory of one rank, as 64G or 80GB: the longest context, the most users and the ranks that it takes")
      ->check(Checked(ParseSize));
  c.add_option("--reserve", o->reserve, "Memory of one rank that stays free, as 2G")->check(Checked(ParseSize));
  c.add_option("--kv-dtype", o->kv_dtype,
               "Rows of the cache: bf16 or f32, which the engine allocates; fp8 (FlashMLA's row), int8, int4")
      ->check(CLI::IsMember({"bf16", "f32", "fp8", "int8", "int4"}))
      ->capture_default_str();
  c.add_option("--weights", o->weights, "Weights: auto (fp8 where the config has it, else bf16), bf16 or f32")
      ->check(CLI::IsMember({"auto", "bf16", "f32"}))
      ->capture_default_str();
  c.add_option("--weight-bytes", o->weight_bytes, "Bytes of the weights, where they are known otherwise")
      ->check(Checked(ParseSize));
  c.add_option("--page-tokens", o->page_tokens, "Tokens of a cache page")
      ->check(WholeIn(1, 1 << 20))
      ->capture_default_str();
  c.add_option("--draft-tokens", o->draft_tokens, "Tokens that speculation adds to each sequence")
      ->check(WholeIn(0, 1 << 10))
      ->capture_default_str();
  c.add_option("--prefill-chunk", o->prefill_chunk, "Prompt tokens a step")
      ->check(WholeIn(1, 1 << 20))
      ->capture_default_str();
  c.add_option("--keep-expanded", o->keep_expanded,
               "Memory of one rank, as 4G, to keep prompts' expanded keys and values in from chunk to chunk")
      ->check(Checked(ParseSize));
  c.add_option("--threads", o->threads, "Threads of one rank; 0: what affinity and cgroups leave here")
      ->check(WholeIn(0, 4096))
      ->capture_default_str();
}

void AddRankFlags(CLI::App& c, PlanOptions* o) {
  c.add_option("--tp", o->tp, "Ranks that share heads, widths and vocabulary")
      ->check(WholeIn(1, 1 << 16))
      ->capture_default_str();
  c.add_option("--dp", o->dp, "Groups of such ranks, each with users of its own")
      ->check(WholeIn(1, 1 << 16))
      ->capture_default_str();
  c.add_option("--dcp", o->dcp, "Of the --tp ranks, so many share out the cache's pages")
      ->check(WholeIn(1, 1 << 16))
      ->capture_default_str();
  c.add_flag("--spread-experts", o->spread_experts, "Whole experts over all ranks, in place of a slice of each");
  c.add_flag("--shard-latent", o->shard_latent, "Each of the --tp ranks keeps its channels of the latent");
  c.add_option("--link", o->link, "Bytes a second that a rank sends, as 50G")->check(Checked(ParseRate));
}

void AddWorkFlags(CLI::App& c, PlanOptions* o) {
  c.add_option("--rows", o->rows, "New tokens of a sequence in the step that is priced, T")
      ->check(WholeIn(1, 1 << 24))
      ->capture_default_str();
  c.add_option("--keys", o->keys, "Positions that they attend to, themselves counted, S; 0: the context")
      ->check(WholeIn(0, std::uint64_t{1} << 31))
      ->capture_default_str();
  auto* flops = c.add_option("--flops", o->flops, "FLOP a second of one rank, as 1.5T; a multiply-add is two")
                    ->check(Checked(ParseRate));
  auto* parts =
      c.add_option("--rate", o->rates,
                   "FLOP a second of a part in place of --flops: products=, expand=, absorb=, mha=, absorbed=")
          ->check(Checked(ParsePartRate));
  auto* read = c.add_option("--read-rate", o->read_rate, "Bytes of memory a second of one rank, as 40G")
                   ->check(Checked(ParseRate));
  c.add_option("--tune-table", o->tune_table,
               "A table of `mla tune`, of any machine: what products and attention took there, in place of rates")
      ->excludes(flops)
      ->excludes(parts)
      ->excludes(read);
}

Result<plan::Rates> RatesOfTable(const std::string& path) {
  const Result<bench::ReadTable> table = bench::ReadTuneFile(path);
  if (!table.ok()) return Error{"--tune-table: " + table.error().message};
  return bench::RatesOf(*table);
}

Result<plan::Rates> RatesOfFlags(const PlanOptions& o) {
  if (o.flops.empty() || o.read_rate.empty()) return Error{"--flops and --read-rate: expected both, found one"};
  plan::Rates rates;
  MLA_ASSIGN_OR_RETURN(const double flops, ParseRate(o.flops));
  for (const NamedRate& rate : kRates) rates.*rate.field = flops / 2;
  for (const std::string& text : o.rates) {
    MLA_ASSIGN_OR_RETURN(const PartRate part, ParsePartRate(text));
    rates.*part.field = part.flops / 2;
  }
  MLA_ASSIGN_OR_RETURN(rates.read_bytes, ParseRate(o.read_rate));
  return rates;
}

Result<std::optional<plan::Rates>> RatesOf(const PlanOptions& o) {
  if (o.tune_table.empty() && o.flops.empty() && o.read_rate.empty() && o.rates.empty()) {
    return std::optional<plan::Rates>();
  }
  MLA_ASSIGN_OR_RETURN(plan::Rates rates, o.tune_table.empty() ? RatesOfFlags(o) : RatesOfTable(o.tune_table));
  if (!o.link.empty()) {
    MLA_ASSIGN_OR_RETURN(rates.link_bytes, ParseRate(o.link));
  }
  return std::optional<plan::Rates>(std::move(rates));
}

}  // namespace

Result<double> ParseRate(const std::string& text) {
  double number = 0;
  const auto [rest, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(rest, text.data() + text.size());
  double scale = unit.empty() ? 1 : 0;
  for (int i = 0; i < 5; ++i) {
    if (unit == std::string(1, "KMGTP"[i])) scale = std::pow(1000.0, i + 1);
  }
  const double rate = number * scale;
  if (fault == std::errc() && scale > 0 && rate >= 1 && rate <= 1e24) return rate;
  return Error{fmt::format("expected a rate such as 40G, 1.5T or 2e12, found '{}'", text)};
}

void AddPlanFlags(CLI::App& c, PlanOptions* o) {
  c.add_option("CONFIG_OR_MODEL", o->models, "A config.json, or a folder with one; several are set side by side")
      ->required();
  c.add_option("--as", o->as,
               "Set each model beside itself with another attention: mha, gqa:G, mqa, mla, separated by commas")
      ->delimiter(',');
  AddMemoryFlags(c, o);
  AddRankFlags(c, o);
  AddWorkFlags(c, o);
  auto* json = c.add_flag("--json", o->json, "One JSON object");
  c.add_flag("--csv", o->csv, "One table of numbers: model, section, name, value, unit")->excludes(json);
  c.add_option("--html", o->html, "Write a page with charts to this file; it loads nothing from elsewhere");
}

Result<plan::ReportOptions> ReportOptionsOf(const PlanOptions& o) {
  plan::ReportOptions r;
  r.context = o.context;
  r.users = o.users;
  r.rows = o.rows;
  if (o.keys > 0) r.keys = o.keys;
  if (!o.memory.empty()) {
    MLA_ASSIGN_OR_RETURN(r.limit, ParseSize(o.memory));
  }
  plan::MemoryOptions& m = r.memory;
  m.row = *plan::FindRowFormat(o.kv_dtype);
  if (o.weights == "f32") m.weights = WeightDType::kF32;
  if (o.weights == "bf16") m.weights = WeightDType::kBF16;
  if (!o.weight_bytes.empty()) {
    MLA_ASSIGN_OR_RETURN(m.weight_bytes, ParseSize(o.weight_bytes));
  }
  if (!o.reserve.empty()) {
    MLA_ASSIGN_OR_RETURN(m.reserve, ParseSize(o.reserve));
  }
  if (!o.keep_expanded.empty()) {
    MLA_ASSIGN_OR_RETURN(m.keep_bytes, ParseSize(o.keep_expanded));
  }
  m.ranks = {o.tp, o.dp, o.dcp, o.spread_experts, o.shard_latent};
  m.page_tokens = o.page_tokens;
  m.draft_tokens = o.draft_tokens;
  m.prefill_chunk = o.prefill_chunk;
  m.workers = o.threads > 0 ? o.threads : UsableCpus();
  MLA_ASSIGN_OR_RETURN(r.rates, RatesOf(o));
  return r;
}

}  // namespace mla::cli
