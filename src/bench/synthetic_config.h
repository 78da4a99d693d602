// The config of a synthetic checkpoint: a published one, with what was asked for changed, and consistent afterwards.
#ifndef MLA_BENCH_SYNTHETIC_CONFIG_H_
#define MLA_BENCH_SYNTHETIC_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "contract/config.h"
#include "mla/result.h"

namespace mla::bench {

// How products are stored; norms, the router, embeddings and heads are bf16 where products are in fp8.
enum class SyntheticDType : std::uint8_t { kBF16, kFP8, kF32 };

struct SyntheticOptions {
  std::string like;  // a name of PublishedConfigs, or the path of a config.json
  // Empty: as the config says.
  std::optional<std::int64_t> layers;
  std::optional<std::int64_t> vocab;
  std::optional<std::int64_t> experts;
  std::optional<std::int64_t> mtp_layers;
  std::optional<SyntheticDType> dtype;
  std::uint64_t seed = 0;
};

struct SyntheticConfig {
  contract::ModelConfig config;
  SyntheticDType dtype = SyntheticDType::kBF16;
  // The files beside the tensors.
  std::string config_json;
  std::string generation_config_json;
  std::string tokenizer_json;  // the 256 bytes, and the config's begin and end tokens
  std::string tokenizer_config_json;
};

// What follows from fewer layers, experts or ids:
// - first_k_dense_replace and mlp_layer_types: where the config has dense layers and layers with experts, so has the
//   result, if it has two layers;
// - num_experts_per_tok, n_group, topk_group and norm_topk_prob: what the experts still allow;
// - token ids past the vocabulary: the last ids of it;
// - quantization_config: there exactly where dtype is fp8, in blocks of [128, 128] unless the config says others.
// Fails where `like` is no name and no file, the config is refused by the contract before or after, or the vocabulary
// has no room for 256 bytes and the special tokens.
Result<SyntheticConfig> MakeSyntheticConfig(const SyntheticOptions& options);

}  // namespace mla::bench

#endif  // MLA_BENCH_SYNTHETIC_CONFIG_H_
