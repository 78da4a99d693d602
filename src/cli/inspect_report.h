// What `mla inspect` knows of a config, and of a checkpoint where there is one.
#ifndef MLA_CLI_INSPECT_REPORT_H_
#define MLA_CLI_INSPECT_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/config.h"
#include "contract/outline.h"
#include "contract/tensors.h"
#include "mla/result.h"

namespace mla::cli {

struct InspectReport {
  std::string path;
  contract::ModelConfig config;
  double softmax_scale = 0;
  std::string softmax_formula;  // with this config's numbers
  double cos_sin_scale = 1;
  std::string cos_sin_formula;
  std::uint64_t rope_fingerprint = 0;  // in the model's full context
  contract::ParameterCount parameters;
  std::optional<std::int64_t> weight_bytes_fp8;  // where the config has fp8
  std::int64_t weight_bytes_bf16 = 0;            // as the engine keeps them, both copies of w_kc counted
  std::int64_t weight_bytes_f32 = 0;
  std::int64_t cache_bytes_bf16 = 0;  // per token over all layers, with row padding
  std::int64_t cache_bytes_f32 = 0;
  std::int64_t mha_cache_bytes_bf16 = 0;  // per token, K [H, N + P] and V [H, V] of the same heads
  // Of a checkpoint; empty for a config alone.
  struct Tensors {
    std::int64_t count = 0;
    std::int64_t file_bytes = 0;
    contract::TensorReport report;
  };
  std::optional<Tensors> tensors;
};

// `path` is a model folder, or a config.json alone. A folder without safetensors files is taken for its config.
Result<InspectReport> Inspect(const std::string& path);

// The formulas behind the two scales, with the numbers of a config.
std::string SoftmaxFormula(std::int64_t nope, std::int64_t rope_dim, const RopeSpec& rope);
std::string CosSinFormula(const RopeSpec& rope);

// The same of a model that can't be run, as far as it goes.
std::string OutlineText(const contract::Outline& outline);
std::string OutlineJson(const contract::Outline& outline);

// The report as text for a person, and as one JSON object.
std::string InspectText(const InspectReport& report);
std::string InspectJson(const InspectReport& report);

}  // namespace mla::cli

#endif  // MLA_CLI_INSPECT_REPORT_H_
