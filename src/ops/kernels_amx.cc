// Products of bf16 on AMX tiles. Empty where the build leaves the instruction set out.
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#include <immintrin.h>
#include <string.h>

#include "base/amx.h"
#define MLA_SIMD_AVX512
#include "base/simd.h"
#include "ops/bf16_rows.h"
#include "ops/f8_decode.h"
#include "ops/kernels.h"

// A packed panel is a column of B tiles as it stands: 16 pairs of k by 16 outputs are 1 KiB in a row. x is rounded to
// bf16 and packed into A tiles of 16 rows by 32 of k, in blocks that stay in the second cache (2 MiB) while the weights
// stream past: 16 tiles of rows by 32 steps are 512 KiB, a pair of panels' steps 64 KiB, the sums of a group 256 KiB.
// Measured on one core of a Xeon (Sapphire Rapids; products of registers 3.5 TFLOP/s, 16 GB/s from memory, 28 GB/s from
// the third cache): four tile loads from the second cache a step of 2 x 2 tiles allow 0.6 of that, from the first 0.8;
// keeping weights in the first needs blocks of 8 steps, whose sums' way to memory and back costs what it gains (0.53).
// With weights and x from further away 0.3 is left; of one to 32 rows 0.84 to 0.94 of what memory gives.
namespace mla::ops {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kStep = 32;  // of k, a tile's
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kBlockTiles = 16;   // of rows
constexpr int64_t kBlockSteps = 32;   // of k
constexpr int64_t kGroupPanels = 16;  // that share a block of x
constexpr int64_t kFewTiles = 2;      // of rows: so few take k in blocks as long as they fit
constexpr int64_t kPackedX = kBlockTiles * kBlockSteps * kTileBytes;  // bytes of scratch for x
constexpr int64_t kSums = kBlockTiles * kGroupPanels * kTileBytes;    // and for sums between blocks of k
constexpr int64_t kDecoded = 2 * kBlockSteps * kTileBytes;            // and for two panels of fp8, decoded
static_assert(kPackedX + kSums + kDecoded <= kGemmScratch);
// Of few rows, steps that are decoded at a time. Few: while tiles are at work little is asked of memory.
constexpr int64_t kDecodedSteps = 2;

// What is at work: some rows, panels and steps of k.
struct Block {
  const GemmBlock& b;
  char* x;          // [tiles of rows][x_steps][16][32] bf16
  int64_t x_steps;  // steps, or more: those of fp8 are a part
  float* sums;      // [panels][tiles of rows][16][16]
  int64_t row;      // first
  int64_t rows;
  int64_t panel;  // first
  int64_t panels;
  int64_t step;  // first, of k
  int64_t steps;
  bool first;  // of k
  bool last;
  const char* next_x;  // the block that comes after this one, or null
  int64_t next_x_bytes;

