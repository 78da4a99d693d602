#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "contract/config_parts.h"
#include "io/quote.h"

namespace mla::contract {
namespace {

constexpr NumberRange kTheta = {1, false, 1e15, "a number above 1, at most 1e15"};
constexpr NumberRange kFactor = {1, true, 1e9, "a number from 1 to 1e9"};
constexpr NumberRange kBeta = {0, false, 1e9, "a number above 0, at most 1e9"};
constexpr NumberRange kFactorOfPair = {0, false, 1e9, "a number above 0, at most 1e9"};
constexpr NumberRange kAttentionFactor = {0, false, 100, "a number above 0, at most 100"};
constexpr NumberRange kMscale = {0, true, 1e3, "a number from 0 to 1000"};
constexpr NumberRange kShare = {0, true, 1, "a number from 0 to 1"};

// What one of the two spellings says.
struct Scaling {
  RopeSpec spec;
  std::optional<double> theta;
};

const char* TypeName(RopeScaling scaling) { return scaling == RopeScaling::kYarn ? "yarn" : "longrope"; }

// "type" is the old word, "rope_type" the new one; exports between the two carry both.
RopeScaling ParseType(Fields* fields, const Family& family) {
  std::vector<std::string_view> known = {"default"};
  for (const RopeScaling scaling : family.rope_scalings) known.emplace_back(TypeName(scaling));
  const std::optional<std::string> old_word = fields->OptionalWord("type", known);
  const std::optional<std::string> new_word = fields->OptionalWord("rope_type", known);
  if (!old_word && !new_word) {
    fields->Fail("rope_type", fmt::format("\"{}\"", fmt::join(known, "\" or \"")), "nothing");
  }
  if (old_word && new_word && *old_word != *new_word) {
    fields->Fail("rope_type", fmt::format("\"{}\" as in type", *old_word), fmt::format("\"{}\"", *new_word));
  }
  const std::string word = new_word.value_or(old_word.value_or("default"));
  for (const RopeScaling scaling : family.rope_scalings) {
    if (word == TypeName(scaling)) return scaling;
  }
  return RopeScaling::kNone;
}

void ParseYarn(Fields* fields, RopeSpec* spec) {
  spec->factor = fields->Number("factor", kFactor);
  spec->original_max_position_embeddings = fields->Int("original_max_position_embeddings", 1, kMaxPositions);
  // The defaults of DeepSeek's published code.
  spec->beta_fast = fields->OptionalNumber("beta_fast", kBeta).value_or(32.0);
  spec->beta_slow = fields->OptionalNumber("beta_slow", kBeta).value_or(1.0);
  spec->mscale = fields->OptionalNumber("mscale", kMscale).value_or(1.0);
  spec->mscale_all_dim = fields->OptionalNumber("mscale_all_dim", kMscale).value_or(0.0);
  if (spec->beta_fast < spec->beta_slow) {
    fields->Fail("beta_fast", fmt::format("at least beta_slow, {}", spec->beta_slow),
                 fmt::format("{}", spec->beta_fast));
  }
  // Other ways to state what mscale and the ramp's whole bounds say here.
  if (const io::JsonValue* value = fields->TakeValue("attention_factor")) {
    fields->Fail("attention_factor", "none (mscale and mscale_all_dim say it)", value->Describe());
  }
  if (!fields->OptionalBool("truncate").value_or(true)) fields->Fail("truncate", "true", "false");
}

// sqrt(1 + ln s / ln W), s the stretch of the original window W (LongRoPE's published code).
void ParseLongrope(Fields* fields, const RopeDims& dims, RopeSpec* spec) {
  const auto pairs = static_cast<std::size_t>(dims.rope_dim / 2);
  spec->short_factor = fields->Numbers("short_factor", pairs, kFactorOfPair);
  spec->long_factor = fields->Numbers("long_factor", pairs, kFactorOfPair);
  const std::int64_t most = dims.max_positions;
  const std::int64_t window = fields->Int("original_max_position_embeddings", 2, most < 2 ? 2 : most);
  spec->original_max_position_embeddings = window;
  const double stretch = static_cast<double>(most) / static_cast<double>(window);
  const std::optional<double> factor = fields->OptionalNumber("factor", kFactor);
  if (factor && *factor != stretch) {
    fields->Fail("factor", fmt::format("{}, max_position_embeddings / original_max_position_embeddings", stretch),
                 fmt::format("{}", *factor));
  }
  spec->attention_factor = fields->OptionalNumber("attention_factor", kAttentionFactor)
                               .value_or(std::sqrt(1.0 + std::log(stretch) / std::log(static_cast<double>(window))));
}

// The share of a head's channels that is rotated. The checkpoint's shapes say it already.
void CheckPartial(Fields* fields, const RopeDims& dims) {
  const auto value = fields->OptionalNumber("partial_rotary_factor", kShare);
  const double share = static_cast<double>(dims.rope_dim) / static_cast<double>(dims.head_dim);
  if (!value || *value == 1.0 || *value == share) return;
  fields->Fail("partial_rotary_factor",
               fmt::format("1, or {}, qk_rope_head_dim over qk_nope_head_dim + qk_rope_head_dim", share),
               fmt::format("{}", *value));
}

Scaling ParseScaling(Fields* top, const Family& family, const RopeDims& dims, std::string_view name,
                     const io::JsonValue& object) {
  Scaling scaling;
  if (!object.is_object()) {
    top->Fail(name, "an object or null", object.Describe());
    return scaling;
  }
  Fields fields = top->Inner(name, object);
  scaling.spec.scaling = ParseType(&fields, family);
  if (scaling.spec.scaling == RopeScaling::kYarn) ParseYarn(&fields, &scaling.spec);
  if (scaling.spec.scaling == RopeScaling::kLongrope) ParseLongrope(&fields, dims, &scaling.spec);
  scaling.theta = fields.OptionalNumber("rope_theta", kTheta);
  CheckPartial(&fields, dims);
  for (const std::string_view more : family.more_rope_fields) fields.Take(more);
  if (const auto unknown = fields.FirstUnknown()) {
    fields.FailText(
        fmt::format("{}: expected no field {} with this rope type, found one", name, io::Quoted(*unknown, 80)));
  }
  top->Adopt(fields);
  return scaling;
}

bool Same(const RopeSpec& a, const RopeSpec& b) {
  const auto tie = [](const RopeSpec& s) {
    return std::tie(s.scaling, s.factor, s.original_max_position_embeddings, s.beta_fast, s.beta_slow, s.mscale,
                    s.mscale_all_dim, s.short_factor, s.long_factor, s.attention_factor);
  };
  return tie(a) == tie(b);
}

}  // namespace

RopeSpec ParseRope(Fields* fields, const Family& family, const RopeDims& dims) {
  std::optional<RopeSpec> spec;
  std::optional<double> theta = fields->OptionalNumber("rope_theta", kTheta);
  CheckPartial(fields, dims);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const io::JsonValue* object = fields->TakeValue(name);
    if (object == nullptr) continue;
    const Scaling scaling = ParseScaling(fields, family, dims, name, *object);
    if (spec && !Same(*spec, scaling.spec)) fields->Fail(name, "the same as in rope_scaling", "another scaling");
    if (theta && scaling.theta && *theta != *scaling.theta) {
      fields->Fail(fmt::format("{}.rope_theta", name), fmt::format("{} as elsewhere", *theta),
                   fmt::format("{}", *scaling.theta));
    }
    spec = scaling.spec;
    if (scaling.theta) theta = scaling.theta;
  }
  RopeSpec rope = spec.value_or(RopeSpec());
  const bool interleaved =
      fields->OptionalBool("rope_interleave").value_or(family.rope_layout == RopeLayout::kInterleaved);
  const bool never_rotated = fields->OptionalBool("mla_use_nope").value_or(false);
  rope.dim = dims.rope_dim;
  rope.layout = interleaved ? RopeLayout::kInterleaved : RopeLayout::kHalfSplit;
  if (!theta) theta = family.rope_theta;
  if (rope.dim == 0 || never_rotated) {
    rope.layout = RopeLayout::kNone;
  } else if (!theta) {
    fields->Fail("rope_theta", kTheta.words, "nothing");
  }
  rope.theta = theta.value_or(rope.theta);
  return rope;
}

}  // namespace mla::contract
