#include "cli/load.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "attention/choose.h"
#include "cli/form_table.h"
#include "cli/output.h"
#include "engine/limits.h"

namespace mla::cli {
namespace {

Status FitsMemory(const MemoryPlan& plan, std::int64_t limit, std::string_view context_flag) {
  if (plan.total() <= limit) return {};
  return Error{
      fmt::format("memory: {} are needed (weights {}, cache {}, workspace {}) and {} may be used; {}, "
                  "--weights and --memory change that",
                  HumanBytes(plan.total()), HumanBytes(plan.weights), HumanBytes(plan.cache),
                  HumanBytes(plan.workspace + plan.tables), HumanBytes(limit), context_flag)};
}

// A product, at most 2^60: a plan of four of them still has a sum.
std::int64_t Saturated(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return std::int64_t{1} << 60;
  }
  return std::min(product, std::int64_t{1} << 60);
}

// Weights as the reference keeps them, keys and values of every head, and a chunk's logits. The caches grow by
// doubling: for a moment the old one stands beside the new.
MemoryPlan PlannedReference(const contract::ModelConfig& c, const io::Checkpoint& checkpoint, std::int64_t context,
                            std::int64_t chunk) {
  std::int64_t parameters = 0;
  for (const io::Tensor& tensor : checkpoint.tensors()) parameters += tensor.elements();
  constexpr std::int64_t kDouble = sizeof(double);
  MemoryPlan plan;
  plan.weights = Saturated({parameters, kDouble});
  plan.cache = Saturated({context, c.num_hidden_layers, c.num_attention_heads,
                          c.qk_nope_head_dim + c.qk_rope_head_dim + c.v_head_dim, 2 * kDouble});
  plan.workspace = Saturated({std::min(chunk, context), c.vocab_size, kDouble});
  return plan;
}

}  // namespace

Result<std::unique_ptr<Model>> LoadModel(const ComputeOptions& options, const model::Opened& opened,
                                         Executor& executor) {
  LoadOptions load;
  load.weights = WeightsOf(options);
  load.huge_pages = HugePagesOf(options);
  ProgressLine progress(!options.quiet);
  load.progress = [&](std::int64_t done, std::int64_t total) { progress.Update(done, total); };
  MLA_ASSIGN_OR_RETURN(Model model, model::LoadOpened(opened, load, executor));
  return std::make_unique<Model>(std::move(model));
}

Result<LoadedEngine> LoadEngine(const ComputeOptions& options, const model::Opened& opened, std::int64_t context,
                                int threads, std::string_view context_flag, const Log& log) {
  return LoadEngine(options, opened, EngineOptionsOf(options, context), threads, context_flag, log);
}

Result<LoadedEngine> LoadEngine(const ComputeOptions& options, const model::Opened& opened,
                                EngineOptions engine_options, int threads, std::string_view context_flag,
                                const Log& log) {
  MLA_ASSIGN_OR_RETURN(const std::int64_t limit, MemoryLimit(options));
  MLA_ASSIGN_OR_RETURN(engine_options.form_table, ChooseFormTable(options, log));
  MLA_ASSIGN_OR_RETURN(const engine::Sizes sizes, engine::Resolve(opened.config, engine_options, threads));
  MemoryPlan plan = engine::Planned(opened.config, sizes);
  plan.weights = model::PlannedWeightBytes(opened, WeightsOf(options));
  MLA_RETURN_IF_ERROR(FitsMemory(plan, limit, context_flag));
  MLA_RETURN_IF_ERROR(FitsHugePages(options, plan, opened.config.num_hidden_layers));

  LoadedEngine loaded;
  loaded.pool = MakePool(options, threads);
  MLA_ASSIGN_OR_RETURN(loaded.model, LoadModel(options, opened, *loaded.pool));
  MLA_ASSIGN_OR_RETURN(Engine engine, Engine::Create(*loaded.model, engine_options, *loaded.pool));
  loaded.engine = std::make_unique<Engine>(std::move(engine));
  return loaded;
}

std::int64_t WarnOfRejectedKernels(std::span<const RejectedKernels> rejected, const char* used, const Log& log) {
  for (const RejectedKernels& set : rejected) {
    log->warn("{} kernels failed their self-test and are not used ({}); {} kernels are used instead", set.name,
              set.fault, used);
  }
  return static_cast<std::int64_t>(rejected.size());
}

std::int64_t WarnOfRejectedKernels(const Engine& engine, const Log& log) {
  return WarnOfRejectedKernels(engine.rejected_kernels(), engine.kernels(), log);
}

Result<Isa> UsableIsa(const ComputeOptions& options, const Log& log) {
  const CpuInfo cpu = DetectCpu();
  MLA_RETURN_IF_ERROR(SelectIsa(cpu, options.kernels));
  MLA_ASSIGN_OR_RETURN(const attention::KernelChoice choice,
                       attention::ChooseKernels(attention::MachineKernels(cpu), options.kernels));
  WarnOfRejectedKernels(choice.rejected, IsaName(choice.kernels.isa), log);
  return choice.kernels.isa;
}

Result<LoadedReference> LoadReference(const ComputeOptions& options, const model::Opened& opened,
                                      std::int64_t context) {
  MLA_ASSIGN_OR_RETURN(const std::int64_t limit, MemoryLimit(options));
  const MemoryPlan plan = PlannedReference(opened.config, opened.checkpoint, context, options.prefill_chunk);
  if (plan.total() > limit) {
    return Error{
        fmt::format("memory: the float64 reference needs {} (weights {}, keys and values {}) and {} may be used",
                    HumanBytes(plan.total()), HumanBytes(plan.weights), HumanBytes(plan.cache), HumanBytes(limit))};
  }
  MLA_ASSIGN_OR_RETURN(auto model, reference::ReferenceModel::Load(opened.config, opened.checkpoint, context));
  return LoadedReference{std::move(model), plan};
}

}  // namespace mla::cli
