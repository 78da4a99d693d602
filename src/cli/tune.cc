// mla tune [SHAPE...]: measures what `--mode auto` chooses by, and keeps it in a file.
#include "bench/tune.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/cpu_info.h"
#include "bench/tune_file.h"
#include "bench/tune_products.h"
#include "cli/app.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/form_table.h"
#include "cli/interrupt.h"
#include "cli/load.h"
#include "cli/output.h"
#include "io/new_file.h"
#include "io/quote.h"

namespace mla::cli {
namespace {

struct TuneOptions : ComputeOptions {
  std::vector<std::string> shapes;
  std::string output;
  std::string name;
  double seconds = 45;
};

struct Tuned {
  std::string path;
  bench::ReadTable read;
  double seconds = 0;
};

std::string TableName(const TuneOptions& o, const std::string& path) {
  if (!o.name.empty()) return o.name;
  std::string stem = std::filesystem::path(path).stem().string();
  return bench::IsTableName(stem) ? stem : "tune";
}

Result<std::string> OutputPath(const TuneOptions& o) {
  if (!o.output.empty()) return o.output;
  std::string path = DefaultTunePath();
  if (path.empty()) return Error{"--output: expected a file, since neither XDG_CACHE_HOME nor HOME names a folder"};
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error) return io::CantWrite(path, error.value());
  return path;
}

Result<std::vector<bench::TuneShape>> ShapesOf(const TuneOptions& o) {
  std::vector<bench::TuneShape> shapes;
  for (const std::string& like : o.shapes.empty() ? bench::DefaultTuneShapes() : o.shapes) {
    MLA_ASSIGN_OR_RETURN(bench::TuneShape shape, bench::TuneShapeOf(like));
    const auto same = [&](const bench::TuneShape& other) { return other.dims == shape.dims; };
    if (!std::any_of(shapes.begin(), shapes.end(), same)) shapes.push_back(std::move(shape));
  }
  return shapes;
}

// One bench has memory at a time.
Status FitsMemory(const TuneOptions& o, const std::vector<bench::FormPlan>& plans, int threads) {
  MLA_ASSIGN_OR_RETURN(const std::int64_t limit, MemoryLimit(o));
  std::int64_t needed = bench::TunedProductsBytes(PlainWeightsOf(o), threads);
  for (const bench::FormPlan& plan : plans) needed = std::max(needed, bench::FormBench::PlannedBytes(plan, threads));
  if (needed <= limit) return {};
  return Error{fmt::format("memory: {} are needed for the largest bench and {} may be used", HumanBytes(needed),
                           HumanBytes(limit))};
}

// Thousands of millions of multiply-adds a second, at the longest cached length.
std::string RatesLine(const bench::TunedShape& shape, const bench::ReadTable& read) {
  const MeasuredForms& m = shape.forms;
  const std::size_t last = m.cached.size() - 1;
  const auto rate = [&](Form form, std::size_t row) { return bench::RateAt(m, form, row, last) / 1e9; };
  const auto crossing = [&](const FormTable& table) {
    const std::int64_t rows = bench::FewestMhaRows(table, m.dims, 4096);
    return rows == 0 ? std::string("never") : fmt::format("{}", rows);
  };
  FormTable analytic;
  analytic.chunk = read.table.chunk;
  return fmt::format("{:<22}{:>7}{:>8}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.1f}{:>10}{:>10}\n", shape.name, shape.passes,
                     m.cached[last], rate(Form::kMha, 0), rate(Form::kMha, m.rows.size() - 1), rate(Form::kAbsorbed, 0),
                     rate(Form::kAbsorbed, m.rows.size() - 1), crossing(read.table), crossing(analytic));
}

std::string TuneText(const Tuned& t) {
  const bench::TuneFile& file = t.read.file;
  std::string text =
      fmt::format("processor: {}\nthreads: {}, kernels: {}, cache rows {}, kv_b {}\n\n",
                  file.machine.processor.empty() ? "unknown" : file.machine.processor, file.machine.threads,
                  file.machine.kernels, file.machine.kv_dtype, file.machine.weights);
  text += "10^9 multiply-adds a second after so many cached positions, and the new rows from which MHA is the faster\n";
  text += fmt::format("{:<22}{:>7}{:>8}{:>20}{:>20}{:>20}\n", "", "", "",
                      "mha, rows:", "absorbed, rows:", "from, of 4096 keys:");
  text += fmt::format("{:<22}{:>7}{:>8}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "shape", "passes", "cached", 1,
                      file.chunk, 1, file.chunk, "measured", "analytic");
  for (const bench::TunedShape& shape : file.shapes) text += RatesLine(shape, t.read);
  text += fmt::format("\n{:<22}", "products, rows:");
  for (const std::int64_t rows : file.products.rows) text += fmt::format("{:>8}", rows);
  text += fmt::format("\n{:<22}", "");
  const plan::Rates rates = bench::RatesOf(t.read);
  for (const plan::ProductRate& rate : rates.measured_products)
    text += fmt::format("{:>8.1f}", rate.multiply_adds / 1e9);
  text += fmt::format("\n{:<22}{:>8.1f} * 10^9 bytes a second\n", "reads", rates.read_bytes / 1e9);
  return text + fmt::format("\n{} in {:.0f} s: {}\n", t.read.table.id, t.seconds, io::Printable(t.path));
}

std::string TuneJson(const Tuned& t) {
  nlohmann::ordered_json json;
  json["form_table"] = t.read.table.id;
  json["path"] = t.path;
  json["seconds"] = t.seconds;
  json["table"] = nlohmann::ordered_json::parse(bench::TuneFileText(t.read.file));
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Result<std::vector<bench::TunedShape>> Measure(const TuneOptions& o, const std::vector<bench::TuneShape>& shapes,
                                               const std::vector<bench::FormPlan>& plans, Isa isa, Executor& pool,
                                               double seconds) {
  const std::vector<double> shares = bench::ShareSeconds(shapes, bench::TuneGrid(), seconds);
  ProgressLine progress(!o.quiet, "measuring shape", ProgressLine::Unit::kCount);
  std::vector<bench::TunedShape> tuned;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    progress.Update(static_cast<std::int64_t>(i) + 1, static_cast<std::int64_t>(shapes.size()));
    MLA_ASSIGN_OR_RETURN(bench::FormBench bench, bench::FormBench::Create(plans[i], isa, pool));
    tuned.push_back(bench::Tune(&bench, shapes[i], bench::TuneGrid(), shares[i]));
  }
  return tuned;
}

Result<int> Run(const TuneOptions& o, const Log& log) {
  const InterruptScope interrupt;
  MLA_ASSIGN_OR_RETURN(const std::vector<bench::TuneShape> shapes, ShapesOf(o));
  MLA_ASSIGN_OR_RETURN(const Isa isa, UsableIsa(o, log));
  const int threads = ThreadCount(o, log);
  std::vector<bench::FormPlan> plans;
  plans.reserve(shapes.size());
  for (const bench::TuneShape& shape : shapes) {
    plans.push_back(bench::TunePlan(shape, bench::TuneGrid(), KvDTypeOf(o), PlainWeightsOf(o)));
  }
  MLA_RETURN_IF_ERROR(FitsMemory(o, plans, threads));
  MLA_ASSIGN_OR_RETURN(const std::string path, OutputPath(o));
  const std::unique_ptr<Executor> pool = MakePool(o, threads);

  Tuned tuned;
  tuned.path = path;
  const auto begin = Clock::now();
  bench::TuneFile file;
  file.name = TableName(o, path);
  file.machine = TuneMachineOf(o, IsaName(isa), pool->workers());
  const double for_products = std::min(4.0, o.seconds / 8);
  MLA_ASSIGN_OR_RETURN(file.products, bench::MeasureProducts(PlainWeightsOf(o), isa, *pool, for_products));
  MLA_ASSIGN_OR_RETURN(file.shapes, Measure(o, shapes, plans, isa, *pool, o.seconds - for_products));
  tuned.seconds = Since(begin);
  const std::string text = bench::TuneFileText(file);
  MLA_ASSIGN_OR_RETURN(tuned.read, bench::ParseTuneFile(text, io::Printable(path)));
  MLA_RETURN_IF_ERROR(io::ReplaceFile(path, text));
  MLA_RETURN_IF_ERROR(WriteOut(o.json ? TuneJson(tuned) : TuneText(tuned)));
  MLA_RETURN_IF_ERROR(FlushOut());
  return kDone;
}

void AddFlags(CLI::App& c, TuneOptions* o) {
  c.add_option("SHAPE", o->shapes,
               "Models whose attention is measured: demo, a published name, a folder or a config.json; default: demo, "
               "deepseek-v2-lite, deepseek-v3, glm-4.7-flash, minicpm3, whose nearest serves any other");
  c.add_option("--output,-o", o->output,
               "Where the table goes; default: mla/tune.json in the user's cache folder, where "
               "other commands look for it");
  c.add_option("--name", o->name, "The table's name, part of its id; default: its file's")
      ->check([](const std::string& name) {
        return bench::IsTableName(name) ? std::string()
                                        : "expected 1 to 64 letters, digits, '.', '_' or '-', found '" + name + "'";
      });
  c.add_option("--seconds", o->seconds, "About how long to measure")
      ->check(NumberIn(0, false, 3600))
      ->capture_default_str();
  AddMachineFlags(c, o);
  c.add_flag("--json", o->json, "Print one JSON object");
  c.add_flag("--quiet,-q", o->quiet, "No progress");
}

}  // namespace

Action AddTune(CLI::App& app, const Log& log) {
  CLI::App* command = app.add_subcommand(
      "tune", "Measure on this machine what --mode auto chooses the form by, and what plans tell the time by");
  auto options = std::make_shared<TuneOptions>();
  AddFlags(*command, options.get());
  return [options, log] { return Run(*options, log); };
}

}  // namespace mla::cli
