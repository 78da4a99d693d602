#include "testing/tiny_checkpoint.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "contract/config.h"
#include "contract/tensors.h"
#include "io/safetensors.h"

namespace mla::testing {
namespace {

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "tiny checkpoint: %s\n", why.c_str());
  std::abort();
}

template <class T>
T OrDie(Result<T> result) {
  if (!result.ok()) Die(result.error().message);
  return std::move(result).value();
}

void OrDie(const Status& status) {
  if (!status.ok()) Die(status.error().message);
}

// SplitMix64's finaliser (Steele, Lea, Flood 2014): a good hash of a counter.
std::uint64_t Mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

std::uint64_t HashName(std::string_view name) {
  std::uint64_t hash = 0;
  for (const char c : name) hash = Mix(hash ^ static_cast<unsigned char>(c));
  return hash;
}

// About a standard normal: the sum of four uniforms of 16 bits, centred and scaled. Integers up to one product, so that
// every machine has the same bits.
float NormalFrom(std::uint64_t bits) {
  const std::uint64_t sum = (bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48);
  constexpr float kScale = 2.6429e-5F;  // 1 / sqrt(4 * 65536^2 / 12)
  return static_cast<float>(static_cast<std::int64_t>(sum) - 131070) * kScale;
}

// To the nearest binary16, ties to even, for magnitudes below its largest.
std::uint16_t F16FromFloat(float value) {
  const auto sign = static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) >> 16) & 0x8000U);
  const float magnitude = std::fabs(value);
  if (magnitude < 0x1p-14F)
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::lrint(magnitude * 0x1p24F)));
  const auto bits = std::bit_cast<std::uint32_t>(magnitude);
  const std::uint32_t rounded = bits + 0xfffU + ((bits >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - (112U << 23)) >> 13));
}

struct Distribution {
  float mean = 0;
  float deviation = 1;
};

Distribution DistributionOf(const contract::TensorSpec& spec, bool tied) {
  if (spec.name.ends_with("e_score_correction_bias")) return {0, 0.05F};
  if (spec.shape.size() == 1) return {1, 0.1F};
  // An embedding row is added to, not multiplied; where it is the head too, it must not make huge logits.
  if (spec.name.ends_with("embed_tokens.weight") && !tied) return {0, 1};
  return {0, 1.0F / std::sqrt(static_cast<float>(spec.shape[1]))};
}

DType DTypeOf(const contract::TensorSpec& spec, DType dtype) {
  return spec.name.ends_with("e_score_correction_bias") ? DType::kF32 : dtype;
}

std::int64_t ElementsOf(const contract::TensorSpec& spec) {
  std::int64_t elements = 1;
  for (const std::int64_t dim : spec.shape) elements *= dim;
  return elements;
}

void AppendTensor(const contract::TensorSpec& spec, DType dtype, std::uint64_t seed, bool tied,
                  io::SafetensorsWriter* writer) {
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;
  const Distribution distribution = DistributionOf(spec, tied);
  const std::uint64_t base = Mix(seed ^ HashName(spec.name));
  const std::int64_t elements = ElementsOf(spec);
  std::vector<float> wide;
  std::vector<std::uint16_t> narrow;
  for (std::int64_t begin = 0; begin < elements; begin += kPiece) {
    const auto count = static_cast<std::size_t>(std::min(kPiece, elements - begin));
    wide.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t bits = Mix(base + static_cast<std::uint64_t>(begin) + i);
      wide[i] = distribution.mean + distribution.deviation * NormalFrom(bits);
    }
    if (dtype == DType::kF32) {
      OrDie(writer->Append(std::as_bytes(std::span(wide))));
      continue;
    }
    narrow.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      narrow[i] = dtype == DType::kBF16 ? Bf16FromFloat(wide[i]) : F16FromFloat(wide[i]);
    }
    OrDie(writer->Append(std::as_bytes(std::span(narrow))));
  }
}

void WriteFile(const std::string& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush()) Die(path + " can't be written");
}

// Cuts the tensors into `shards` runs of about equal elements, none empty.
std::vector<std::vector<contract::TensorSpec>> Split(std::vector<contract::TensorSpec> specs, int shards) {
  std::int64_t all = 0;
  for (const contract::TensorSpec& spec : specs) all += ElementsOf(spec);
  std::vector<std::vector<contract::TensorSpec>> parts(1);
  std::int64_t done = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const int missing = shards - static_cast<int>(parts.size());
    const bool share_is_full = done * shards >= all * static_cast<std::int64_t>(parts.size());
    const bool rest_is_short = static_cast<int>(specs.size() - i) <= missing;
    if (missing > 0 && !parts.back().empty() && (share_is_full || rest_is_short)) parts.emplace_back();
    done += ElementsOf(specs[i]);
    parts.back().push_back(std::move(specs[i]));
  }
  return parts;
}

}  // namespace

