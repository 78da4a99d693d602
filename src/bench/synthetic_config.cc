#include "bench/synthetic_config.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "bench/published_configs.h"
#include "io/file.h"
#include "io/json.h"
#include "io/quote.h"
#include "text/byte_level.h"

namespace mla::bench {
namespace {

using Json = nlohmann::ordered_json;

Result<std::string> ConfigText(const std::string& like) {
  std::vector<std::string_view> names;
  for (const PublishedConfig& config : PublishedConfigs()) {
    if (config.name == like) return std::string(config.json);
    names.push_back(config.name);
  }
  auto text = io::ReadFile(like, contract::kMaxConfigBytes);
  if (text.ok()) return text;
  return Error{
      fmt::format("--like: expected one of {}, or a config.json: {}", fmt::join(names, ", "), text.error().message)};
}

// Held to our own rules first: the library's parser would take the last of two equal keys.
Result<Json> ParseObject(const std::string& text, const std::string& where) {
  MLA_ASSIGN_OR_RETURN(const io::JsonValue value, io::ParseJson(text, where));
  if (!value.is_object()) return Error{fmt::format("{}: expected an object, found {}", where, value.Describe())};
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

Json Fp8Entry() {
  return {
      {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 128}}, {"activation_scheme", "dynamic"}};
}

bool IsFp8(const Json& json) {
  const auto found = json.find("quantization_config");
  return found != json.end() && found->is_object() && found->value("quant_method", Json()) == "fp8";
}

SyntheticDType SetDType(const std::optional<SyntheticDType>& asked, Json* json) {
  const SyntheticDType dtype = asked.value_or(IsFp8(*json) ? SyntheticDType::kFP8 : SyntheticDType::kBF16);
  if (dtype != SyntheticDType::kFP8) json->erase("quantization_config");
  if (dtype == SyntheticDType::kFP8 && !IsFp8(*json)) (*json)["quantization_config"] = Fp8Entry();
  (*json)[json->contains("dtype") ? "dtype" : "torch_dtype"] = dtype == SyntheticDType::kF32 ? "float32" : "bfloat16";
  return dtype;
}

// mlp_layer_types, cut or continued to `layers`; both kinds stay where there were both.
void ResizeLayerTypes(std::int64_t layers, Json* types) {
  const Json before = *types;
  types->get_ref<Json::array_t&>().resize(static_cast<std::size_t>(layers), before.back());
  if (layers < 2) return;
  for (const Json& kind : before) {
    if (std::find(types->begin(), types->end(), kind) == types->end()) types->back() = kind;
  }
}

void SetLayers(std::int64_t layers, const contract::ModelConfig& before, Json* json) {
  (*json)["num_hidden_layers"] = layers;
  if (!before.moe) return;
  if (json->contains("mlp_layer_types") && (*json)["mlp_layer_types"].is_array()) {
    ResizeLayerTypes(layers, &(*json)["mlp_layer_types"]);
  }
  const std::int64_t most = std::max<std::int64_t>(1, layers - 1);
  if (before.first_k_dense_replace > most) (*json)["first_k_dense_replace"] = most;
}

Status SetExperts(std::int64_t experts, const contract::ModelConfig& before, Json* json) {
  if (!before.moe) return Error{"--experts: the config has no experts"};
  const contract::MoeConfig& moe = *before.moe;
  (*json)["n_routed_experts"] = experts;
  std::int64_t reachable = experts / moe.n_group * moe.topk_group;
  // A group is scored by its two best experts.
  if (experts % moe.n_group != 0 || experts / moe.n_group < 2) {
    (*json)["n_group"] = 1;
    (*json)["topk_group"] = 1;
    reachable = experts;
  }
  const std::int64_t chosen = std::min(moe.num_experts_per_tok, reachable);
  (*json)["num_experts_per_tok"] = chosen;
  // With one expert a token there is nothing to normalise over, and the contract takes no other word.
  if (chosen == 1 && moe.norm_topk_prob) (*json)["norm_topk_prob"] = false;
  return {};
}

// Ids past the vocabulary become its last ones, equal ids the same.
class IdMap {
 public:
  explicit IdMap(std::int64_t vocab) : next_(vocab - 1), vocab_(vocab) {}
  void Apply(Json* id) {
    if (!id->is_number_integer() || id->get<std::int64_t>() < vocab_) return;
    const auto [entry, is_new] = map_.try_emplace(id->get<std::int64_t>(), next_);
    if (is_new) --next_;
    *id = entry->second;
  }

