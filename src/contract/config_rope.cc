#include <optional>
#include <string>
#include <tuple>

#include <fmt/format.h>

#include "contract/config_parts.h"
#include "io/quote.h"

namespace mla::contract {
namespace {

constexpr NumberRange kTheta = {1, false, 1e15, "a number above 1, at most 1e15"};
constexpr NumberRange kFactor = {1, true, 1e9, "a number from 1 to 1e9"};
constexpr NumberRange kBeta = {0, false, 1e9, "a number above 0, at most 1e9"};
constexpr NumberRange kMscale = {0, true, 1e3, "a number from 0 to 1000"};
constexpr NumberRange kOne = {1, true, 1, "1"};

// What one of the two spellings says.
struct Scaling {
  RopeSpec spec;
  std::optional<double> theta;
};

// "type" is the old word, "rope_type" the new one; exports between the two carry both.
RopeScaling ParseType(Fields* fields) {
  const std::optional<std::string> old_word = fields->OptionalWord("type", {"default", "yarn"});
  const std::optional<std::string> new_word = fields->OptionalWord("rope_type", {"default", "yarn"});
  if (!old_word && !new_word) fields->Fail("rope_type", "\"default\" or \"yarn\"", "nothing");
  if (old_word && new_word && *old_word != *new_word) {
    fields->Fail("rope_type", fmt::format("\"{}\" as in type", *old_word), fmt::format("\"{}\"", *new_word));
  }
  return new_word.value_or(old_word.value_or("default")) == "yarn" ? RopeScaling::kYarn : RopeScaling::kNone;
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

Scaling ParseScaling(Fields* top, std::string_view name, const io::JsonValue& object) {
  Scaling scaling;
  if (!object.is_object()) {
    top->Fail(name, "an object or null", object.Describe());
    return scaling;
  }
  Fields fields = top->Inner(name, object);
  scaling.spec.scaling = ParseType(&fields);
  if (scaling.spec.scaling == RopeScaling::kYarn) ParseYarn(&fields, &scaling.spec);
  scaling.theta = fields.OptionalNumber("rope_theta", kTheta);
  fields.OptionalNumber("partial_rotary_factor", kOne);
  if (const std::string* unknown = fields.FirstUnknown()) {
    fields.FailText(
        fmt::format("{}: expected no field {} with this rope type, found one", name, io::Quoted(*unknown, 80)));
  }
  top->Adopt(fields);
  return scaling;
}

bool Same(const RopeSpec& a, const RopeSpec& b) {
  const auto tie = [](const RopeSpec& s) {
    return std::tie(s.scaling, s.factor, s.original_max_position_embeddings, s.beta_fast, s.beta_slow, s.mscale,
                    s.mscale_all_dim);
  };
  return tie(a) == tie(b);
}

}  // namespace

RopeSpec ParseRope(Fields* fields, std::int64_t rope_dim) {
  std::optional<RopeSpec> spec;
  std::optional<double> theta = fields->OptionalNumber("rope_theta", kTheta);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const io::JsonValue* object = fields->TakeValue(name);
    if (object == nullptr) continue;
    const Scaling scaling = ParseScaling(fields, name, *object);
    if (spec && !Same(*spec, scaling.spec)) fields->Fail(name, "the same as in rope_scaling", "another scaling");
    if (theta && scaling.theta && *theta != *scaling.theta) {
      fields->Fail(fmt::format("{}.rope_theta", name), fmt::format("{} as elsewhere", *theta),
                   fmt::format("{}", *scaling.theta));
    }
    spec = scaling.spec;
    if (scaling.theta) theta = scaling.theta;
  }
  RopeSpec rope = spec.value_or(RopeSpec());
  const bool interleaved = fields->OptionalBool("rope_interleave").value_or(true);
  rope.dim = rope_dim;
  rope.layout = interleaved ? RopeLayout::kInterleaved : RopeLayout::kHalfSplit;
  if (rope_dim == 0) {
    rope.layout = RopeLayout::kNone;
  } else if (!theta) {
    fields->Fail("rope_theta", kTheta.words, "nothing");
  }
  rope.theta = theta.value_or(rope.theta);
  return rope;
}

}  // namespace mla::contract
