// The MHA form's pieces: what mha.cc cuts a sequence into, and how a piece is expanded and attended to in bf16.
#ifndef MLA_ATTENTION_MHA_PIECES_H_
#define MLA_ATTENTION_MHA_PIECES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "attention/mha.h"
#include "attention/scratch.h"
#include "base/parallel.h"

namespace mla::attention {

// Bytes of one head's expanded keys and values, k_pe apart; in bf16 they are kept in whole tiles.
std::int64_t ExpandedBytes(const MlaDims& dims, std::int64_t keys, bool bf16);

// Where a piece is expanded to.
struct ExpandedPlace {
  std::byte* heads;   // as MhaWorkspace::expanded
  std::byte* rope;    // as MhaWorkspace::rope_bf16, or where kernels take fp32, rope
  std::int64_t room;  // keys that each head's part is laid out for
};

// One piece at work.
struct Piece {
  const AttentionSequence& sequence;
  std::int64_t first;  // position of its first key
  std::int64_t keys;
  std::int64_t head;  // first head of the group
  std::int64_t heads;
  ExpandedPlace place;
  std::int64_t kept = 0;  // its first keys that are there already: whole tiles

  std::int64_t HeadBytes(const MlaDims& d, bool bf16) const { return ExpandedBytes(d, place.room, bf16); }
};

// Rows [begin, begin + count) of the sequence, of head `head` of the group.
struct RowBlock {
  std::int64_t head;
  std::int64_t begin;
  std::int64_t count;
};

// Reads the rows of the piece's keys that are not kept back from the cache: ws.latent, and `rope` as ws.rope.
void LoadPiece(const StepContext& step, const Piece& piece, float* rope, const MhaWorkspace& ws);

// Runs fn(begin, end) over the piece's keys that are not kept, a tile at a time.
template <class Fn>
void ParallelForTiles(Executor& executor, const Piece& piece, const Fn& fn) {
  const std::int64_t tiles = (piece.keys - piece.kept + kTileKeys - 1) / kTileKeys;
  ParallelFor(executor, tiles, [&](std::int64_t tile, int /*worker*/) {
    const std::int64_t begin = piece.kept + tile * kTileKeys;
    fn(begin, std::min(piece.keys, begin + kTileKeys));
  });
}

// Products of keys' latents x [keys, R] with w_kc and w_vc of heads [head, head + heads): k_nope [keys, N] to k, and v
// [keys, V], rows ldv apart, to v; the next head's `stride` floats further.
struct HeadProducts {
  const float* x;
  std::int64_t keys;
  std::int64_t head;
  std::int64_t heads;
  float* k;
  float* v;
  std::int64_t ldv;
  std::int64_t stride;
};
void MultiplyHeads(const StepContext& step, const HeadProducts& products, const MhaWorkspace& ws);

// Bytes of a key's k_pe in whole steps of k.
std::int64_t RopeStride(const MlaDims& dims);

// What ExpandBf16 works in beside the rest.
void PlaceMhaBf16(const MlaAttention::Options& options, Carver* carver, MhaWorkspace* out);

// Reads the rows of keys that are not kept back and expands them, each product rounded to bf16.
void ExpandBf16(const StepContext& step, const Piece& piece, const MhaWorkspace& ws);

// The rows over the piece, segment by segment, folded left to right into their totals.
void AttendBf16(const StepContext& step, const Piece& piece, const RowBlock& rows, const float* q, const States& total,
                const Scratch& scratch);

}  // namespace mla::attention

#endif  // MLA_ATTENTION_MHA_PIECES_H_
