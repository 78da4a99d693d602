// Rotary position embedding of the P = qk_rope_head_dim channels, as a checkpoint states it.
#ifndef MLA_ROPE_H_
#define MLA_ROPE_H_

#include <cstdint>
#include <vector>

namespace mla {

// Which two channels make a pair: (2i, 2i+1), or (i, i + P/2). The two differ by a permutation of channels, so weights
// made for one never work with the other. kNone: the channels are kept and never rotated.
enum class RopeLayout : std::uint8_t { kNone, kInterleaved, kHalfSplit };

// kYarn: arXiv 2309.00071, with DeepSeek's mscale. kLongrope: arXiv 2402.13753, a divisor for each pair's frequency.
enum class RopeScaling : std::uint8_t { kNone, kYarn, kLongrope };

// What a config says of positions.
struct RopeSpec {
  RopeLayout layout = RopeLayout::kInterleaved;
  RopeScaling scaling = RopeScaling::kNone;
  std::int64_t dim = 0;  // P, even
  double theta = 10000.0;
  // Of kYarn and kLongrope: the window that the model was first trained with.
  std::int64_t original_max_position_embeddings = 0;
  // Of kYarn.
  double factor = 1.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double mscale = 1.0;
  double mscale_all_dim = 0.0;
  // Of kLongrope, [P/2]: what each pair's frequency is divided by, in contexts up to the original window and in longer
  // ones. A cached key can't change its angle, so the context that is served decides once, for every position.
  std::vector<double> short_factor;
  std::vector<double> long_factor;
  double attention_factor = 1.0;  // of cos and sin

  // The divisors for a context of so many positions; kLongrope only.
  const std::vector<double>& factors(std::int64_t context) const {
    return context > original_max_position_embeddings ? long_factor : short_factor;
  }
};

// yarn's m(factor, mscale) = 0.1 mscale ln(factor) + 1, and 1 where factor <= 1 (YaRN, equation 22, with DeepSeek's
// mscale).
double YarnMscale(double factor, double mscale);
// What q k is multiplied by before the softmax: qk_head_dim^-1/2 (qk_head_dim is N + P, in the absorbed form too:
// absorbing changes no dot product), times m(factor, mscale_all_dim)^2 for yarn with mscale_all_dim set. DeepSeek-V2,
// equation 46, and DeepSeek's published code.
double SoftmaxScale(std::int64_t qk_head_dim, const RopeSpec& rope);
// What cos and sin are multiplied by: m(factor, mscale) / m(factor, mscale_all_dim) for yarn, attention_factor for
// longrope, else 1.
double CosSinScale(const RopeSpec& rope);

// Rows rotated under equal fingerprints are alike: layout, pairs, frequencies and amplitude agree. `context` counts for
// LongRoPE alone (RopeSpec::factors). The same on every machine.
std::uint64_t RopeFingerprint(const RopeSpec& spec, std::int64_t context);

}  // namespace mla

#endif  // MLA_ROPE_H_
