#include "cli/form_table.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "base/cpu_info.h"
#include "io/quote.h"
#include "mla_build_info.h"

namespace mla::cli {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// "" where both agree, else what differs.
std::string Difference(const bench::TuneMachine& here, const bench::TuneMachine& there) {
  const auto differs = [](const char* what, const std::string& expected, const std::string& found) {
    return fmt::format("{}: expected {}, found {}", what, io::Quoted(expected), io::Quoted(found));
  };
  if (here.processor != there.processor) return differs("processor", here.processor, there.processor);
  if (here.kernels != there.kernels) return differs("kernels", here.kernels, there.kernels);
  if (here.kv_dtype != there.kv_dtype) return differs("kv_dtype", here.kv_dtype, there.kv_dtype);
  if (here.weights != there.weights) return differs("weights", here.weights, there.weights);
  return "";
}

Result<FormTable> TableAskedFor(const std::string& path, const bench::TuneMachine& here, const Log& log) {
  Result<bench::ReadTable> read = bench::ReadTuneFile(path);
  if (!read.ok()) return Error{"--tune-table: " + read.error().message};
  const std::string difference = Difference(here, read->file.machine);
  if (!difference.empty()) {
    return Error{fmt::format("--tune-table: {}: {}: was measured elsewhere", io::Printable(path), difference)};
  }
  if (read->file.machine.build != here.build && log) {
    log->warn("{}: was measured by another build, {}", io::Printable(path), io::Quoted(read->file.machine.build));
  }
  return std::move(read->table);
}

FormTable TableOfCache(const std::string& path, const bench::TuneMachine& here, const Log& log) {
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return {};
  const auto shipped = [&](const std::string& why) {
    if (log)
      log->warn("{}; the shipped rates choose the form (mla tune measures, --tune-table shipped hides this)", why);
    return FormTable{};
  };
  Result<bench::ReadTable> read = bench::ReadTuneFile(path);
  if (!read.ok()) return shipped(read.error().message);
  std::string difference = Difference(here, read->file.machine);
  if (difference.empty() && read->file.machine.build != here.build) {
    difference =
        fmt::format("build: expected {}, found {}", io::Quoted(here.build), io::Quoted(read->file.machine.build));
  }
  if (!difference.empty()) return shipped(fmt::format("{}: {}", io::Printable(path), difference));
  return std::move(read->table);
}

}  // namespace

std::string DefaultTunePath() {
  // The XDG base directory specification: a relative path is invalid and to be ignored.
  const std::string cache = Variable("XDG_CACHE_HOME");
  if (!cache.empty() && cache.front() == '/') return cache + "/mla/tune.json";
  const std::string home = Variable("HOME");
  return home.empty() ? "" : home + "/.cache/mla/tune.json";
}

bench::TuneMachine TuneMachineOf(const ComputeOptions& options, const std::string& kernels, int threads) {
  bench::TuneMachine machine;
  machine.processor = DetectCpu().model;
  machine.kernels = kernels;
  machine.build = fmt::format("{} {} {} {}", MLA_BUILD_VERSION, MLA_BUILD_COMMIT, MLA_BUILD_COMPILER, MLA_BUILD_TYPE);
  machine.threads = threads;
  machine.kv_dtype = options.kv_dtype;
  machine.weights = WeightsOf(options) == WeightDType::kF32 ? "f32" : "bf16";
  return machine;
}

Result<FormTable> ChooseFormTable(const ComputeOptions& options, const Log& log) {
  if (options.tune_table == kShippedTable) return FormTable{};
  if (options.tune_table.empty() && options.mode != "auto") return FormTable{};
  MLA_ASSIGN_OR_RETURN(const Isa isa, SelectIsa(DetectCpu(), options.kernels));
  const bench::TuneMachine here = TuneMachineOf(options, IsaName(isa), 1);
  if (!options.tune_table.empty()) return TableAskedFor(options.tune_table, here, log);
  return TableOfCache(DefaultTunePath(), here, log);
}

}  // namespace mla::cli
