// The attention kernels of one instruction set. Plain types alone: compiled under every instruction set's flags.
#ifndef MLA_ATTENTION_KERNELS_H_
#define MLA_ATTENTION_KERNELS_H_

#include <stdint.h>

namespace mla::attention {

// Keys of a tile, at absolute multiples of the position whatever the page size; and of a segment, which starts from an
// empty state. Both are part of what fixes a row's bits: changing them changes results in the last place.
constexpr int64_t kTileKeys = 64;
constexpr int64_t kSegmentKeys = 1024;

// Online-softmax states of rows: the largest score, the sum of exponentials, the weighted values, not yet divided.
struct States {
  float* max;  // [rows]; -inf where empty
  float* sum;  // [rows]
  float* acc;  // [rows, ld]; the first value_dim count
  int64_t ld;
};

// One tile against a block of query rows.
struct TileBlock {
  const float* q;  // [rows, key_dim], rows ldq apart
  int64_t ldq;
  int64_t rows;
  int64_t key_dim;
  const float* keys;    // [key_dim, 64]: keys in lanes
  const float* values;  // [64, value_dim], rows ldv apart; value_dim rounded up to 16 may be read
  int64_t ldv;
  int64_t value_dim;
  const int32_t* visible;  // [rows]: the row sees the tile's first visible[r] keys, 0 to 64
  float scale;
  States state;
  float* scores;  // scratch [rows, 64]
};

struct AttentionKernels {
  const char* name;  // "portable", "avx2", "avx512"
  // Adds the tile to the rows' states. Each score is one accumulator over key_dim in order, then times scale; each
  // output one accumulator over the visible keys in order. Values of keys that a row does not see are not read for it,
  // so what dead slots hold can't matter. A row that sees nothing keeps its state.
  void (*attend_tile)(const TileBlock& block);
  // into = into (+) part, row by row: the algebra of partial softmaxes. Empty states are the identity, exactly.
  void (*fold)(const States& part, int64_t rows, int64_t value_dim, const States& into);
  // out[r] = acc / sum, or 0 where the state is empty. out rows ldo apart.
  void (*normalise)(const States& state, int64_t rows, int64_t value_dim, float* out, int64_t ldo);
  // Widens n bf16 to floats.
  void (*widen)(const uint16_t* from, float* to, int64_t n);
  // out [n, 64] = in [64, n] transposed; rows of `in` are ldi apart.
  void (*transpose_tile)(const float* in, int64_t ldi, int64_t n, float* out);
};

extern const AttentionKernels kAttentionPortable;
extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvx512;

}  // namespace mla::attention

#endif  // MLA_ATTENTION_KERNELS_H_
