#include "attention/absorbed.h"

#include <algorithm>
#include <cstring>

#include "attention/bf16_block.h"
#include "attention/kv_b.h"
#include "attention/profile.h"
#include "base/parallel.h"

namespace mla::attention {

namespace {

// Rows of a pass at 128 heads are 128: queries and output latents of 37 and 34 MB at DeepSeek-V3's dims.
constexpr std::int64_t kPassStates = 16384;

std::int64_t Heads(const StepContext& step) { return step.dims.num_attention_heads; }
std::int64_t QueryDim(const MlaDims& dims) { return dims.kv_lora_rank + dims.qk_rope_head_dim; }

}  // namespace

void PlaceAbsorbed(const MlaAttention::Options& options, Carver* carver, AbsorbedWorkspace* out) {
  const MlaDims& dims = options.dims;
  const std::int64_t h = dims.num_attention_heads;
  out->pass_rows = std::min(options.max_rows, std::max<std::int64_t>(16, kPassStates / h));
  out->parts = carver->Take<Part>(out->pass_rows);
  out->row_ids = carver->Take<std::int32_t>(out->pass_rows);
  out->query = carver->Take<float>(out->pass_rows * h * QueryDim(dims));
  out->packed =
      carver->Take<char>(out->pass_rows * Bf16Tiles(h) * QueryTileBytes(dims.kv_lora_rank, dims.qk_rope_head_dim));
  out->products = carver->Take<ops::GemmProblem>(h);
  PlaceStates(out->pass_rows * h, dims.kv_lora_rank, carver, &out->total);
  out->partial_states = PartialStates(h, options.workers, options.max_keys);
  PlaceStates(out->partial_states, dims.kv_lora_rank, carver, &out->partial);
}

namespace {

// q~ = q_nope w_kc for every row and head of the pass, and q_pe beside it.
void AbsorbQueries(const StepContext& step, const float* q, std::int64_t rows, const AbsorbedWorkspace& ws) {
  const Phase phase(step, AttentionPhase::kAbsorb);
  const MlaDims& d = step.dims;
  const std::int64_t h = Heads(step);
  const std::int64_t q_head = d.qk_nope_head_dim + d.qk_rope_head_dim;
  for (std::int64_t head = 0; head < h; ++head) {
    ops::GemmProblem& p = ws.products[head];
    p = ops::GemmProblem{};
    p.x = q + head * q_head;
    p.ldx = h * q_head;
    p.x_rows = ws.row_ids;
    p.y = ws.query + head * QueryDim(d);
    p.ldy = h * QueryDim(d);
    p.m = rows;
    p.w = step.weights.absorb[static_cast<std::size_t>(head)];
  }
  ops::Gemm(step.gemm(), std::span<const ops::GemmProblem>(ws.products, static_cast<std::size_t>(h)));
  ParallelForWork(step.executor, rows, static_cast<double>(rows * h * d.qk_rope_head_dim),
                  [&](std::int64_t i, int /*worker*/) {
                    for (std::int64_t head = 0; head < h; ++head) {
                      const float* from = q + (ws.row_ids[i] * h + head) * q_head + d.qk_nope_head_dim;
                      std::copy_n(from, d.qk_rope_head_dim, ws.query + (i * h + head) * QueryDim(d) + d.kv_lora_rank);
                    }
                  });
}

// Packs the pass's queries, sixteen states of a part at a time.
void PackQueries(const StepContext& step, std::int64_t parts, std::int64_t rows, const AbsorbedWorkspace& ws) {
  const Phase phase(step, AttentionPhase::kPack);
  const MlaDims& d = step.dims;
  const std::int64_t tile_bytes = QueryTileBytes(d.kv_lora_rank, d.qk_rope_head_dim);
  std::int64_t tiles = 0;
  for (std::int64_t i = 0; i < parts; ++i) tiles += Bf16Tiles(ws.parts[i].states);
  const double work = kWorkOfElement * static_cast<double>(rows * Heads(step) * QueryDim(d));
  ParallelForWork(step.executor, tiles, work, [&](std::int64_t tile, int /*worker*/) {
    const Part* part = ws.parts;
    for (; tile >= Bf16Tiles(part->states); ++part) tile -= Bf16Tiles(part->states);
    const std::int64_t state = tile * kBf16Tile;
    const float* from = ws.query + (part->pass_row * Heads(step) + state) * QueryDim(d);
    step.kernels.bf16->pack_queries(from, QueryDim(d), std::min(kBf16Tile, part->states - state), d.kv_lora_rank,
                                    d.qk_rope_head_dim, ws.packed + (part->tile + tile) * tile_bytes);
  });
}

// Loads tile `first` (a position) of a part: rows widened, keys transposed.
void LoadTile(const StepContext& step, const Part& part, std::int64_t first, const Scratch& scratch) {
  const std::int64_t live = std::min(kTileKeys, part.keys - first);
  LoadRows(step.kernels, step.cache, part.sequence->pages, first, live, scratch.rows, scratch.ld_rows,
           scratch.rows + step.dims.kv_lora_rank, scratch.ld_rows);
  step.kernels.transpose_tile(scratch.rows, scratch.ld_rows, QueryDim(step.dims), scratch.keys);
}

// A block of a part's states, and how far its item goes.
struct StateBlock {
  std::int64_t begin;
  std::int64_t count;
  std::int64_t end_segment;
};

// RunSegment in products of bf16.
void RunSegmentBf16(const StepContext& step, const Part& part, std::int64_t segment, const StateBlock& block,
                    const AbsorbedWorkspace& ws, const Scratch& scratch, const States& state) {
  const MlaDims& d = step.dims;
  const std::int64_t tile = part.tile + block.begin / kBf16Tile;
  const Bf16Rows rows{ws.packed + tile * QueryTileBytes(d.kv_lora_rank, d.qk_rope_head_dim), block.count,
                      part.first_position, block.begin, Heads(step)};
  const std::int64_t first = segment * kSegmentKeys;
  const std::int64_t end = std::min(first + kSegmentKeys, rows.PositionOf(block.count - 1) + 1);
  if (end <= first) return Clear(state, block.count);
  // No further: what the next item reads, another worker may.
  const std::int64_t item_keys = std::min(part.keys, block.end_segment * kSegmentKeys);
  CachedKeys keys(step, part.sequence->pages, item_keys, scratch.bf16);
  RunBf16Segment(step, rows, first, end, d.kv_lora_rank, &keys, scratch, state);
}

// Runs the block's rows over one segment, from empty, into `state`.
void RunSegment(const StepContext& step, const Part& part, std::int64_t segment, const StateBlock& states,
                const AbsorbedWorkspace& ws, const Scratch& scratch, const States& state) {
  if (UsesBf16(step)) return RunSegmentBf16(step, part, segment, states, ws, scratch, state);
  const auto [begin, count, end_segment] = states;
  const std::int64_t h = Heads(step);
  Clear(state, count);
  const std::int64_t last_position = part.first_position + (begin + count - 1) / h;
  const std::int64_t end = std::min((segment + 1) * kSegmentKeys, last_position + 1);
  for (std::int64_t first = segment * kSegmentKeys; first < end; first += kTileKeys) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t position = part.first_position + (begin + i) / h;
      scratch.visible[i] = static_cast<std::int32_t>(std::clamp<std::int64_t>(position + 1 - first, 0, kTileKeys));
    }
    LoadTile(step, part, first, scratch);
    TileBlock block{};
    block.q = ws.query + (part.pass_row * h + begin) * QueryDim(step.dims);
    block.ldq = QueryDim(step.dims);
    block.rows = count;
    block.key_dim = QueryDim(step.dims);
    block.keys = scratch.keys;
    block.values = scratch.rows;
    block.ldv = scratch.ld_rows;
    block.value_dim = step.dims.kv_lora_rank;
    block.visible = scratch.visible;
    block.scale = step.scale;
    block.state = state;
    block.scores = scratch.scores;
    step.kernels.attend_tile(block);
  }
}