  int64_t row_tiles() const { return Ceil(rows, kTileRows); }
  char* x_tile(int64_t tile) const { return x + tile * x_steps * kTileBytes; }
  float* sum(int64_t p, int64_t tile) const { return sums + (p * row_tiles() + tile) * 256; }
};

// Rounds and packs steps [step, step + steps) of row r, 0 of a tile that has no such row: its sums are not looked at.
void PackRow(const GemmBlock& b, int64_t r, int64_t step, int64_t steps, char* to) {
  if (r >= b.row_end) {
    for (int64_t s = 0; s < steps; ++s) _mm512_store_si512(to + s * kTileBytes, _mm512_setzero_si512());
    return;
  }
  const float* from = XRow(b, r) + step * kStep;
  const int64_t left = b.k - step * kStep;
  for (int64_t s = 0; s < steps; ++s) {
    _mm512_store_si512(to + s * kTileBytes, RoundPairs(from + s * kStep, left - s * kStep));
  }
}

void PackBlock(const Block& k) {
  for (int64_t r = 0; r < k.row_tiles() * kTileRows; ++r) {
    PackRow(k.b, k.row + r, k.step, k.steps, k.x_tile(r / kTileRows) + r % kTileRows * 64);
  }
}

// Steps of a block of k: of few rows as many as fit, so that weights are read in a row.
int64_t BlockSteps(int64_t tiles) { return tiles <= kFewTiles ? kPackedX / (tiles * kTileBytes) : kBlockSteps; }

// Where a problem's packed x has the block of rows from `row` and of steps from `step`: blocks of rows, in them blocks
// of steps, in those [tiles of rows][steps].
char* PackedBlock(const GemmBlock& b, int64_t row, int64_t step) {
  const int64_t tiles = Min(kBlockTiles, Ceil(b.m - row, kTileRows));
  return static_cast<char*>(b.packed_x) + (row / kTileRows * Ceil(b.k, kStep) + tiles * step) * kTileBytes;
}

// One tile of sums to y.
void StoreTile(const Block& k, const float* sum, int64_t tile, int64_t panel) {
  const int64_t rows = Min(kTileRows, k.rows - tile * kTileRows);
  for (int64_t r = 0; r < rows; ++r) {
    StoreSum(k.b, k.row + tile * kTileRows + r, panel, _mm512_load_ps(sum + r * 16));
  }
}

// Tiles of sums of panels `panel` and `panel` + 1 to y.
void StoreSwigluTile(const Block& k, const float* gate, const float* up, int64_t tile, int64_t panel) {
  const int64_t rows = Min(kTileRows, k.rows - tile * kTileRows);
  for (int64_t r = 0; r < rows; ++r) {
    StoreSwiglu(k.b, k.row + tile * kTileRows + r, panel, _mm512_load_ps(gate + r * 16), _mm512_load_ps(up + r * 16));
  }
}

// Asks for memory ahead of its use, a little a step: what is at work now leaves the way to memory idle.
struct Ahead {
  const char* at;
  int64_t lines;  // a step

