#include "attention/mha.h"

#include <algorithm>

#include "attention/bf16_block.h"
#include "attention/kv_b.h"
#include "attention/mha_pieces.h"
#include "attention/profile.h"
#include "base/parallel.h"

namespace mla::attention {
namespace {

// How the keys of one sequence that are not kept, and its heads, are cut.
struct Pieces {
  std::int64_t keys = 0;   // of a piece, whole segments or all
  std::int64_t heads = 0;  // of a group
};

Pieces CutKeys(const MlaDims& d, std::int64_t keys, bool bf16, const MhaWorkspace& ws) {
  const std::int64_t h = d.num_attention_heads;
  if (keys <= ws.max_keys && h * ExpandedBytes(d, keys, bf16) <= ws.bytes) return {keys, h};
  const std::int64_t segment = ExpandedBytes(d, kSegmentKeys, bf16);
  const std::int64_t heads = std::clamp<std::int64_t>(ws.bytes / segment, 1, h);
  const std::int64_t segments = std::max<std::int64_t>(1, ws.bytes / (heads * segment));
  return {std::min(std::min(segments * kSegmentKeys, ws.max_keys), keys), heads};
}

}  // namespace

std::int64_t ExpandedBytes(const MlaDims& d, std::int64_t keys, bool bf16) {
  const std::int64_t v = RoundUp(d.v_head_dim, kBf16Tile);
  if (bf16) return RoundUp(keys, kTileKeys) * 2 * (Bf16Steps(d.qk_nope_head_dim) * kBf16Step + v);
  return keys * 4 * (d.qk_nope_head_dim + v);
}

void PlaceMha(const MlaAttention::Options& options, Carver* carver, MhaWorkspace* out) {
  const MlaDims& d = options.dims;
  const std::int64_t h = d.num_attention_heads;
  // For either way: the kernels and the cache decide later.
  const auto bytes = [&](std::int64_t keys) {
    return std::minmax({ExpandedBytes(d, keys, true), ExpandedBytes(d, keys, false)});
  };
  const std::int64_t segment = bytes(std::min(options.max_keys, kSegmentKeys)).second;
  const std::int64_t whole = bytes(options.max_keys).second * h;
  out->bytes = std::clamp(options.expand_bytes, segment, std::max(segment, whole));
  // A piece of one group holds at most so many keys: all, or the whole segments that fit for all heads, or one segment.
  out->max_keys = options.max_keys;
  if (out->bytes < whole) {
    const std::int64_t fits = out->bytes / (h * bytes(kSegmentKeys).first) * kSegmentKeys;
    out->max_keys = std::min(options.max_keys, std::max(fits, kSegmentKeys));
  }
  out->expanded = carver->Take<std::byte>(out->bytes);
  out->latent = carver->Take<float>(out->max_keys * d.kv_lora_rank);
  out->rope = carver->Take<float>(out->max_keys * RoundUp(d.qk_rope_head_dim, 16));
  out->problems = carver->Take<ops::GemmProblem>(2 * h);
  PlaceStates(options.max_rows * h, d.v_head_dim, carver, &out->total);
  PlaceMhaBf16(options, carver, out);
}

void LoadPiece(const StepContext& step, const Piece& piece, float* rope, const MhaWorkspace& ws) {
  const Phase phase(step, AttentionPhase::kLoad);
  const MlaDims& d = step.dims;
  const std::int64_t ld_rope = RoundUp(d.qk_rope_head_dim, 16);
  ParallelForTiles(step.executor, piece, [&](std::int64_t begin, std::int64_t end) {
    LoadRows(step.kernels, step.cache, piece.sequence.pages, piece.first + begin, end - begin,
             ws.latent + begin * d.kv_lora_rank, d.kv_lora_rank, rope + begin * ld_rope, ld_rope);
  });
}

void MultiplyHeads(const StepContext& step, const HeadProducts& products, const MhaWorkspace& ws) {
  const Phase phase(step, AttentionPhase::kExpand);
  const MlaDims& d = step.dims;
  for (std::int64_t i = 0; i < products.heads; ++i) {
    const auto head = static_cast<std::size_t>(products.head + i);
    ops::GemmProblem& k = ws.problems[2 * i];
    ops::GemmProblem& v = ws.problems[2 * i + 1];
    k = ops::GemmProblem{};
    k.x = products.x;
    k.ldx = d.kv_lora_rank;
    k.m = products.keys;
    v = k;
    k.y = products.k + i * products.stride;
    k.ldy = d.qk_nope_head_dim;
    k.w = step.weights.expand[head];
    v.y = products.v + i * products.stride;
    v.ldy = products.ldv;
    v.w = step.weights.value[head];
  }
  ops::Gemm(step.gemm(), std::span<const ops::GemmProblem>(ws.problems, static_cast<std::size_t>(2 * products.heads)));
}

namespace {

float* KeysOf(const Piece& piece, const MlaDims& d, std::int64_t i) {
  return reinterpret_cast<float*>(piece.place.heads + i * piece.HeadBytes(d, false));
}
float* ValuesOf(const Piece& piece, const MlaDims& d, std::int64_t i) {
  return KeysOf(piece, d, i) + piece.place.room * d.qk_nope_head_dim;
}
float* RopeOf(const Piece& piece) { return reinterpret_cast<float*>(piece.place.rope); }

// Expands the rows of the piece's keys that are not kept, for each head of the group.
void Expand(const StepContext& step, const Piece& piece, const MhaWorkspace& ws) {
  const MlaDims& d = step.dims;
  LoadPiece(step, piece, RopeOf(piece), ws);
  const std::int64_t stride = piece.HeadBytes(d, false) / static_cast<std::int64_t>(sizeof(float));
  const std::int64_t ldv = RoundUp(d.v_head_dim, 16);
  MultiplyHeads(
      step,
      {ws.latent + piece.kept * d.kv_lora_rank, piece.keys - piece.kept, piece.head, piece.heads,
       KeysOf(piece, d, 0) + piece.kept * d.qk_nope_head_dim, ValuesOf(piece, d, 0) + piece.kept * ldv, ldv, stride},
      ws);
}

// The tile's keys of one head: k_nope from the expansion, k_pe shared by all heads from the cache.
void LoadTile(const StepContext& step, const Piece& piece, std::int64_t i, std::int64_t at, const Scratch& scratch) {
  const MlaDims& d = step.dims;
  const std::int64_t live = std::min(kTileKeys, piece.keys - at);
  const std::int64_t n = d.qk_nope_head_dim;
  const std::int64_t p = d.qk_rope_head_dim;
  const std::int64_t ld_rope = RoundUp(p, 16);
  const float* k = KeysOf(piece, d, i) + at * n;
  const float* rope = RopeOf(piece) + at * ld_rope;
  if (live == kTileKeys) {
    step.kernels.transpose_tile(k, n, n, scratch.keys);
    step.kernels.transpose_tile(rope, ld_rope, p, scratch.keys + n * kTileKeys);
    return;
  }
  // The last tile may end inside what is laid out: its missing keys are zero, and masked anyway.
  for (std::int64_t key = 0; key < kTileKeys; ++key) {
    for (std::int64_t c = 0; c < n; ++c) scratch.keys[c * kTileKeys + key] = key < live ? k[key * n + c] : 0.0F;
    for (std::int64_t c = 0; c < p; ++c) {
      scratch.keys[(n + c) * kTileKeys + key] = key < live ? rope[key * ld_rope + c] : 0.0F;
    }
  }
}

// Rows [begin, begin + count) of one head over the piece: segment by segment, folded left to right into their totals.
void Attend(const StepContext& step, const Piece& piece, const RowBlock& rows, const float* q, const States& total,
            const Scratch& scratch) {
  const MlaDims& d = step.dims;
  const auto [i, begin, count] = rows;
  const std::int64_t q_head = d.qk_nope_head_dim + d.qk_rope_head_dim;
  const std::int64_t ldq = d.num_attention_heads * q_head;
  const std::int64_t first_position = piece.sequence.keys - piece.sequence.rows + begin;
  const std::int64_t end = std::min(piece.first + piece.keys, first_position + count);
  if (piece.first == 0) Clear(total, count);
  for (std::int64_t segment = piece.first; segment < end; segment += kSegmentKeys) {
    Clear(scratch.segment, count);
    for (std::int64_t first = segment; first < std::min(end, segment + kSegmentKeys); first += kTileKeys) {
      for (std::int64_t r = 0; r < count; ++r) {
        scratch.visible[r] =
            static_cast<std::int32_t>(std::clamp<std::int64_t>(first_position + r + 1 - first, 0, kTileKeys));
      }
      LoadTile(step, piece, i, first - piece.first, scratch);
      TileBlock block{};
      block.q = q + (piece.sequence.first_row + begin) * ldq + (piece.head + i) * q_head;
      block.ldq = ldq;
      block.rows = count;
      block.key_dim = q_head;
      block.keys = scratch.keys;
      block.ldv = RoundUp(d.v_head_dim, 16);
      block.values = ValuesOf(piece, d, i) + (first - piece.first) * block.ldv;
      block.value_dim = d.v_head_dim;
      block.visible = scratch.visible;
      block.scale = step.scale;
      block.state = scratch.segment;
      block.scores = scratch.scores;
      step.kernels.attend_tile(block);
    }
    step.kernels.fold(scratch.segment, count, d.v_head_dim, total);
  }
}

std::int64_t BlockRows(std::int64_t rows, std::int64_t heads, int workers) {
  std::int64_t block = std::min(rows, kMaxBlockRows);
  while (block > 8 && (rows + block - 1) / block * heads < workers) block = (block + 1) / 2;
  return block;
}

// Blocks of rows that one worker takes one after another: a head's keys and values then stay in its second cache.
constexpr std::int64_t kItemsPerWorker = 8;
std::int64_t BlocksOfItem(std::int64_t blocks, std::int64_t heads, int workers) {
  return std::clamp<std::int64_t>(blocks * heads / (kItemsPerWorker * workers), 1, blocks);
}

// One block of rows of one head over the piece; behind the last piece its outputs.
void RunBlock(const StepContext& step, const Piece& piece, const RowBlock& rows, const float* q, float* out, float* lse,
              const MhaWorkspace& ws, const Scratch& scratch) {
  const MlaDims& d = step.dims;
  const AttentionSequence& s = piece.sequence;
  const std::int64_t h = d.num_attention_heads;
  const States total = Offset(ws.total, (piece.head + rows.head) * s.rows + rows.begin);
  (UsesBf16(step) ? AttendBf16 : Attend)(step, piece, rows, q, total, scratch);
  if (piece.first + piece.keys != s.keys) return;
  const std::int64_t row = (s.first_row + rows.begin) * h + piece.head + rows.head;
  for (std::int64_t r = 0; lse != nullptr && r < rows.count; ++r) lse[row + r * h] = LogSumExp(total, r);
  step.kernels.normalise(total, rows.count, d.v_head_dim, out + row * d.v_head_dim, h * d.v_head_dim);
}

void RunPiece(const StepContext& step, const Piece& piece, const float* q, float* out, float* lse,
              const MhaWorkspace& ws) {
  const MlaDims& d = step.dims;
  const AttentionSequence& s = piece.sequence;
  const bool bf16 = UsesBf16(step);
  if (piece.kept < piece.keys) bf16 ? ExpandBf16(step, piece, ws) : Expand(step, piece, ws);
  if (step.measured != nullptr) CountExpanded(step, piece);
  const std::int64_t block = BlockRows(s.rows, piece.heads, step.executor.workers());
  if (step.measured != nullptr) CountAttended(step, piece, block);
  const Phase phase(step, AttentionPhase::kMhaAttend);
  const std::int64_t blocks = (s.rows + block - 1) / block;
  const double work = static_cast<double>(s.rows) * static_cast<double>(piece.keys) *
                      static_cast<double>(piece.heads * (d.qk_nope_head_dim + d.qk_rope_head_dim + d.v_head_dim));
  const std::int64_t of_item = BlocksOfItem(blocks, piece.heads, step.executor.workers());
  const std::int64_t items = (blocks + of_item - 1) / of_item;
  ParallelForWork(step.executor, piece.heads * items, work, [&](std::int64_t item, int worker) {
    const std::int64_t first = item % items * of_item;
    for (std::int64_t i = first; i < std::min(blocks, first + of_item); ++i) {
      const std::int64_t begin = (blocks - 1 - i) * block;  // late rows see most keys, and go first
      const RowBlock rows{item / items, begin, std::min(block, s.rows - begin)};
      RunBlock(step, piece, rows, q, out, lse, ws, step.scratch[worker]);
    }
  });
}

// A call's results and the memory that it works in.
struct MhaCall {
  const float* q;
  float* out;
  float* lse;
  const MhaWorkspace& ws;
  KeptSegments* kept;
  AttentionCounters* counters;
};

// The segments from the first on that are kept, or that there is room to keep: expanded where they stay. Returns where
// the others begin.
std::int64_t RunKept(const StepContext& step, const AttentionSequence& s, const MhaCall& call) {
  const KeptOwner owner{s.kept_as, step.cache.data};
  const std::int64_t unchanged = s.keys - s.rows;  // what was kept of later positions is of rows since written again
  std::int64_t first = 0;
  for (; first < s.keys; first += kSegmentKeys) {
    const std::int64_t segment = first / kSegmentKeys;
    KeptSegment* found = call.kept->Find(owner, segment);
    if (found == nullptr && s.keep) found = call.kept->Take(owner, segment);
    if (found == nullptr) break;
    const ExpandedPlace place{found->heads, found->rope, kSegmentKeys};
    const std::int64_t keys = std::min(kSegmentKeys, s.keys - first);
    const std::int64_t there = std::clamp<std::int64_t>(unchanged - first, 0, found->keys) / kTileKeys * kTileKeys;
    const Piece piece{s, first, keys, 0, step.dims.num_attention_heads, place, there};
    RunPiece(step, piece, call.q, call.out, call.lse, call.ws);
    found->keys = keys;
    call.counters->keys_kept += there;
    call.counters->keys_expanded += keys - there;
  }
  call.kept->DropFrom(owner, first / kSegmentKeys);
  return std::min(first, s.keys);
}

// Keys [begin, s.keys), in the workspace.
void RunRest(const StepContext& step, const AttentionSequence& s, std::int64_t begin, const MhaCall& call) {
  const bool bf16 = UsesBf16(step);
  const std::int64_t h = step.dims.num_attention_heads;
  const std::int64_t left = s.keys - begin;
  const Pieces cut = CutKeys(step.dims, left, bf16, call.ws);
  const bool one_shot = cut.keys == left && cut.heads == h;
  auto* rope = bf16 ? reinterpret_cast<std::byte*>(call.ws.rope_bf16) : reinterpret_cast<std::byte*>(call.ws.rope);
  ++(one_shot ? call.counters->mha_one_shot : call.counters->mha_in_pieces);
  call.counters->keys_expanded += left;
  for (std::int64_t head = 0; head < h; head += cut.heads) {
    for (std::int64_t first = begin; first < s.keys; first += cut.keys) {
      const std::int64_t keys = std::min(cut.keys, s.keys - first);
      const Piece piece{s, first, keys, head, std::min(cut.heads, h - head), {call.ws.expanded, rope, keys}};
      RunPiece(step, piece, call.q, call.out, call.lse, call.ws);
      if (!one_shot) ++call.counters->pieces;
    }
  }
}

}  // namespace

void RunMha(const StepContext& step, std::span<const AttentionSequence> sequences, const float* q, float* out,
            float* lse, const MhaWorkspace& workspace, KeptSegments* kept, AttentionCounters* counters) {
  const MhaCall call{q, out, lse, workspace, kept, counters};
  kept->Begin(step.dims, UsesBf16(step));
  for (const AttentionSequence& s : sequences) {
    if (s.form != Form::kMha || s.rows == 0) continue;
    RunRest(step, s, RunKept(step, s, call), call);
  }
}

}  // namespace mla::attention
