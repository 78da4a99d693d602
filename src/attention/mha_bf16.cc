#include <algorithm>

#include "attention/bf16_block.h"
#include "attention/mha_pieces.h"
#include "attention/profile.h"
#include "base/parallel.h"

namespace mla::attention {
namespace {

// Keys whose products are had at a time, and bytes of products in fp32 on their way to bf16.
constexpr std::int64_t kRoundedKeys = 1024;
constexpr std::int64_t kProductBytes = std::int64_t{16} << 20;

std::int64_t KeyStride(const MlaDims& d) { return Bf16Steps(d.qk_nope_head_dim) * kBf16Step * 2; }
std::int64_t ValueStep(const MlaDims& d) { return Bf16Tiles(d.v_head_dim) * kBf16TileBytes; }

char* KeysOf(const Piece& piece, const MlaDims& d, std::int64_t i) {
  return reinterpret_cast<char*>(piece.place.heads) + i * piece.HeadBytes(d, true);
}
char* ValuesOf(const Piece& piece, const MlaDims& d, std::int64_t i) {
  return KeysOf(piece, d, i) + RoundUp(piece.place.room, kTileKeys) * KeyStride(d);
}
char* RopeOf(const Piece& piece) { return reinterpret_cast<char*>(piece.place.rope); }

// Keys [at, at + count) of the piece for heads [i, i + heads) of the group: k_nope [count, N] of each head, then v
// [count, V].
struct Chunk {
  std::int64_t at;
  std::int64_t count;
  std::int64_t i;
  std::int64_t heads;

  float* Keys(const MlaDims& d, const MhaWorkspace& ws, std::int64_t head) const {
    return ws.products + head * count * (d.qk_nope_head_dim + d.v_head_dim);
  }
  float* Values(const MlaDims& d, const MhaWorkspace& ws, std::int64_t head) const {
    return Keys(d, ws, head) + count * d.qk_nope_head_dim;
  }
};

// A tile of 64 keys of one head to where kernels read it.
void RoundTile(const StepContext& step, const Piece& piece, const Chunk& chunk, std::int64_t i, std::int64_t first,
               const MhaWorkspace& ws) {
  const MlaDims& d = step.dims;
  const Bf16Kernels& kernels = *step.kernels.bf16;
  const std::int64_t count = std::min(kTileKeys, chunk.count - first);
  const std::int64_t at = chunk.at + first;
  const float* k = chunk.Keys(d, ws, i) + first * d.qk_nope_head_dim;
  char* to = KeysOf(piece, d, chunk.i + i) + at * KeyStride(d);
  for (std::int64_t key = 0; key < count; ++key) {
    kernels.round_row(k + key * d.qk_nope_head_dim, d.qk_nope_head_dim, to + key * KeyStride(d));
  }
  kernels.round_values(chunk.Values(d, ws, i) + first * d.v_head_dim, d.v_head_dim, count, d.v_head_dim,
                       ValuesOf(piece, d, chunk.i + i) + at / kBf16Step * ValueStep(d), ValueStep(d));
}

// Expanded keys and values of one head of a piece.
class ExpandedKeys final : public KeySource {
 public:
  ExpandedKeys(const MlaDims& d, const Piece& piece, std::int64_t i, const Bf16Scratch& scratch)
      : dims_(d),
        first_(piece.first),
        end_(piece.first + piece.keys),
        keys_(KeysOf(piece, d, i)),
        values_(ValuesOf(piece, d, i)),
        rope_(RopeOf(piece)),
        scratch_(scratch) {}

  Bf16Keys Block(std::int64_t first, std::int64_t count, bool /*by_key*/) override {
    Bf16Keys keys{};
    const std::int64_t at = first - first_;
    keys.count = count;
    keys.stride[0] = KeyStride(dims_);
    keys.stride[1] = RopeStride(dims_);
    const char* const base[2] = {keys_, rope_};
    for (int part = 0; part < 2; ++part) {
      for (std::int64_t run = 0; run * kBf16Tile < count; ++run) {
        scratch_.runs[part][run] = base[part] + (at + run * kBf16Tile) * keys.stride[part];
      }
      keys.runs[part] = scratch_.runs[part];
    }
    keys.steps[0] = Bf16Steps(dims_.qk_nope_head_dim);
    keys.steps[1] = Bf16Steps(dims_.qk_rope_head_dim);
    keys.value_step = ValueStep(dims_);
    keys.values = values_ + at / kBf16Step * keys.value_step;
    LookAhead(first + kBlockKeys, &keys);
    return keys;
  }

