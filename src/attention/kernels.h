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

// Keys whose scores are had before their softmax in products of bf16: blocks stand at absolute multiples, and whole
// blocks make a segment.
constexpr int64_t kBlockKeys = 256;
// Rows of a tile of states, keys and k; elements of k in a step; bytes of a tile: 16 rows of 32 bf16.
constexpr int64_t kBf16Tile = 16;
constexpr int64_t kBf16Step = 32;
constexpr int64_t kBf16TileBytes = 1024;
// Tiles of so many states, keys or columns.
constexpr int64_t Bf16Tiles(int64_t n) { return (n + kBf16Tile - 1) / kBf16Tile; }
// Tiles of states that go together, over the keys that any of them sees.
constexpr int64_t kBf16Group = 2;
static_assert(kSegmentKeys % kBlockKeys == 0 && kBlockKeys % kTileKeys == 0);

// A block of keys in bf16: rows of two parts (latent and rope, or k_nope and k_pe), each of whole steps.
struct Bf16Keys {
  const char* const* runs[2];  // [ceil(count / 16)]: where 16 keys in a row begin
  int64_t stride[2];           // bytes from one key to the next
  int64_t steps[2];
  int64_t count;  // 1 to kBlockKeys; the last run is readable to its end, whatever it holds
  // Tiles of 16 columns by 16 pairs of keys, [steps of 32 keys][columns / 16]; zero past `count`. Null: the values are
  // the first part of the keys, for rows_by_key rows at most that all see every key.
  const char* values;
  int64_t value_step;  // bytes from one step's tiles to the next's
  // What comes next, to be asked for while this is at work: [next_runs] places of next_bytes each, or none.
  const char* const* next;
  int64_t next_runs;
  int64_t next_bytes;
};

// One block of keys against a block of query rows.
struct Bf16Block {
  const char* q;  // [ceil(rows / 16)][steps of both parts] tiles of 16 pairs of k by 16 rows
  int64_t rows;   // 1 to kMaxBlockRows
  const Bf16Keys& keys;
  const int32_t* visible;  // [rows]: the row sees the first visible[r] keys, 0 to count
  float scale;             // positive
  int64_t value_dim;
  bool first;  // the states are empty, and their acc is to be written, not read
  States state;
  char* scratch;  // kBf16Scratch bytes, 64-byte aligned
};

// Scores of two tiles of rows, their weights, and a tile of sums that a state's memory has no room for.
constexpr int64_t kBf16Scores = kBlockKeys * kBf16Group * kBf16Tile * 4;
constexpr int64_t kBf16Weights = kBf16Group * kBlockKeys / kBf16Step * kBf16TileBytes;
constexpr int64_t kBf16Scratch = kBf16Scores + kBf16Weights + 2 * kBf16TileBytes;

// Attention by products of bf16: queries and weights of keys are rounded to bf16 (to nearest even, denormals to 0),
// products are exact, sums in fp32.
struct Bf16Kernels {
  // So few rows take values from the keys' own rows in less time than interleaving takes; 0 where there is no such way.
  // Changes no bit.
  int64_t rows_by_key;
  // Adds the block to the rows' states. Each score is one accumulator over k in steps of the instruction's own, then
  // times scale; the softmax is relative to the largest score so far; each output is one accumulator over the keys in
  // order. A weight is summed before it is rounded. A key that a row does not see adds 0 times its value: values must
  // be numbers, or their rows are not.
  void (*attend)(const Bf16Block& block);
  // q [rows, n0 + n1], rows ldq apart -> Bf16Block::q, zero past either part's end and past the last row.
  void (*pack_queries)(const float* q, int64_t ldq, int64_t rows, int64_t n0, int64_t n1, char* out);
  // The first `columns` elements of `count` keys, 16 a run -> Bf16Keys::values.
  void (*interleave)(const char* const* runs, int64_t stride, int64_t count, int64_t columns, char* out,
                     int64_t value_step);
  // The same of floats [count, columns], rows ldv apart, which are rounded.
  void (*round_values)(const float* v, int64_t ldv, int64_t count, int64_t columns, char* out, int64_t value_step);
  // Rounds n floats to bf16, and adds zeros up to a multiple of 32.
  void (*round_row)(const float* from, int64_t n, char* out);
  // Whether all `count` bf16 are numbers and finite; a multiple of 32.
  bool (*all_finite)(const char* values, int64_t count);
};

struct AttentionKernels {
  const char* name;  // "portable", "avx2", "avx512", "avx512bf16", "amx"
  // Null where the instruction set has none. For bf16 caches; others take the kernels below.
  const Bf16Kernels* bf16;
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
extern const AttentionKernels kAttentionAvx512Bf16;
extern const AttentionKernels kAttentionAmx;

}  // namespace mla::attention

#endif  // MLA_ATTENTION_KERNELS_H_