  void Step() {
    for (int64_t i = 0; i < lines; ++i) _mm_prefetch(at + i * 64, _MM_HINT_T1);
    at += lines * 64;
  }
};

// Intrinsics take a tile's number as a constant: sums are tiles 0 to 3, x 4 and 5, weights 6 and 7.
#define MLA_EACH_SUM(OP)  \
  OP(0, 0, 0);            \
  if (P > 1) OP(1, 0, 1); \
  if (R > 1) OP(2, 1, 0); \
  if (R > 1 && P > 1) OP(3, 1, 1)

// R tiles of rows by P panels over the block's steps: weights from w0 on, the second panel's panel_bytes further.
template <int R, int P>
void Tiles(const Block& k, int64_t tile, int64_t p, const char* w0, int64_t panel_bytes) {
  const char* w1 = w0 + panel_bytes;
  const char* x0 = k.x_tile(tile);
  const char* x1 = k.x_tile(tile + 1);
#define MLA_ZERO(I, r, c) _tile_zero(I)
#define MLA_LOAD(I, r, c) _tile_loadd(I, k.sum(p + (c), tile + (r)), 64)
  if (k.first) {
    MLA_EACH_SUM(MLA_ZERO);
  } else {
    MLA_EACH_SUM(MLA_LOAD);
  }
  // Of many rows, the next pair of panels and the next block of x, shared out over the calls that this block and pair
  // have (0.31 against 0.27 at 512 rows, 0.64 against 0.56 at 64). Of few, the same panels' bytes 8 steps ahead: at 32
  // rows 0.85 against 0.80 of the read rate.
  const int64_t calls = Ceil(k.row_tiles(), 2);
  const int64_t call = tile / 2;
  const int64_t share = Ceil(kTileBytes / 64, calls);
  const bool few = calls == 1;
  const char* next = few ? w0 + 8 * kTileBytes : w0 + 2 * panel_bytes + call * share * k.steps * 64;
  const bool decoded = k.b.scale_block != 0;  // asked for as they are decoded
  Ahead next0{next, !decoded && (few || p + 4 <= k.panels) ? share : 0};
  Ahead next1{next0.at + panel_bytes, next0.lines};
  const int64_t all_calls = calls * Ceil(k.panels, 2);
  const int64_t x_share = k.next_x_bytes > 0 ? Ceil(k.next_x_bytes / 64, all_calls * k.steps) : 0;
  Ahead next_x{k.next_x + (p / 2 * calls + call) * x_share * k.steps * 64, x_share};
  const int64_t whole = Min(k.steps, k.b.k / kStep - k.step);
  for (int64_t s = 0; s < whole; ++s) {
    const int64_t at = s * kTileBytes;
    _tile_loadd(6, w0 + at, 64);
    _tile_loadd(4, x0 + at, 64);
    _tile_dpbf16ps(0, 4, 6);
    next0.Step();
    if (P > 1) {
      _tile_loadd(7, w1 + at, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    next_x.Step();
    if (R > 1) {
      next1.Step();
      _tile_loadd(5, x1 + at, 64);
      _tile_dpbf16ps(2, 5, 6);
      if (P > 1) _tile_dpbf16ps(3, 5, 7);
    }
  }
  if (whole < k.steps) {
    // The last step is short: what follows in memory is another panel, or nothing.
    alignas(64) char w[2][kTileBytes] = {};
    const int64_t bytes = Ceil(k.b.k, 2) * 64 - (k.step + whole) * kTileBytes;
    memcpy(w[0], w0 + whole * kTileBytes, static_cast<size_t>(bytes));
    if (P > 1) memcpy(w[1], w1 + whole * kTileBytes, static_cast<size_t>(bytes));
    _tile_loadd(6, w[0], 64);
    _tile_loadd(7, w[1], 64);
    _tile_loadd(4, x0 + whole * kTileBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (P > 1) _tile_dpbf16ps(1, 4, 7);
    if (R > 1) {
      _tile_loadd(5, x1 + whole * kTileBytes, 64);
      _tile_dpbf16ps(2, 5, 6);
      if (P > 1) _tile_dpbf16ps(3, 5, 7);
    }
  }
#define MLA_KEEP(I, r, c) _tile_stored(I, k.sum(p + (c), tile + (r)), 64)
  MLA_EACH_SUM(MLA_KEEP);
  if (!k.last) return;
  if (P > 1 && k.b.swiglu) {
    for (int r = 0; r < R; ++r) StoreSwigluTile(k, k.sum(p, tile + r), k.sum(p + 1, tile + r), tile + r, k.panel + p);
    return;
  }
  for (int c = 0; c < P; ++c) {
    for (int r = 0; r < R; ++r) StoreTile(k, k.sum(p + c, tile + r), tile + r, k.panel + p + c);
  }
}

template <int P>
void AllTiles(const Block& k, int64_t p, const char* w, int64_t panel_bytes) {
  int64_t tile = 0;
  for (; tile + 2 <= k.row_tiles(); tile += 2) Tiles<2, P>(k, tile, p, w, panel_bytes);
  if (tile < k.row_tiles()) Tiles<1, P>(k, tile, p, w, panel_bytes);
}

// Panels of fp8, decoded some steps at a time.
template <int P>
void PanelsF8(const Block& k, int64_t p) {
  const GemmBlock& b = k.b;
  const int64_t pairs = Ceil(b.k, 2);
  const int64_t panel_bytes = PanelBytesF8(b);
  const char* from = static_cast<const char*>(b.panels) + (k.panel + p) * panel_bytes;
  char* decoded = static_cast<char*>(b.scratch) + kPackedX + kSums;
  const int64_t fit = k.row_tiles() <= kFewTiles ? kDecodedSteps : kBlockSteps;
  for (int64_t step = 0; step == 0 || step < k.steps; step += fit) {
    Block part = k;
    part.x = k.x + step * kTileBytes;
    part.step = k.step + step;
    part.steps = Min(fit, k.steps - step);
    part.first = k.first && step == 0;
    part.last = k.last && step + part.steps == k.steps;
    const int64_t pair = part.step * (kStep / 2);
    for (int64_t i = 0; i < P; ++i) {
      DecodeF8Avx512(from + i * panel_bytes, b.scale_block, pair, Min(part.steps * (kStep / 2), pairs - pair),
                     reinterpret_cast<uint16_t*>(decoded + i * fit * kTileBytes), kAheadF8);
    }
    AllTiles<P>(part, p, decoded, fit * kTileBytes);
  }
}

template <int P>
void Panels(const Block& k, int64_t p) {
  if (k.b.scale_block != 0) return PanelsF8<P>(k, p);
  const int64_t panel_bytes = Ceil(k.b.k, 2) * 64;
  const char* w = static_cast<const char*>(k.b.panels) + (k.panel + p) * panel_bytes + k.step * kTileBytes;
  AllTiles<P>(k, p, w, panel_bytes);
}

// One block of rows by a group of panels, over k in blocks.
void Run(const GemmBlock& b, int64_t row, int64_t rows, int64_t panel, int64_t panels) {
  const int64_t steps = Ceil(b.k, kStep);
  const int64_t tiles = Ceil(rows, kTileRows);
  const int64_t fit = BlockSteps(tiles);
  char* scratch = static_cast<char*>(b.scratch);
  for (int64_t step = 0; step == 0 || step < steps; step += fit) {  // once without k: zeros are written
    const int64_t count = Min(fit, steps - step);
    const bool last = step + count == steps;
    const bool ahead = b.packed_x != nullptr && !last;
    const Block k{b,
                  b.packed_x != nullptr ? PackedBlock(b, row, step) : scratch,
                  count,
                  reinterpret_cast<float*>(scratch + kPackedX),
                  row,
                  rows,
                  panel,
                  panels,
                  step,
                  count,
                  step == 0,
                  last,
                  ahead ? PackedBlock(b, row, step + count) : nullptr,
                  ahead ? Min(fit, steps - step - count) * tiles * kTileBytes : 0};
    if (b.packed_x == nullptr) PackBlock(k);
    int64_t p = 0;
    for (; p + 2 <= panels; p += 2) Panels<2>(k, p);
    if (p < panels) Panels<1>(k, p);
  }
}

}  // namespace

void PackInputsAmx(const GemmBlock& b);
void PackInputsAmx(const GemmBlock& b) {
  const int64_t steps = Ceil(b.k, kStep);
  for (int64_t tile = b.row_begin / kTileRows; tile < Ceil(b.row_end, kTileRows); ++tile) {
    const int64_t row = tile / kBlockTiles * kBlockTiles * kTileRows;
    const int64_t fit = BlockSteps(Min(kBlockTiles, Ceil(b.m - row, kTileRows)));
    for (int64_t step = 0; step < steps; step += fit) {
      const int64_t count = Min(fit, steps - step);
      char* to = PackedBlock(b, row, step) + tile % kBlockTiles * count * kTileBytes;
      for (int64_t r = 0; r < kTileRows; ++r) PackRow(b, tile * kTileRows + r, step, count, to + r * 64);
    }
  }
}

void GemmBf16Amx(const GemmBlock& b);
void GemmBf16Amx(const GemmBlock& b) {
  const amx::TileConfig config;
  _tile_loadconfig(&config);
  for (int64_t row = b.row_begin; row < b.row_end; row += kBlockTiles * kTileRows) {
    const int64_t rows = Min(kBlockTiles * kTileRows, b.row_end - row);
    const int64_t group = Ceil(rows, kTileRows) <= kFewTiles ? kSums / (kFewTiles * kTileBytes) : kGroupPanels;
    for (int64_t panel = b.panel_begin; panel < b.panel_end; panel += group) {
      Run(b, row, rows, panel, Min(group, b.panel_end - panel));
    }
  }
  _tile_release();
}

// The block says how its weights are kept.
void GemmF8Amx(const GemmBlock& b);
void GemmF8Amx(const GemmBlock& b) { GemmBf16Amx(b); }

}  // namespace mla::ops

#endif