 private:
  // The head's keys and values of the block after: as long as each other where they are of one width.
  void LookAhead(std::int64_t first, Bf16Keys* keys) const {
    if (first >= end_) return;
    const std::int64_t at = first - first_;
    const std::int64_t steps = std::min(kBlockKeys, end_ - first) / kBf16Step;
    scratch_.next[0] = keys_ + at * keys->stride[0];
    scratch_.next[1] = values_ + at / kBf16Step * keys->value_step;
    keys->next = scratch_.next;
    keys->next_runs = 2;
    keys->next_bytes = steps * std::min(kBf16Step * keys->stride[0], keys->value_step);
  }

  const MlaDims& dims_;
  std::int64_t first_;
  std::int64_t end_;
  const char* keys_;
  const char* values_;
  const char* rope_;
  const Bf16Scratch& scratch_;
};

}  // namespace

std::int64_t RopeStride(const MlaDims& d) { return Bf16Steps(d.qk_rope_head_dim) * kBf16Step * 2; }

void PlaceMhaBf16(const MlaAttention::Options& options, Carver* carver, MhaWorkspace* out) {
  const MlaDims& d = options.dims;
  const std::int64_t head = std::min(out->max_keys, kRoundedKeys) * (d.qk_nope_head_dim + d.v_head_dim);
  const std::int64_t fit = kProductBytes / (head * static_cast<std::int64_t>(sizeof(float)));
  out->product_heads = std::clamp<std::int64_t>(fit, 1, d.num_attention_heads);
  out->products = carver->Take<float>(out->product_heads * head);
  out->rope_bf16 = carver->Take<char>(RoundUp(out->max_keys, kTileKeys) * RopeStride(d));
}

namespace {

// The piece's k_pe, as kernels read it.
void RoundRope(const StepContext& step, const Piece& piece, const MhaWorkspace& ws) {
  const Phase phase(step, AttentionPhase::kRound);
  const MlaDims& d = step.dims;
  const std::int64_t ld_rope = RoundUp(d.qk_rope_head_dim, 16);
  ParallelForTiles(step.executor, piece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t key = begin; key < end; ++key) {
      step.kernels.bf16->round_row(ws.rope + key * ld_rope, d.qk_rope_head_dim, RopeOf(piece) + key * RopeStride(d));
    }
  });
}

}  // namespace

void ExpandBf16(const StepContext& step, const Piece& piece, const MhaWorkspace& ws) {
  const MlaDims& d = step.dims;
  LoadPiece(step, piece, ws.rope, ws);
  RoundRope(step, piece, ws);
  for (std::int64_t at = piece.kept; at < piece.keys; at += kRoundedKeys) {
    for (std::int64_t i = 0; i < piece.heads; i += ws.product_heads) {
      const Chunk chunk{at, std::min(kRoundedKeys, piece.keys - at), i, std::min(ws.product_heads, piece.heads - i)};
      MultiplyHeads(step,
                    {ws.latent + at * d.kv_lora_rank, chunk.count, piece.head + i, chunk.heads, chunk.Keys(d, ws, 0),
                     chunk.Values(d, ws, 0), d.v_head_dim, chunk.count * (d.qk_nope_head_dim + d.v_head_dim)},
                    ws);
      const Phase phase(step, AttentionPhase::kRound);
      const std::int64_t tiles = (chunk.count + kTileKeys - 1) / kTileKeys;
      ParallelFor(step.executor, chunk.heads * tiles, [&](std::int64_t item, int /*worker*/) {
        RoundTile(step, piece, chunk, item / tiles, item % tiles * kTileKeys, ws);
      });
    }
  }
}

void AttendBf16(const StepContext& step, const Piece& piece, const RowBlock& rows, const float* q, const States& total,
                const Scratch& scratch) {
  const MlaDims& d = step.dims;
  const AttentionSequence& s = piece.sequence;
  const std::int64_t q_head = d.qk_nope_head_dim + d.qk_rope_head_dim;
  const std::int64_t ldq = d.num_attention_heads * q_head;
  step.kernels.bf16->pack_queries(q + (s.first_row + rows.begin) * ldq + (piece.head + rows.head) * q_head, ldq,
                                  rows.count, d.qk_nope_head_dim, d.qk_rope_head_dim, scratch.bf16.queries);
  const Bf16Rows block{scratch.bf16.queries, rows.count, s.keys - s.rows, rows.begin, 1};
  const std::int64_t end = std::min(piece.first + piece.keys, block.PositionOf(rows.count - 1) + 1);
  ExpandedKeys keys(d, piece, rows.head, scratch.bf16);
  for (std::int64_t first = piece.first; first < end; first += kSegmentKeys) {
    // Folding into what is empty is a copy: the first segment needs none.
    const States& state = first == 0 ? total : scratch.segment;
    RunBf16Segment(step, block, first, std::min(end, first + kSegmentKeys), d.v_head_dim, &keys, scratch, state);
    if (first != 0) step.kernels.fold(state, rows.count, d.v_head_dim, total);
  }
}

}  // namespace mla::attention
