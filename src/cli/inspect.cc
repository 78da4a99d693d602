// mla inspect MODEL_OR_CONFIG: what the engine reads from a checkpoint, and what follows from it.
#include <filesystem>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/app.h"
#include "cli/command.h"
#include "cli/inspect_report.h"
#include "cli/output.h"
#include "contract/generation.h"
#include "contract/outline.h"
#include "io/checkpoint.h"
#include "mla/attention.h"
#include "mla/cache.h"
#include "weights/weights.h"

namespace mla::cli {
namespace {

namespace fs = std::filesystem;

// Only whether it can be read counts.
template <class T>
Status DropValue(const Result<T>& result) {
  return result.ok() ? Status() : Status(result.error());
}

// A model that can't be run still says what its attention is.
Result<int> RunOutline(const std::string& path, const Error& why_not, bool json) {
  const Result<contract::Outline> outline = contract::LoadOutline(path);
  if (!outline.ok()) return why_not;
  MLA_RETURN_IF_ERROR(WriteOut(json ? OutlineJson(*outline) : OutlineText(*outline)));
  MLA_RETURN_IF_ERROR(FlushOut());
  return io::HasSafetensors(path) ? Result<int>(why_not) : Result<int>(kDone);
}

Result<int> Run(const std::string& path, bool json) {
  const Result<InspectReport> report = Inspect(path);
  if (!report.ok()) return RunOutline(path, report.error(), json);
  MLA_RETURN_IF_ERROR(WriteOut(json ? InspectJson(*report) : InspectText(*report)));
  MLA_RETURN_IF_ERROR(FlushOut());
  return report->tensors && !report->tensors->report.ok() ? kFailed : kDone;
}

}  // namespace

Result<InspectReport> Inspect(const std::string& path) {
  InspectReport r;
  r.path = path;
  MLA_ASSIGN_OR_RETURN(r.config, contract::LoadConfig(path));
  const contract::ModelConfig& c = r.config;
  r.softmax_scale = contract::SoftmaxScale(c);
  r.softmax_formula = SoftmaxFormula(c.qk_nope_head_dim, c.qk_rope_head_dim, c.rope);
  r.cos_sin_scale = CosSinScale(c.rope);
  r.cos_sin_formula = CosSinFormula(c.rope);
  r.rope_fingerprint = RopeFingerprint(c.rope, c.max_position_embeddings);
  r.parameters = contract::CountParameters(c);
  r.cache_bytes_bf16 =
      MakeLatentLayout(c.kv_lora_rank, c.qk_rope_head_dim, c.num_hidden_layers, DType::kBF16).bytes_per_token();
  r.cache_bytes_f32 =
      MakeLatentLayout(c.kv_lora_rank, c.qk_rope_head_dim, c.num_hidden_layers, DType::kF32).bytes_per_token();
  r.mha_cache_bytes_bf16 = c.num_hidden_layers * c.num_attention_heads *
                           (c.qk_nope_head_dim + c.qk_rope_head_dim + c.v_head_dim) *
                           static_cast<std::int64_t>(DTypeBytes(DType::kBF16));
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    MLA_RETURN_IF_ERROR(DropValue(contract::LoadGenerationConfig(path, c.vocab_size)));
  }
  std::optional<io::Checkpoint> checkpoint;
  if (io::HasSafetensors(path)) {
    MLA_ASSIGN_OR_RETURN(checkpoint, io::Checkpoint::Open(path));
    r.tensors = InspectReport::Tensors{static_cast<std::int64_t>(checkpoint->tensors().size()),
                                       checkpoint->file_bytes(), contract::CheckTensors(c, *checkpoint)};
  }
  const auto weight_bytes = [&](WeightDType keep) {
    return weights::PlannedBytes(c, keep, checkpoint ? &*checkpoint : nullptr);
  };
  if (c.fp8) r.weight_bytes_fp8 = weight_bytes(WeightDType::kFp8);
  r.weight_bytes_bf16 = weight_bytes(WeightDType::kBF16);
  r.weight_bytes_f32 = weight_bytes(WeightDType::kF32);
  return r;
}

Action AddInspect(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("inspect", "Show what a checkpoint or a config.json says, and what follows from it");
  auto path = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  command->add_option("MODEL_OR_CONFIG", *path, "Model folder, or a config.json")->required();
  command->add_flag("--json", *json, "One JSON object");
  return [path, json] { return Run(*path, *json); };
}

}  // namespace mla::cli
