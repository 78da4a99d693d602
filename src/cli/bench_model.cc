#include "cli/bench_model.h"

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "base/buffer.h"
#include "base/cpu_info.h"
#include "bench/least.h"
#include "bench/model_bench.h"
#include "bench/probe.h"
#include "bench/random_fill.h"
#include "cli/app.h"
#include "cli/bench_report.h"
#include "cli/interrupt.h"
#include "cli/load.h"
#include "cli/output.h"
#include "model/model.h"
#include "weights/weights.h"

namespace mla::cli {
namespace {

// What changes the memory that is needed, beside --weights and --memory.
constexpr std::string_view kSizeFlags = "--context, --prompt, --prompt-after, --sequences, --working-set";

// What the engine may have beside the buffer that limits are read from, as --memory says it.
Result<ComputeOptions> BesideBuffer(const BenchOptions& o, std::int64_t buffer) {
  MLA_ASSIGN_OR_RETURN(const std::int64_t limit, MemoryLimit(o));
  if (buffer >= limit) {
    return Error{
        fmt::format("memory: --working-set alone takes {} and {} may be used", HumanBytes(buffer), HumanBytes(limit))};
  }
  ComputeOptions beside = o;
  if (buffer > 0) beside.memory = fmt::format("{}", limit - buffer);
  return beside;
}

// What limits are measured with, and on.
struct Limits {
  Buffer buffer;
  std::unique_ptr<bench::Probe> probe;
  bench::LeastModel model;
  std::unique_ptr<bench::LimitMeter> meter;
};

Result<Limits> MakeLimits(const BenchOptions& o, const contract::ModelConfig& config, const LoadedEngine& loaded,
                          std::int64_t bytes) {
  Limits limits;
  const CpuInfo cpu = DetectCpu();
  MLA_ASSIGN_OR_RETURN(limits.buffer, Buffer::Allocate(bytes, "bench reads"));
  bench::FillNormal(reinterpret_cast<float*>(limits.buffer.data()), bytes / 4, bench::TensorKey(1, "reads"),
                    *loaded.pool);
  limits.probe = std::make_unique<bench::Probe>(*loaded.pool, cpu);
  limits.model =
      bench::MakeLeastModel(config, WeightsOf(o), KvDTypeOf(o), SelectIsa(cpu, loaded.engine->kernels()).value(),
                            loaded.engine->options().keep_bytes);
  limits.meter = std::make_unique<bench::LimitMeter>(limits.probe.get(), limits.model,
                                                     std::span(limits.buffer.data(), static_cast<std::size_t>(bytes)));
  return limits;
}

Result<EngineOptions> EngineFor(const BenchOptions& o, const bench::ModelBenchOptions& run, std::int64_t positions) {
  const std::int64_t context = bench::ContextNeeded(run);
  if (context > positions) {
    return Error{
        fmt::format("--context, --tokens, --prompt, --prompt-after: expected at most the model's {} "
                    "positions, found {}",
                    positions, context)};
  }
  EngineOptions engine = EngineOptionsOf(o, context);
  engine.max_sequences = run.sequences;
  engine.cache_pages = bench::PagesNeeded(run, engine.page_tokens);
  engine.profile = o.profile;
  return engine;
}

}  // namespace

Result<int> RunModel(const BenchOptions& o, const Log& log) {
  const InterruptScope interrupt;
  MLA_ASSIGN_OR_RETURN(const model::Opened opened, model::Open(o.model));
  ModelReport report;
  report.options = o.engine;
  report.options.vocab_size = opened.info.vocab_size;
  report.options.dims = weights::DimsOf(opened.config);
  MLA_ASSIGN_OR_RETURN(const EngineOptions engine, EngineFor(o, report.options, opened.info.max_position_embeddings));
  MLA_ASSIGN_OR_RETURN(const std::int64_t working_set, WorkingSetOf(o));
  MLA_ASSIGN_OR_RETURN(const ComputeOptions beside, BesideBuffer(o, working_set));
  MLA_ASSIGN_OR_RETURN(const LoadedEngine loaded,
                       LoadEngine(beside, opened, engine, ThreadCount(o, log), kSizeFlags, log));
  WarnOfRejectedKernels(*loaded.engine, log);
  report.machine = {DetectCpu().model, loaded.engine->kernels(), loaded.pool->workers()};
  report.options.workers = loaded.pool->workers();
  report.model = o.model;
  report.weights = KeptWeights(o, opened.config);
  report.weight_bytes = loaded.model->weight_bytes();
  report.kv_dtype = o.kv_dtype;
  report.mode = o.mode;
  report.form_table = loaded.engine->options().form_table.id;
  std::optional<Limits> limits;
  std::optional<bench::ModelLimits> measured;
  if (working_set > 0) {
    MLA_ASSIGN_OR_RETURN(limits, MakeLimits(o, opened.config, loaded, working_set));
    measured = {&limits->model, limits->meter.get()};
  }
  MLA_ASSIGN_OR_RETURN(report.result, bench::BenchModel(*loaded.engine, report.options, measured));
  MLA_RETURN_IF_ERROR(WriteOut(o.json ? ModelJson(report) : o.csv ? ModelCsv(report) : ModelText(report)));
  MLA_RETURN_IF_ERROR(FlushOut());
  return kDone;
}

}  // namespace mla::cli
