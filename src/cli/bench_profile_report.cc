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

PhaseRates RatesOf(const bench::PhaseResult& phase, const bench::Rates& limits) {
  PhaseRates rates;
  rates.operations = Ratio(phase.work.operations, phase.seconds);
  rates.bytes = Ratio(phase.work.bytes, phase.seconds);
  rates.of_peak = Ratio(rates.operations.value_or(0), limits.peak);
  rates.of_read = Ratio(rates.bytes.value_or(0), limits.read);
  return rates;
}

std::optional<double> Giga(std::optional<double> value) {
  if (value) *value /= 1e9;
  return value;
}

std::string PhaseLine(const bench::ProfileResult& profile, const bench::PhaseResult& phase,
                      const bench::Rates& limits) {
  const PhaseRates rates = RatesOf(phase, limits);
  return fmt::format("  {:<12}{:>11.1f}{:>8.3f}{:>10}{:>9}{:>8}{:>9}{:>12.1f}{:>11.1f}\n", phase.name,
                     phase.seconds * 1e6, phase.seconds / profile.seconds, Number(Giga(rates.operations), 1),
                     Number(rates.of_peak, 3), Number(Giga(rates.bytes), 1), Number(rates.of_read, 2),
                     phase.busy_largest * 1e6, phase.busy_mean * 1e6);
}

std::string PartLine(const bench::ProfileResult& profile, const char* name, double seconds) {
  return fmt::format("  {:<12}{:>11.1f}{:>8.3f}\n", name, seconds * 1e6, seconds / profile.seconds);
}

std::string MovedText(const char* what, std::int64_t moved, std::int64_t needed) {
  return fmt::format("{} {} read, {} needed ({:.2f})", what, HumanBytes(moved), HumanBytes(needed),
                     static_cast<double>(moved) / static_cast<double>(needed));
}

// Of steps of a model or a layer: the forms, the products outside of them, and what is left.
std::string SharesText(const bench::ProfileResult& p) {
  const double attention = p.absorbed_seconds + p.mha_seconds;
  const StepProfile& counts = p.counts;
  return fmt::format(
      "  of the run: absorbed {:.3f}, mha {:.3f}, other products {:.3f} ({:.1f} GFLOP/s, {:.1f} GB/s), the rest "
      "{:.3f}\n",
      p.absorbed_seconds / p.seconds, p.mha_seconds / p.seconds, p.product_seconds / p.seconds,
      counts.product_operations / p.product_seconds / 1e9,
      static_cast<double>(counts.product_weight_bytes) / p.product_seconds / 1e9,
      (p.seconds - attention - p.product_seconds) / p.seconds);
}

}  // namespace

Fields PhaseFields(const bench::ProfileResult& profile, const bench::PhaseResult& phase, const bench::Rates& limits) {
  const PhaseRates rates = RatesOf(phase, limits);
  return {{"phase_seconds", phase.seconds},
          {"phase_share", phase.seconds / profile.seconds},
          {"phase_flops", phase.work.operations},
          {"phase_gflops", Giga(rates.operations)},
          {"phase_of_peak", rates.of_peak},
          {"phase_bytes", phase.work.bytes},
          {"phase_gbytes_per_second", Giga(rates.bytes)},
          {"phase_of_read", rates.of_read},
          {"busy_largest_seconds", phase.busy_largest},
          {"busy_mean_seconds", phase.busy_mean}};
}

Fields ProfileFields(const bench::ProfileResult& profile) {
  const AttentionProfile& a = profile.counts.attention;
  const auto number = [](std::int64_t n) { return static_cast<double>(n); };
  return {{"run_seconds", profile.seconds},
          {"other_seconds", profile.other_seconds()},
          {"absorbed_seconds", profile.absorbed_seconds},
          {"mha_seconds", profile.mha_seconds},
          {"product_seconds", profile.product_seconds},
          {"merge_share", profile.merge_seconds / profile.seconds},
          {"cache_bytes_needed", number(a.cache_bytes_needed)},
          {"cache_bytes_read", number(a.cache_bytes_read)},
          {"kv_b_bytes_needed", number(a.weight_bytes_needed)},
          {"kv_b_bytes_read", number(a.weight_bytes_read)},
          {"product_weight_bytes_read", number(profile.counts.product_weight_bytes)},
          {"kept_bytes", number(a.kept_bytes)},
          {"pairs", number(a.absorbed_pairs + a.mha_pairs)},
          {"pairs_computed", number(a.absorbed_computed + a.mha_computed)},
          {"tile_waste", profile.tile_waste()},
          {"expansions", profile.expansions()},
          {"weight_conversions", number(profile.weight_conversions())}};
}

std::string ProfileText(const bench::ProfileResult& profile, const bench::Rates& limits) {
  const AttentionProfile& a = profile.counts.attention;
  std::string text = fmt::format("  {:<12}{:>11}{:>8}{:>10}{:>9}{:>8}{:>9}{:>12}{:>11}\n", "phase", "us", "of run",
                                 "GFLOP/s", "of peak", "GB/s", "of read", "busiest us", "mean us");
  for (const bench::PhaseResult& phase : profile.phases) text += PhaseLine(profile, phase, limits);
  text += PartLine(profile, "other", profile.other_seconds());
  if (profile.product_seconds > 0) text += SharesText(profile);
  text += fmt::format("  {}; {}; {} kept between phases\n",
                      MovedText("cache rows", a.cache_bytes_read, a.cache_bytes_needed),
                      MovedText("kv_b", a.weight_bytes_read, a.weight_bytes_needed), HumanBytes(a.kept_bytes));
  text += fmt::format("  tile waste {:.4f}, merge {:.4f} of the run, {} positions expanded, {} weights converted\n",
                      profile.tile_waste(), profile.merge_seconds / profile.seconds, profile.expansions(),
                      profile.weight_conversions());
  return text;
}

}  // namespace mla::cli
