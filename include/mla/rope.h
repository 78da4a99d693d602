// Rotary position embedding of the P = qk_rope_head_dim channels, as a checkpoint states it.
#ifndef MLA_ROPE_H_
#define MLA_ROPE_H_

#include <cstdint>

namespace mla {

// Which two channels make a pair: (2i, 2i+1), or (i, i + P/2). The two differ by a permutation of channels, so weights
// made for one never work with the other. kNone: the channels are kept and never rotated.
enum class RopeLayout : std::uint8_t { kNone, kInterleaved, kHalfSplit };

enum class RopeScaling : std::uint8_t { kNone, kYarn };

// What a config says of positions. Fields after `theta` count for kYarn alone.
struct RopeSpec {
  RopeLayout layout = RopeLayout::kInterleaved;
  RopeScaling scaling = RopeScaling::kNone;
  std::int64_t dim = 0;  // P, even
  double theta = 10000.0;
  double factor = 1.0;
  std::int64_t original_max_position_embeddings = 0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double mscale = 1.0;
  double mscale_all_dim = 0.0;
};

}  // namespace mla

#endif  // MLA_ROPE_H_
