#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "bench/random_fill.h"
#include "bench/synthetic.h"
#include "contract/fp8.h"
#include "contract/tensors.h"

namespace mla::bench {
namespace {

constexpr double kScoreDeviation = 4.0;
constexpr double kRouterDeviation = 1.5;
constexpr double kBiasDeviation = 0.1;
constexpr double kLogitDeviation = 4.0;
constexpr double kNormDeviation = 0.1;

struct Spread {
  double mean;
  double deviation;
};

Spread SpreadOf(const contract::ModelConfig& c, std::string_view name, const std::vector<std::int64_t>& shape) {
  if (name.ends_with("e_score_correction_bias")) return {0, kBiasDeviation};
  if (shape.size() == 1) return {1, kNormDeviation};
  // A tied head would name the last token again, whose embedding the residual still holds: it is made small beside
  // what the layers add.
  if (name.ends_with("embed_tokens.weight")) return {0, (c.tie_word_embeddings ? 0.1 : 1.0) / c.embedding_scale};
  double gain = 1;
  if (name.ends_with("lm_head.weight") || name.ends_with("shared_head.head.weight")) gain = kLogitDeviation;
  if (name.ends_with("mlp.gate.weight")) gain = kRouterDeviation;
  if (name.ends_with("self_attn.q_b_proj.weight") || name.ends_with("self_attn.q_proj.weight")) {
    // A score is a sum of N + P products of numbers of variance 1, times the softmax scale.
    const auto width = static_cast<double>(c.qk_nope_head_dim + c.qk_rope_head_dim);
    gain = kScoreDeviation / (contract::SoftmaxScale(c) * std::sqrt(width));
  }
  return {0, gain / std::sqrt(static_cast<double>(shape.back()))};
}

// The tied head has no tensor of its own; everything else of the contract is there, also what may be missing.
bool IsWritten(const contract::ModelConfig& c, const contract::TensorSpec& spec) {
  return !(c.tie_word_embeddings && spec.name == "lm_head.weight");
}

}  // namespace

std::int64_t SyntheticTensor::bytes() const {
  auto n = static_cast<std::int64_t>(DTypeBytes(spec.dtype));
  for (const std::int64_t dim : spec.shape) n *= dim;
  return n;
}

std::vector<SyntheticTensor> SyntheticTensors(const SyntheticConfig& config) {
  const contract::ModelConfig& c = config.config;
  const DType wide = config.dtype == SyntheticDType::kF32 ? DType::kF32 : DType::kBF16;
  std::vector<SyntheticTensor> tensors;
  for (contract::TensorSpec& spec : contract::ExpectedTensors(c)) {
    if (!IsWritten(c, spec)) continue;
    const Spread spread = SpreadOf(c, spec.name, spec.shape);
    const bool bias = spec.name.ends_with("e_score_correction_bias");
    SyntheticTensor tensor{{spec.name, bias ? DType::kF32 : wide, spec.shape}};
    tensor.mean = spread.mean;
    tensor.deviation = spread.deviation;
    if (config.dtype != SyntheticDType::kFP8 || !spec.product) {
      tensors.push_back(std::move(tensor));
      continue;
    }
    tensor.spec.dtype = DType::kF8E4M3;
    tensor.kind = SyntheticTensor::Kind::kCodes;
    tensors.push_back(std::move(tensor));
    SyntheticTensor& scales = tensors.emplace_back();
    scales.spec = {contract::ScaleName(spec.name), DType::kF32, contract::ScaleShape(*c.fp8, spec.shape)};
    scales.kind = SyntheticTensor::Kind::kScales;
    scales.mean = 0;
    scales.deviation = spread.deviation * LargestNormal() / 448;
  }
  return tensors;
}

Result<SyntheticPlan> PlanSynthetic(const SyntheticOptions& options, std::int64_t shard_bytes) {
  SyntheticPlan plan;
  plan.seed = options.seed;
  MLA_ASSIGN_OR_RETURN(plan.config, MakeSyntheticConfig(options));
  plan.tensors = SyntheticTensors(plan.config);
  std::int64_t in_shard = 0;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    const std::int64_t bytes = plan.tensors[i].bytes();
    if (plan.shards.empty() || in_shard + bytes > shard_bytes) {
      plan.shards.push_back({"", i, i});
      in_shard = 0;
    }
    plan.shards.back().end = i + 1;
    in_shard += bytes;
    plan.bytes += bytes;
  }
  const std::size_t count = plan.shards.size();
  for (std::size_t i = 0; i < count; ++i) {
    plan.shards[i].name =
        count == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, count);
  }
  return plan;
}

}  // namespace mla::bench
