#include "contract/families.h"

#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mla::contract {
namespace {

constexpr RopeScaling kYarn[] = {RopeScaling::kYarn};
constexpr RopeScaling kLongrope[] = {RopeScaling::kLongrope};

// Sources: each model's published configuration and modelling code.
const Family kFamilies[] = {
    // V2, V2-Lite, V2.5, Coder-V2.
    {.model_type = "deepseek_v2", .rope_scalings = kYarn, .norm_drops_scale = true},
    // V3, R1, V3.1, Moonlight.
    {.model_type = "deepseek_v3", .rope_scalings = kYarn},
    // K2: DeepSeek-V3's class under a name of its own.
    {.model_type = "kimi_k2", .rope_scalings = kYarn},
    {.model_type = "minicpm3",
     .experts = false,
     .rope_scalings = kLongrope,
     .rope_layout = RopeLayout::kHalfSplit,
     .rope_theta = 10000.0,
     .tie_word_embeddings = true,
     .v_head_dim_follows = true,
     .minicpm_scales = true},
    // GLM-4.7-Flash. Its router has no other scoring than sigmoid with a bias.
    {.model_type = "glm4_moe_lite",
     .scoring_func = ScoringFunc::kSigmoid,
     .topk_method = TopkMethod::kNoauxTc,
     .rope_scalings = kYarn,
     .mlp_layer_types = true},
};

}  // namespace

std::span<const Family> Families() { return kFamilies; }

const Family* FindFamily(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::string FamilyList() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.push_back(fmt::format("\"{}\"", family.model_type));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace mla::contract
