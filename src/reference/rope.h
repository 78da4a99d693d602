// Rotary positions and the softmax scale, written from DeepSeek's published code and the YaRN paper (arXiv 2309.00071),
// apart from the production code so that each can catch the other's mistakes.
#ifndef MLA_REFERENCE_ROPE_H_
#define MLA_REFERENCE_ROPE_H_

#include <cstdint>
#include <vector>

#include "contract/config.h"
#include "mla/rope.h"

namespace mla::reference {

// 0.1 mscale ln(factor) + 1, and 1 where the context is not stretched.
double MscaleOf(double factor, double mscale);

// What q k is multiplied by before the softmax: (N + P)^-1/2, and for yarn with mscale_all_dim set also
// mscale(factor, mscale_all_dim)^2.
double AttentionScale(const contract::ModelConfig& config);

// Angle a position of pair i advances by, [P/2]; for yarn, slowed by `factor` where a pair turns too rarely within the
// original window to have been learnt whole; for longrope (arXiv 2402.13753), slowed by each pair's own factor, which
// differs between contexts within the original window and longer ones.
std::vector<double> RopeFrequencies(const RopeSpec& spec, std::int64_t context);

// cos and sin of one position, [P/2] each, times mscale(factor, mscale) / mscale(factor, mscale_all_dim) for yarn, or
// longrope's attention_factor.
struct RopeAngles {
  std::vector<double> cos;
  std::vector<double> sin;
};
RopeAngles AnglesAt(const RopeSpec& spec, const std::vector<double>& frequencies, std::int64_t position);

// Rotates the P channels of x in place, pairs as the layout says. kNone leaves x as it is.
void Rotate(RopeLayout layout, const RopeAngles& angles, double* x);

}  // namespace mla::reference

#endif  // MLA_REFERENCE_ROPE_H_