std::string TinyConfigJson(const TinyOptions& o) {
  const auto nullable = [](const std::optional<std::int64_t>& value) {
    return value ? std::to_string(*value) : std::string("null");
  };
  std::vector<std::string> fields;
  const auto add = [&](std::string_view name, const auto& value) {
    fields.push_back(fmt::format("  \"{}\": {}", name, value));
  };
  add("model_type", "\"deepseek_v3\"");
  add("vocab_size", o.vocab_size);
  add("hidden_size", o.hidden_size);
  add("intermediate_size", o.intermediate_size);
  add("num_hidden_layers", o.num_hidden_layers);
  add("num_nextn_predict_layers", o.num_nextn_predict_layers);
  add("num_attention_heads", o.num_attention_heads);
  add("num_key_value_heads", o.num_attention_heads);
  add("q_lora_rank", nullable(o.q_lora_rank));
  add("kv_lora_rank", o.kv_lora_rank);
  add("qk_nope_head_dim", o.qk_nope_head_dim);
  add("qk_rope_head_dim", o.qk_rope_head_dim);
  add("v_head_dim", o.v_head_dim);
  add("max_position_embeddings", o.max_position_embeddings);
  add("rms_norm_eps", o.rms_norm_eps);
  add("tie_word_embeddings", o.tie_word_embeddings);
  add("hidden_act", "\"silu\"");
  add("n_routed_experts", nullable(o.n_routed_experts));
  if (o.n_routed_experts) {
    add("num_experts_per_tok", o.num_experts_per_tok);
    add("n_shared_experts", o.n_shared_experts);
    add("moe_intermediate_size", o.moe_intermediate_size);
    add("n_group", o.n_group);
    add("topk_group", o.topk_group);
    add("routed_scaling_factor", o.routed_scaling_factor);
    add("norm_topk_prob", o.norm_topk_prob);
    add("scoring_func", "\"sigmoid\"");
    add("topk_method", "\"noaux_tc\"");
    add("first_k_dense_replace", o.first_k_dense_replace);
    add("moe_layer_freq", o.moe_layer_freq);
  }
  add("rope_interleave", o.rope_interleave);
  add("rope_theta", o.rope_theta);
  if (o.rope_scaling == RopeScaling::kNone) {
    add("rope_scaling", "null");
  } else {
    add("rope_scaling",
        fmt::format(
            "{{\"type\": \"yarn\", \"factor\": {}, \"original_max_position_embeddings\": {}, \"beta_fast\": {}, "
            "\"beta_slow\": {}, \"mscale\": {}, \"mscale_all_dim\": {}}}",
            o.rope_factor, o.original_max_position_embeddings, o.beta_fast, o.beta_slow, o.mscale, o.mscale_all_dim));
  }
  add("bos_token_id", o.bos_token_id);
  add("eos_token_id", o.eos_token_id);
  return fmt::format("{{\n{}\n}}\n", fmt::join(fields, ",\n"));
}

void WriteTinyCheckpoint(const std::string& dir, const std::string& config_json, std::uint64_t seed, DType dtype,
                         int shards) {
  const contract::ModelConfig config = OrDie(contract::ParseConfig(config_json, "tiny config"));
  std::filesystem::create_directories(dir);
  WriteFile(dir + "/config.json", config_json);
  std::vector<contract::TensorSpec> specs = contract::ExpectedTensors(config);
  std::erase_if(specs, [](const contract::TensorSpec& spec) { return !spec.required; });
  if (shards < 1 || static_cast<std::size_t>(shards) > specs.size()) Die(fmt::format("can't make {} shards", shards));
  const auto parts = Split(std::move(specs), shards);
  std::vector<std::string> map;
  std::int64_t bytes = 0;
  for (std::size_t s = 0; s < parts.size(); ++s) {
    const std::string file =
        shards == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, parts.size());
    std::vector<io::SafetensorsSpec> file_specs;
    for (const contract::TensorSpec& spec : parts[s]) {
      const DType type = DTypeOf(spec, dtype);
      file_specs.push_back({spec.name, type, spec.shape});
      map.push_back(fmt::format("    \"{}\": \"{}\"", spec.name, file));
      bytes += ElementsOf(spec) * static_cast<std::int64_t>(DTypeBytes(type));
    }
    io::SafetensorsWriter writer = OrDie(io::SafetensorsWriter::Create(dir + "/" + file, std::move(file_specs)));
    for (const contract::TensorSpec& spec : parts[s]) {
      AppendTensor(spec, DTypeOf(spec, dtype), seed, config.tie_word_embeddings, &writer);
    }
    OrDie(writer.Finish());
  }
  if (shards > 1) {
    WriteFile(dir + "/model.safetensors.index.json",
              fmt::format("{{\n  \"metadata\": {{\"total_size\": {}}},\n  \"weight_map\": {{\n{}\n  }}\n}}\n", bytes,
                          fmt::join(map, ",\n")));
  }
}

}  // namespace mla::testing
