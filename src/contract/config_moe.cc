#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "contract/config_parts.h"

namespace mla::contract {
namespace {

constexpr NumberRange kScale = {0, false, 1e6, "a number above 0, at most 1e6"};

constexpr ScoringFunc kScorings[] = {ScoringFunc::kSoftmax, ScoringFunc::kSigmoid};
constexpr TopkMethod kMethods[] = {TopkMethod::kGreedy, TopkMethod::kGroupLimitedGreedy, TopkMethod::kNoauxTc};

struct IntField {
  const char* name;
  std::int64_t MoeConfig::*member;
};
constexpr IntField kCounts[] = {{"num_experts_per_tok", &MoeConfig::num_experts_per_tok},
                                {"moe_intermediate_size", &MoeConfig::moe_intermediate_size}};
constexpr IntField kGroups[] = {{"n_group", &MoeConfig::n_group}, {"topk_group", &MoeConfig::topk_group}};

template <class T>
std::vector<std::string_view> NamesOf(std::span<const T> values, const char* (*name)(T)) {
  std::vector<std::string_view> names;
  for (const T value : values) names.emplace_back(name(value));
  return names;
}

// One of the two words that say how experts are scored and picked. A model routed another way gives fluent nonsense, so
// that an absent word is never filled in, unless the family's code has the one way built in.
template <class T>
T RoutingWord(Fields* fields, const char* field, std::span<const T> values, const char* (*name)(T),
              const std::optional<T>& built_in) {
  const std::vector<std::string_view> names =
      built_in ? std::vector<std::string_view>{name(*built_in)} : NamesOf(values, name);
  if (fields->TakeValue(field) == nullptr) {
    if (built_in) return *built_in;
    fields->Fail(
        field, fmt::format("\"{}\"", fmt::join(names, "\" or \"")),
        fmt::format("nothing; the routing is not guessed (newer exports leave it out: add the {} that the model "
                    "was trained with to the config)",
                    field));
    return values.front();
  }
  const std::string word = fields->Word(field, names);
  for (const T value : values) {
    if (word == name(value)) return value;
  }
  return values.front();
}

void ParseRouting(Fields* fields, const Family& family, MoeConfig* moe) {
  moe->scoring_func = RoutingWord<ScoringFunc>(fields, "scoring_func", kScorings, ScoringFuncName, family.scoring_func);
  moe->topk_method = RoutingWord<TopkMethod>(fields, "topk_method", kMethods, TopkMethodName, family.topk_method);
  // Greedy choice knows no groups: exports of such models leave the counts out, or null.
  const bool grouped = moe->topk_method != TopkMethod::kGreedy;
  for (const IntField& field : kGroups) {
    if (grouped) {
      moe->*field.member = fields->Int(field.name, 1, kMaxDim);
    } else {
      fields->OptionalInt(field.name, 1, kMaxDim);
    }
  }
  moe->routed_scaling_factor = fields->Number("routed_scaling_factor", kScale);
  moe->norm_topk_prob = fields->Bool("norm_topk_prob");
  // DeepSeek's published Hugging Face gates then leave the score as it is; its inference code, and transformers, make
  // it 1.
  if (moe->norm_topk_prob && moe->num_experts_per_tok == 1) {
    fields->Fail("norm_topk_prob", "false with one expert a token (published codes disagree on what it does there)",
                 "true");
  }
  if (family.norm_drops_scale && moe->norm_topk_prob && moe->routed_scaling_factor != 1.0) {
    fields->Fail("norm_topk_prob",
                 "false, or routed_scaling_factor 1 (this family's published code drops the factor of normalised "
                 "weights, others don't)",
                 fmt::format("true, with routed_scaling_factor {}", moe->routed_scaling_factor));
  }
}

// Whole-model agreement of the counts.
void CheckGroups(Fields* fields, const MoeConfig& moe) {
  const auto fail = [&](const char* name, const std::string& expected, std::int64_t found) {
    fields->Fail(name, expected, fmt::format("{}", found));
  };
  if (moe.num_experts_per_tok > moe.n_routed_experts) {
    return fail("num_experts_per_tok", fmt::format("at most n_routed_experts, {}", moe.n_routed_experts),
                moe.num_experts_per_tok);
  }
  if (moe.n_routed_experts % moe.n_group != 0) {
    return fail("n_group", fmt::format("a divisor of n_routed_experts, {}", moe.n_routed_experts), moe.n_group);
  }
  if (moe.topk_group > moe.n_group) {
    return fail("topk_group", fmt::format("at most n_group, {}", moe.n_group), moe.topk_group);
  }
  const std::int64_t in_group = moe.n_routed_experts / moe.n_group;
  if (moe.topk_method == TopkMethod::kNoauxTc && moe.n_group > 1 && in_group < 2) {
    return fail("n_group", fmt::format("at least 2 of the {} experts in each group", moe.n_routed_experts),
                moe.n_group);
  }
  if (moe.num_experts_per_tok > moe.topk_group * in_group) {
    return fail("num_experts_per_tok",
                fmt::format("at most the {} experts of topk_group groups", moe.topk_group * in_group),
                moe.num_experts_per_tok);
  }
}

// A dense model may carry the fields of experts; they are read as strictly and then not used.
void CheckUnused(Fields* fields) {
  for (const IntField& field : kCounts) fields->OptionalInt(field.name, 0, kMaxDim);
  for (const IntField& field : kGroups) fields->OptionalInt(field.name, 0, kMaxDim);
  fields->OptionalInt("n_shared_experts", 0, kMaxDim);
  fields->OptionalInt("first_k_dense_replace", 0, kMaxDim);
  fields->OptionalInt("moe_layer_freq", 1, kMaxDim);
  fields->OptionalNumber("routed_scaling_factor", kScale);
  fields->OptionalBool("norm_topk_prob");
  fields->OptionalWord("scoring_func", NamesOf<ScoringFunc>(kScorings, ScoringFuncName));
  fields->OptionalWord("topk_method", NamesOf<TopkMethod>(kMethods, TopkMethodName));
}

// mlp_layer_types: "dense" or "sparse" for each layer.
std::vector<bool> ParseLayerTypes(Fields* fields, std::int64_t layers) {
  const io::JsonValue* value = fields->TakeValue("mlp_layer_types");
  if (value == nullptr) return {};
  const std::string expected = fmt::format(R"(a list of {} of "dense" or "sparse")", layers);
  std::vector<bool> sparse;
  if (!value->is_array() || static_cast<std::int64_t>(value->items().size()) != layers) {
    fields->Fail("mlp_layer_types", expected,
                 value->is_array() ? fmt::format("one of {}", value->items().size()) : value->Describe());
    return {};
  }
  for (const io::JsonValue& item : value->items()) {
    if (!item.is_string() || (item.string() != "dense" && item.string() != "sparse")) {
      fields->Fail(fmt::format("mlp_layer_types[{}]", sparse.size()), R"("dense" or "sparse")", item.Describe());
      return {};
    }
    sparse.push_back(item.string() == "sparse");
  }
  return sparse;
}

// Which layers have experts. Two spellings; where both are there, they must agree.
void ParseWhichLayers(Fields* fields, const Family& family, ModelConfig* config) {
  if (family.mlp_layer_types) config->sparse_layers = ParseLayerTypes(fields, config->num_hidden_layers);
  const bool listed = !config->sparse_layers.empty();
  const auto first = fields->OptionalInt("first_k_dense_replace", 0, kMaxDim);
  if (!first && !family.mlp_layer_types) {
    fields->Fail("first_k_dense_replace", fmt::format("a whole number from 0 to {}", kMaxDim), "nothing");
  }
  config->first_k_dense_replace = first.value_or(1);
  config->moe_layer_freq = fields->OptionalInt("moe_layer_freq", 1, kMaxDim).value_or(1);
  if (!listed || !first) return;
  for (std::int64_t i = 0; i < config->num_hidden_layers; ++i) {
    const bool sparse = config->sparse_layers[static_cast<std::size_t>(i)];
    if (sparse == (i >= *first && i % config->moe_layer_freq == 0)) continue;
    return fields->Fail(fmt::format("mlp_layer_types[{}]", i),
                        fmt::format("\"{}\" as first_k_dense_replace says", sparse ? "dense" : "sparse"),
                        sparse ? "\"sparse\"" : "\"dense\"");
  }
}

}  // namespace

const char* ScoringFuncName(ScoringFunc scoring) { return scoring == ScoringFunc::kSoftmax ? "softmax" : "sigmoid"; }

const char* TopkMethodName(TopkMethod method) {
  switch (method) {
    case TopkMethod::kGreedy: return "greedy";
    case TopkMethod::kGroupLimitedGreedy: return "group_limited_greedy";
    case TopkMethod::kNoauxTc: return "noaux_tc";
  }
  return "?";
}

void ParseMoe(Fields* fields, const Family& family, ModelConfig* config) {
  if (!family.experts) return;  // fields of experts are then unknown ones
  const io::JsonValue* experts = fields->Take("n_routed_experts");
  const io::JsonValue* local = fields->TakeValue("num_local_experts");
  if (experts == nullptr && (local != nullptr || fields->TakeValue("num_experts_per_tok") != nullptr)) {
    fields->Fail("n_routed_experts", "a number of experts, or null for a dense model", "nothing");
  }
  if (experts == nullptr || experts->is_null()) {
    if (local != nullptr) fields->Fail("num_local_experts", "none, as in n_routed_experts", local->Describe());
    return CheckUnused(fields);
  }
  MoeConfig moe;
  moe.n_routed_experts = fields->Int("n_routed_experts", 1, kMaxDim);
  if (local != nullptr && !(local->is_int() && local->integer() == moe.n_routed_experts)) {
    fields->Fail("num_local_experts", fmt::format("{} (n_routed_experts)", moe.n_routed_experts), local->Describe());
  }
  for (const IntField& field : kCounts) moe.*field.member = fields->Int(field.name, 1, kMaxDim);
  if (fields->Take("n_shared_experts") == nullptr) {
    fields->Fail("n_shared_experts", "a number of experts, or null or 0 for none", "nothing");
  }
  moe.n_shared_experts = fields->OptionalInt("n_shared_experts", 0, kMaxDim).value_or(0);
  ParseRouting(fields, family, &moe);
  CheckGroups(fields, moe);
  config->moe = moe;
  ParseWhichLayers(fields, family, config);
}

}  // namespace mla::contract
