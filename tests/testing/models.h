// Models for tests above the weights: tiny random ones of odd shapes, and the demo.
#ifndef MLA_TESTS_TESTING_MODELS_H_
#define MLA_TESTS_TESTING_MODELS_H_

#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "mla/executor.h"
#include "mla/model.h"
#include "mla/result.h"
#include "testing/temp_dir.h"
#include "testing/tiny_checkpoint.h"

// Sanitizers make everything several times slower, and count memory of their own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MLA_TESTS_UNDER_SANITIZER 1
#else
#define MLA_TESTS_UNDER_SANITIZER 0
#endif

namespace mla::testing {

inline constexpr bool kUnderSanitizer = MLA_TESTS_UNDER_SANITIZER != 0;

template <class T>
T Need(Result<T> result) {
  if (!result.ok()) internal::CheckFailed(__FILE__, __LINE__, "ok", result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

inline Model LoadModel(const std::string& dir, WeightDType weights) {
  const auto executor = MakeThreadPool(1);
  LoadOptions options;
  options.weights = weights;
  return Need(Model::Load(dir, options, *executor));
}

// A random checkpoint of that config, loaded.
inline Model TinyModel(const TinyOptions& options, std::uint64_t seed, WeightDType weights = WeightDType::kF32,
                       DType source = DType::kBF16) {
  const TempDir dir;
  WriteTinyCheckpoint(dir.path(), TinyConfigJson(options), seed, source);
  return LoadModel(dir.path(), weights);
}

// Odd everywhere: 3 heads, R of no full vector, no rope, V apart from N, no q_lora, no experts, a tied head.
inline TinyOptions OddOptions() {
  TinyOptions o;
  o.vocab_size = 101;
  o.hidden_size = 60;
  o.num_hidden_layers = 2;
  o.num_attention_heads = 3;
  o.q_lora_rank.reset();
  o.kv_lora_rank = 40;
  o.qk_nope_head_dim = 12;
  o.qk_rope_head_dim = 0;
  o.v_head_dim = 20;
  o.tie_word_embeddings = true;
  o.n_routed_experts.reset();
  o.rope_scaling = RopeScaling::kNone;
  return o;
}

// Half-split rope without scaling; experts in one group, none shared.
inline TinyOptions HalfSplitOptions() {
  TinyOptions o;
  o.num_attention_heads = 5;
  o.q_lora_rank = 20;
  o.kv_lora_rank = 24;
  o.qk_nope_head_dim = 18;
  o.qk_rope_head_dim = 12;
  o.v_head_dim = 10;
  o.n_routed_experts = 6;
  o.num_experts_per_tok = 3;
  o.n_shared_experts = 0;
  o.n_group = 1;
  o.topk_group = 1;
  o.norm_topk_prob = false;
  o.rope_interleave = false;
  o.rope_scaling = RopeScaling::kNone;
  return o;
}

// n random ids below vocab.
inline std::vector<std::int32_t> RandomIds(std::int64_t n, std::int64_t vocab, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(rng() % static_cast<std::uint64_t>(vocab));
  return ids;
}

}  // namespace mla::testing

#endif  // MLA_TESTS_TESTING_MODELS_H_
