#include <optional>
#include <string>

#include <fmt/format.h>

#include "contract/config_parts.h"

namespace mla::contract {
namespace {

constexpr NumberRange kScale = {0, false, 1e6, "a number above 0, at most 1e6"};

struct IntField {
  const char* name;
  std::int64_t MoeConfig::*member;
};
constexpr IntField kIntFields[] = {{"num_experts_per_tok", &MoeConfig::num_experts_per_tok},
                                   {"moe_intermediate_size", &MoeConfig::moe_intermediate_size},
                                   {"n_group", &MoeConfig::n_group},
                                   {"topk_group", &MoeConfig::topk_group}};

// The words that say how experts are scored and picked. A model routed another way gives fluent nonsense, so that an
// absent word is never filled in.
void CheckRouting(Fields* fields) {
  for (const auto& [name, word] : {std::pair{"scoring_func", "sigmoid"}, std::pair{"topk_method", "noaux_tc"}}) {
    if (fields->TakeValue(name) != nullptr) {
      fields->Word(name, {word});
    } else {
      fields->Fail(name, fmt::format("\"{}\"", word),
                   fmt::format("nothing; the routing is not guessed (newer exports leave it out: add \"{}\": \"{}\" to "
                               "the config if the model was trained so)",
                               name, word));
    }
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
  if (moe.n_group > 1 && in_group < 2) {
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
  for (const IntField& field : kIntFields) fields->OptionalInt(field.name, 0, kMaxDim);
  fields->OptionalInt("n_shared_experts", 0, kMaxDim);
  fields->OptionalInt("first_k_dense_replace", 0, kMaxDim);
  fields->OptionalInt("moe_layer_freq", 1, kMaxDim);
  fields->OptionalNumber("routed_scaling_factor", kScale);
  fields->OptionalBool("norm_topk_prob");
  fields->OptionalWord("scoring_func", {"sigmoid"});
  fields->OptionalWord("topk_method", {"noaux_tc"});
}

}  // namespace

void ParseMoe(Fields* fields, ModelConfig* config) {
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
  if (local != nullptr && !(local->is_int() && local->integer == moe.n_routed_experts)) {
    fields->Fail("num_local_experts", fmt::format("{} (n_routed_experts)", moe.n_routed_experts), local->Describe());
  }
  for (const IntField& field : kIntFields) moe.*field.member = fields->Int(field.name, 1, kMaxDim);
  if (fields->Take("n_shared_experts") == nullptr) {
    fields->Fail("n_shared_experts", "a number of experts, or null or 0 for none", "nothing");
  }
  moe.n_shared_experts = fields->OptionalInt("n_shared_experts", 0, kMaxDim).value_or(0);
  moe.routed_scaling_factor = fields->Number("routed_scaling_factor", kScale);
  moe.norm_topk_prob = fields->Bool("norm_topk_prob");
  CheckRouting(fields);
  CheckGroups(fields, moe);
  config->moe = moe;
  config->first_k_dense_replace = fields->Int("first_k_dense_replace", 0, kMaxDim);
  config->moe_layer_freq = fields->OptionalInt("moe_layer_freq", 1, kMaxDim).value_or(1);
}

}  // namespace mla::contract
