#include "mla/rope.h"

#include <bit>
#include <cmath>

namespace mla {
namespace {

// FNV-1a over the bits of what is fed, eight bytes at a time.
class Hash {
 public:
  void Feed(std::uint64_t bits) {
    for (int i = 0; i < 8; ++i) value_ = (value_ ^ (bits >> (8 * i) & 0xffU)) * 0x100000001b3U;
  }
  void Feed(std::int64_t number) { Feed(static_cast<std::uint64_t>(number)); }
  void Feed(double number) { Feed(std::bit_cast<std::uint64_t>(number)); }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325U;
};

}  // namespace

double YarnMscale(double factor, double mscale) { return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

double SoftmaxScale(std::int64_t qk_head_dim, const RopeSpec& rope) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(qk_head_dim));
  if (rope.scaling != RopeScaling::kYarn) return scale;
  const double m = YarnMscale(rope.factor, rope.mscale_all_dim);  // 1 for mscale_all_dim 0
  return scale * m * m;
}

double CosSinScale(const RopeSpec& rope) {
  switch (rope.scaling) {
    case RopeScaling::kNone: return 1.0;
    case RopeScaling::kYarn: return YarnMscale(rope.factor, rope.mscale) / YarnMscale(rope.factor, rope.mscale_all_dim);
    case RopeScaling::kLongrope: return rope.attention_factor;
  }
  return 1.0;
}

// Over the numbers of the config, not the frequencies that follow: those may differ in a bit between libraries.
std::uint64_t RopeFingerprint(const RopeSpec& spec, std::int64_t context) {
  Hash hash;
  hash.Feed(static_cast<std::int64_t>(spec.layout));
  hash.Feed(spec.dim);
  if (spec.layout == RopeLayout::kNone) return hash.value();
  hash.Feed(spec.theta);
  hash.Feed(static_cast<std::int64_t>(spec.scaling));
  if (spec.scaling == RopeScaling::kYarn) {
    hash.Feed(spec.original_max_position_embeddings);
    for (const double number : {spec.factor, spec.beta_fast, spec.beta_slow, spec.mscale, spec.mscale_all_dim}) {
      hash.Feed(number);
    }
  } else if (spec.scaling == RopeScaling::kLongrope) {
    for (const double number : spec.factors(context)) hash.Feed(number);
    hash.Feed(spec.attention_factor);
  }
  return hash.value();
}

}  // namespace mla