// States [begin, begin + count) of a part are whole: their log-sum-exps, and the output latents in place.
void Divide(const StepContext& step, const Part& part, std::int64_t begin, std::int64_t count, float* lse,
            const AbsorbedWorkspace& ws) {
  const std::int64_t h = Heads(step);
  const States total = Offset(ws.total, part.pass_row * h + begin);
  for (std::int64_t i = 0; lse != nullptr && i < count; ++i) {
    lse[ws.row_ids[part.pass_row + (begin + i) / h] * h + (begin + i) % h] = LogSumExp(total, i);
  }
  step.kernels.normalise(total, count, step.dims.kv_lora_rank, total.acc, total.ld);
}

void RunItem(const StepContext& step, const Part& part, std::int64_t item, float* lse, const AbsorbedWorkspace& ws,
             const Scratch& scratch) {
  const std::int64_t begin = item % part.blocks * part.block;
  const std::int64_t count = std::min(part.block, part.states - begin);
  const StateBlock block{begin, count, part.end_segment(item)};
  if (part.partial >= 0) {
    for (std::int64_t segment = part.first_segment(item); segment < block.end_segment; ++segment) {
      RunSegment(step, part, segment, block, ws, scratch,
                 Offset(ws.partial, part.partial + segment * part.states + begin));
    }
    return;
  }
  // Folding into what is empty is a copy: the first segment needs none.
  const States total = Offset(ws.total, part.pass_row * Heads(step) + begin);
  RunSegment(step, part, 0, block, ws, scratch, total);
  for (std::int64_t segment = 1; segment < part.segments; ++segment) {
    RunSegment(step, part, segment, block, ws, scratch, scratch.segment);
    step.kernels.fold(scratch.segment, count, step.dims.kv_lora_rank, total);
  }
  Divide(step, part, begin, count, lse, ws);
}