 private:
  std::int64_t next_;
  std::int64_t vocab_;
  std::map<std::int64_t, std::int64_t> map_;
};

void SetVocab(std::int64_t vocab, Json* json) {
  (*json)["vocab_size"] = vocab;
  IdMap ids(vocab);
  for (const char* name : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    const auto found = json->find(name);
    if (found == json->end()) continue;
    if (!found->is_array()) ids.Apply(&*found);
    if (found->is_array()) std::for_each(found->begin(), found->end(), [&](Json& id) { ids.Apply(&id); });
  }
}

struct Special {
  std::int64_t id;
  std::string text;
};

// The begin token first, if there is one.
std::vector<Special> SpecialTokens(const contract::ModelConfig& config) {
  std::vector<Special> specials;
  std::set<std::int64_t> seen;
  if (config.bos_token_id && seen.insert(*config.bos_token_id).second) {
    specials.push_back({*config.bos_token_id, "<|begin|>"});
  }
  for (const std::int64_t id : config.eos_token_ids) {
    if (seen.insert(id).second) specials.push_back({id, fmt::format("<|end {}|>", id)});
  }
  return specials;
}

std::string TokenizerJson(const std::vector<Special>& specials) {
  std::set<std::int64_t> taken;
  Json added = Json::array();
  for (const Special& special : specials) {
    taken.insert(special.id);
    added.push_back({{"id", special.id},
                     {"content", special.text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  Json vocab = Json::object();
  std::int64_t id = 0;
  for (int byte = 0; byte < 256; ++byte, ++id) {
    while (taken.count(id) > 0) ++id;
    vocab[std::string(text::ByteCharacter(static_cast<unsigned char>(byte)))] = id;
  }
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const Json tokenizer = {{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens", added},
                          {"normalizer", nullptr},
                          {"pre_tokenizer", byte_level},
                          {"post_processor", nullptr},
                          {"decoder", byte_level},
                          {"model",
                           {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"vocab", vocab},
                            {"merges", Json::array()}}}};
  return tokenizer.dump(1) + "\n";
}

std::string TokenizerConfigJson(const contract::ModelConfig& config, const std::vector<Special>& specials) {
  Json json = {{"add_bos_token", config.bos_token_id.has_value()}, {"add_eos_token", false}};
  for (const Special& special : specials) {
    const bool bos = config.bos_token_id == special.id;
    if (!json.contains(bos ? "bos_token" : "eos_token")) json[bos ? "bos_token" : "eos_token"] = special.text;
  }
  return json.dump(1) + "\n";
}

std::string GenerationConfigJson(const contract::ModelConfig& config) {
  Json json = {{"do_sample", false}};
  if (config.bos_token_id) json["bos_token_id"] = *config.bos_token_id;
  if (!config.eos_token_ids.empty()) json["eos_token_id"] = config.eos_token_ids;
  return json.dump(1) + "\n";
}

// One line a field, as short arrays and objects read best.
std::string ConfigJson(const Json& json) {
  std::string text = "{\n";
  for (auto field = json.begin(); field != json.end(); ++field) {
    text += fmt::format("  {}: {}{}\n", Json(field.key()).dump(), field.value().dump(),
                        std::next(field) == json.end() ? "" : ",");
  }
  return text + "}\n";
}

}  // namespace

Result<SyntheticConfig> MakeSyntheticConfig(const SyntheticOptions& options) {
  MLA_ASSIGN_OR_RETURN(const std::string text, ConfigText(options.like));
  const std::string where = io::Printable(options.like);
  MLA_ASSIGN_OR_RETURN(Json json, ParseObject(text, where));
  SyntheticConfig made;
  made.dtype = SetDType(options.dtype, &json);
  MLA_ASSIGN_OR_RETURN(const contract::ModelConfig before, contract::ParseConfig(ConfigJson(json), where));
  if (options.layers) SetLayers(*options.layers, before, &json);
  if (options.experts) MLA_RETURN_IF_ERROR(SetExperts(*options.experts, before, &json));
  if (options.mtp_layers) json["num_nextn_predict_layers"] = *options.mtp_layers;
  if (options.vocab) SetVocab(*options.vocab, &json);
  made.config_json = ConfigJson(json);
  MLA_ASSIGN_OR_RETURN(made.config, contract::ParseConfig(made.config_json, where + " as changed"));

  const std::vector<Special> specials = SpecialTokens(made.config);
  const auto needed = static_cast<std::int64_t>(256 + specials.size());
  if (made.config.vocab_size < needed) {
    return Error{
        fmt::format("{}: expected a vocabulary of at least {} ids, for 256 bytes and {} special tokens, found {}",
                    where, needed, specials.size(), made.config.vocab_size)};
  }
  made.generation_config_json = GenerationConfigJson(made.config);
  made.tokenizer_json = TokenizerJson(specials);
  made.tokenizer_config_json = TokenizerConfigJson(made.config, specials);
  return made;
}

}  // namespace mla::bench
