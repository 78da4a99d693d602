#include "cli/bench_profile_report.h"

#include <fmt/format.h>

#include "cli/output.h"

namespace mla::cli {
namespace {

std::optional<double> Ratio(double a, double b) { return a > 0 && b > 0 ? std::optional<double>(a / b) : std::nullopt; }

std::string Number(const std::optional<double>& value, int decimals) {
  return value ? fmt::format("{:.{}f}", *value, decimals) : "-";
}

// Rates of a phase, and their shares of the case's limits.
struct PhaseRates {
  std::optional<double> operations;  // a second
  std::optional<double> bytes;
  std::optional<double> of_peak;
  std::optional<double> of_read;
};

PhaseRates RatesOf(const bench::CaseResult& c, const bench::PhaseResult& phase) {
  PhaseRates rates;
  rates.operations = Ratio(phase.operations, phase.seconds);
  rates.bytes = Ratio(phase.bytes, phase.seconds);
  rates.of_peak = Ratio(rates.operations.value_or(0), c.measured.rates.peak);
  rates.of_read = Ratio(rates.bytes.value_or(0), c.measured.rates.read);
  return rates;
}

std::optional<double> Giga(std::optional<double> value) {
  if (value) *value /= 1e9;
  return value;
}

std::string PhaseLine(const bench::CaseResult& c, const bench::PhaseResult& phase) {
  const PhaseRates rates = RatesOf(c, phase);
  return fmt::format("  {:<12}{:>11.1f}{:>8.3f}{:>10}{:>9}{:>8}{:>9}{:>12.1f}{:>11.1f}\n", phase.name,
                     phase.seconds * 1e6, phase.seconds / c.profile->seconds, Number(Giga(rates.operations), 1),
                     Number(rates.of_peak, 3), Number(Giga(rates.bytes), 1), Number(rates.of_read, 2),
                     phase.busy_largest * 1e6, phase.busy_mean * 1e6);
}

std::string MovedText(const char* what, std::int64_t moved, std::int64_t needed) {
  return fmt::format("{} {} read, {} needed ({:.2f})", what, HumanBytes(moved), HumanBytes(needed),
                     static_cast<double>(moved) / static_cast<double>(needed));
}

}  // namespace

Fields PhaseFields(const bench::CaseResult& c, const bench::PhaseResult& phase) {
  const PhaseRates rates = RatesOf(c, phase);
  return {{"phase_seconds", phase.seconds},
          {"phase_share", phase.seconds / c.profile->seconds},
          {"phase_flops", phase.operations},
          {"phase_gflops", Giga(rates.operations)},
          {"phase_of_peak", rates.of_peak},
          {"phase_bytes", phase.bytes},
          {"phase_gbytes_per_second", Giga(rates.bytes)},
          {"phase_of_read", rates.of_read},
          {"busy_largest_seconds", phase.busy_largest},
          {"busy_mean_seconds", phase.busy_mean}};
}

Fields ProfileFields(const bench::CaseResult& c) {
  const bench::ProfileResult& profile = *c.profile;
  const AttentionProfile& a = profile.attention;
  const auto number = [](std::int64_t n) { return static_cast<double>(n); };
  return {{"run_seconds", profile.seconds},
          {"other_seconds", profile.other_seconds()},
          {"merge_share", profile.merge_share()},
          {"cache_bytes_needed", number(a.cache_bytes_needed)},
          {"cache_bytes_read", number(a.cache_bytes_read)},
          {"weight_bytes_needed", number(a.weight_bytes_needed)},
          {"weight_bytes_read", number(a.weight_bytes_read)},
          {"kept_bytes", number(a.kept_bytes)},
          {"pairs", number(a.absorbed_pairs + a.mha_pairs)},
          {"pairs_computed", number(a.absorbed_computed + a.mha_computed)},
          {"tile_waste", profile.tile_waste()},
          {"expansions", profile.expansions(c.dims)},
          {"weight_conversions", number(a.weight_conversions)}};
}

std::string ProfileText(const bench::CaseResult& c) {
  const bench::ProfileResult& profile = *c.profile;
  const AttentionProfile& a = profile.attention;
  std::string text = fmt::format("  {:<12}{:>11}{:>8}{:>10}{:>9}{:>8}{:>9}{:>12}{:>11}\n", "phase", "us", "of run",
                                 "GFLOP/s", "of peak", "GB/s", "of read", "busiest us", "mean us");
  for (const bench::PhaseResult& phase : profile.phases) text += PhaseLine(c, phase);
  text += fmt::format("  {:<12}{:>11.1f}{:>8.3f}\n", "other", profile.other_seconds() * 1e6,
                      profile.other_seconds() / profile.seconds);
  text += fmt::format("  {}; {}; {} kept between phases\n",
                      MovedText("cache rows", a.cache_bytes_read, a.cache_bytes_needed),
                      MovedText("weights", a.weight_bytes_read, a.weight_bytes_needed), HumanBytes(a.kept_bytes));
  text += fmt::format("  tile waste {:.4f}, merge {:.4f} of the run, {} positions expanded, {} weights converted\n",
                      profile.tile_waste(), profile.merge_share(), profile.expansions(c.dims), a.weight_conversions);
  return text;
}

}  // namespace mla::cli