// Folds segments that were kept apart, left to right: the order in which one worker would have.
void FoldStates(const StepContext& step, const Part& part, std::int64_t begin, std::int64_t count, float* lse,
                const AbsorbedWorkspace& ws) {
  const std::int64_t states = part.states;
  const States total = Offset(ws.total, part.pass_row * Heads(step) + begin);
  Clear(total, count);
  for (std::int64_t segment = 0; segment < part.segments; ++segment) {
    step.kernels.fold(Offset(ws.partial, part.partial + segment * states + begin), count, step.dims.kv_lora_rank,
                      total);
  }
  Divide(step, part, begin, count, lse, ws);
}

// Takes the output latents through w_vc to the rows of `out`.
void ProjectOut(const StepContext& step, std::int64_t rows, const AbsorbedWorkspace& ws, float* out) {
  const Phase phase(step, AttentionPhase::kProject);
  const MlaDims& d = step.dims;
  const std::int64_t h = Heads(step);
  const States& total = ws.total;
  for (std::int64_t head = 0; head < h; ++head) {
    ops::GemmProblem& p = ws.products[head];
    p = ops::GemmProblem{};
    p.x = total.acc + head * total.ld;
    p.ldx = h * total.ld;
    p.y = out + head * d.v_head_dim;
    p.ldy = h * d.v_head_dim;
    p.y_rows = ws.row_ids;
    p.m = rows;
    p.w = step.weights.value[static_cast<std::size_t>(head)];
  }
  ops::Gemm(step.gemm(), std::span<const ops::GemmProblem>(ws.products, static_cast<std::size_t>(h)));
}

// The parts' rows over their keys: items, then folds of what they kept apart.
void AttendParts(const StepContext& step, std::int64_t parts, float* lse, const AbsorbedWorkspace& ws) {
  std::int64_t items = 0;
  std::int64_t folds = 0;
  double work = 0;
  for (std::int64_t i = 0; i < parts; ++i) {
    items += ws.parts[i].items();
    folds += ws.parts[i].folds();
    work += WorkOf(Form::kAbsorbed, step.dims, ws.parts[i].rows, ws.parts[i].keys).attention;
  }
  {
    const Phase phase(step, AttentionPhase::kAttend);
    ParallelForWork(step.executor, items, work, [&](std::int64_t item, int worker) {
      const Part* part = ws.parts;
      for (; item >= part->items(); ++part) item -= part->items();
      RunItem(step, *part, item, lse, ws, step.scratch[worker]);
    });
  }
  if (folds == 0) return;
  const Phase phase(step, AttentionPhase::kMerge);
  ParallelForWork(step.executor, folds, work, [&](std::int64_t fold, int /*worker*/) {
    const Part* part = ws.parts;
    for (; fold >= part->folds(); ++part) fold -= part->folds();
    const std::int64_t begin = fold * kFoldStates;
    FoldStates(step, *part, begin, std::min(kFoldStates, part->states - begin), lse, ws);
  });
}

void RunPass(const StepContext& step, std::int64_t parts, std::int64_t rows, const float* q, float* out, float* lse,
             const AbsorbedWorkspace& ws) {
  if (step.measured != nullptr) CountParts(step, std::span<const Part>(ws.parts, static_cast<std::size_t>(parts)));
  AbsorbQueries(step, q, rows, ws);
  if (UsesBf16(step)) PackQueries(step, parts, rows, ws);
  AttendParts(step, parts, lse, ws);
  ProjectOut(step, rows, ws, out);
}

}  // namespace

void RunAbsorbed(const StepContext& step, std::span<const AttentionSequence> sequences, const float* q, float* out,
                 float* lse, const AbsorbedWorkspace& workspace) {
  const PlanLimits limits{Heads(step), step.executor.workers(), workspace.pass_rows, workspace.partial_states,
                          UsesBf16(step) ? kBf16Tile : 1};
  PassCursor cursor;
  for (;;) {
    const Pass pass = PlanPass(limits, sequences, &cursor, workspace.parts, workspace.row_ids);
    if (pass.rows == 0) return;
    RunPass(step, pass.parts, pass.rows, q, out, lse, workspace);
  }
}

}  // namespace mla::attention
