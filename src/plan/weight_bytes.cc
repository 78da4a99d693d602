#include "plan/weight_bytes.h"

#include <map>
#include <utility>

#include "ops/packed.h"
#include "plan/exact.h"
#include "weights/weights.h"

namespace mla::plan {
namespace {

using Key = std::pair<weights::Part, ops::PackedFormat>;
using Counted = std::map<Key, std::int64_t>;

const char* EnginePartName(weights::Part part) {
  switch (part) {
    case weights::Part::kEmbedding: return "embedding";
    case weights::Part::kAttention: return "attention";
    case weights::Part::kKvB: return "kv_b (w_kc twice)";
    case weights::Part::kNorms: return "norms";
    case weights::Part::kDense: return "MLP";
    case weights::Part::kRouter: return "router";
    case weights::Part::kExperts: return "experts";
    case weights::Part::kShared: return "shared experts";
    case weights::Part::kHead: return "logits";
    case weights::Part::kMtp: return "MTP layers";
  }
  return "?";
}

const char* FormatName(ops::PackedFormat format) {
  switch (format) {
    case ops::PackedFormat::kF32: return "f32";
    case ops::PackedFormat::kBF16: return "bf16";
    case ops::PackedFormat::kF8: return "fp8";
  }
  return "?";
}

Counted CountOf(const contract::ModelConfig& config, WeightDType keep, const io::Checkpoint* checkpoint) {
  Counted counted;
  for (const weights::PartBytes& part : weights::PlannedParts(config, keep, checkpoint)) {
    counted[{part.part, part.format}] = part.bytes;
  }
  return counted;
}

// The formats of one part, out of another count.
void TakePart(weights::Part part, const Counted& from, Counted* to) {
  for (const auto& [key, bytes] : from) {
    if (key.first == part) (*to)[key] = bytes;
  }
}

std::int64_t ExpertLayers(const contract::ModelConfig& c, std::int64_t begin, std::int64_t end) {
  std::int64_t layers = 0;
  for (std::int64_t i = begin; i < end; ++i) layers += c.IsMoeLayer(i) ? 1 : 0;
  return layers;
}

// Whole experts over all ranks: fewer of them, here and in the layers for multi-token prediction.
void SpreadExperts(const contract::ModelConfig& config, const MemoryOptions& o, Counted* counted) {
  const Counted fewer = CountOf(ExpertConfig(config, o.ranks), o.weights, nullptr);
  const std::int64_t layers = ExpertLayers(config, 0, config.num_hidden_layers);
  const std::int64_t mtp =
      ExpertLayers(config, config.num_hidden_layers, config.num_hidden_layers + config.num_nextn_predict_layers);
  for (auto& [key, bytes] : *counted) {
    if (key.first != weights::Part::kExperts) continue;
    const std::int64_t less = bytes - fewer.at(key);
    bytes -= less;
    if (layers > 0 && mtp > 0) (*counted)[{weights::Part::kMtp, key.second}] -= less / layers * mtp;
  }
}

std::vector<WeightBytes> EngineWeights(const Subject& subject, const MemoryOptions& o) {
  const contract::ModelConfig& whole = *subject.shape.config;
  const bool alone = o.ranks.count() == 1;
  const contract::ModelConfig config = alone ? whole : RankConfig(whole, o.ranks);
  Counted counted = CountOf(config, o.weights, alone && subject.checkpoint ? &*subject.checkpoint : nullptr);
  if (!alone && o.ranks.spread_experts) SpreadExperts(config, o, &counted);
  if (!alone && o.ranks.shard_latent) {
    TakePart(weights::Part::kKvB, CountOf(LatentConfig(whole, o.ranks), o.weights, nullptr), &counted);
  }
  std::vector<WeightBytes> parts;
  for (const auto& [key, bytes] : counted) parts.push_back({EnginePartName(key.first), FormatName(key.second), bytes});
  return parts;
}

bool IsProduct(Part part) {
  return part != Part::kEmbedding && part != Part::kNorms && part != Part::kRouter && part != Part::kHead;
}

Result<std::vector<WeightBytes>> CountedWeights(const Parameters& parameters, WeightDType keep, bool fp8) {
  std::vector<WeightBytes> parts;
  for (std::size_t i = 0; i < kParts; ++i) {
    const auto part = static_cast<Part>(i);
    const Exact n = parameters[part];
    if (parameters[part] == 0) continue;
    WeightBytes w{PartName(part), "bf16", 0};
    Exact bytes = n * 2;
    if (keep == WeightDType::kF32) {
      w.dtype = "f32";
      bytes = n * 4;
    } else if (fp8 && IsProduct(part)) {
      w.dtype = "fp8";
      bytes = n + CeilDiv(n, std::int64_t{128} * 128) * 4;
    }
    MLA_ASSIGN_OR_RETURN(w.bytes, bytes.Get("bytes of weights"));
    parts.push_back(std::move(w));
  }
  return parts;
}

}  // namespace

Result<std::vector<WeightBytes>> WeightsOfRank(const Subject& subject, const MemoryOptions& options) {
  if (options.weight_bytes) return std::vector<WeightBytes>{{"stated", "-", *options.weight_bytes}};
  if (subject.shape.config) return EngineWeights(subject, options);
  if (!subject.shape.parameters) return std::vector<WeightBytes>{};
  const Shape rank = RankShape(subject.shape, options.ranks);
  return CountedWeights(*rank.parameters, options.weights, BytesOfParameter(rank, options.weights) == 1);
}

std::int64_t BytesOfParameter(const Shape& shape, WeightDType weights) {
  switch (weights) {
    case WeightDType::kF32: return 4;
    case WeightDType::kBF16: return 2;
    case WeightDType::kFp8: break;
  }
  return shape.fp8 ? 1 : 2;
}

}  // namespace mla::plan
