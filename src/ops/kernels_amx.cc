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
// bf16 and packed into A tiles of 16 rows by 32 of k, chunk of k by chunk.
//
// Measured on one core of a Xeon (Sapphire Rapids), as ns for a step of 2 x 2 tiles, whose products alone take 19 to 20
// (3.3 to 3.5 TFLOP/s, whether on 3, 4 or 6 sums): all tiles from the first cache 24; weights from there and x from the
// second 25; both from the second 33. So a pair of panels' chunk is short enough for the first cache, and x passes it
// by (tileloaddt1: with 16 steps in a chunk 28 against 36). Sums go to memory and back between chunks: 80 to 120 ns for
// four tiles, a tenth less one by one between products than all at once. The second cache's capacity, 2 MiB, is 1.3
// in practice: x of a pass, the sums of a group of panels and what is asked for ahead share it. What is asked for
// ahead seems to hold a fill buffer of the first cache until it comes, and tiles from the second need them too: the
// more of x is read to a weight, the less of the memory's rate is left.
namespace mla::ops {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kStep = 32;  // of k, a tile's
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kBlockTiles = 32;                        // of rows: those of a task (kOpsAmx)
constexpr int64_t kFewTiles = 2;                           // of rows: so few take k in chunks as long as they fit
constexpr int64_t kSomeTiles = 6;                          // of rows, and
constexpr int64_t kSomeSteps = 4;                          // of k, a chunk of theirs
constexpr int64_t kMoreTiles = 16;                         // of rows, and
constexpr int64_t kMoreSteps = 8;                          // of k, a chunk of theirs
constexpr int64_t kManySteps = 12;                         // of k, a chunk of still more rows
constexpr int64_t kAskSteps = 4;                           // before sums go to y
constexpr int64_t kFewAhead = 8;                           // steps
constexpr int64_t kPackedX = 512 << 10;                    // bytes of scratch for x
constexpr int64_t kSums = 512 << 10;                       // and for sums between chunks of k
constexpr int64_t kDecoded = 2 * kManySteps * kTileBytes;  // and for two panels of fp8, decoded
static_assert(kPackedX + kSums + kDecoded <= kGemmScratch);
static_assert(kBlockTiles * kManySteps * kTileBytes <= kPackedX);
// Of few rows, steps that are decoded at a time. Few: while tiles are at work little is asked of memory.
constexpr int64_t kDecodedSteps = 2;

// Memory to ask for ahead of its use, a little a step: what is at work now leaves the way to memory idle.
struct Ahead {
  const char* at;
  const char* end;
  int64_t lines;  // a step

  // Shared out over so many steps.
  static Ahead Over(const char* at, int64_t bytes, int64_t steps) {
    return {at, at + bytes, Ceil(bytes / 64, Max(steps, 1))};
  }
  // After so many steps.
  Ahead From(int64_t steps) const { return {at + steps * lines * 64, end, lines}; }
  void Step() {
    if (at >= end) return;
    for (int64_t i = 0; i < lines; ++i) _mm_prefetch(at + i * 64, _MM_HINT_T1);
    at += lines * 64;
  }
};

// What is at work: some rows, panels and steps of k.
struct Block {
  const GemmBlock& b;
  char* x;          // [tiles of rows][x_steps][16][32] bf16
  int64_t x_steps;  // steps, or more: those of fp8 are a part
  float* sums;      // [panels][tiles of rows][16][16]
  int64_t row;      // first
  int64_t rows;
  int64_t panel;  // first
  int64_t step;   // first, of k
  int64_t steps;
  bool first;  // of k
  bool last;
  Ahead next_w[2];  // of the panels at work
  Ahead next_x;

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

// Steps of a chunk of k, over which sums stay in tiles.
int64_t ChunkSteps(const GemmBlock& b, int64_t tiles) {
  if (tiles <= kFewTiles) return kPackedX / (tiles * kTileBytes);
  const int64_t most = tiles <= kSomeTiles ? kSomeSteps : tiles <= kMoreTiles ? kMoreSteps : kManySteps;
  const int64_t steps = Max(Ceil(b.k, kStep), 1);
  return Ceil(steps, Ceil(steps, most));
}

// Where a problem's packed x has the block of rows from `row` and of steps from `step`, a chunk's first: blocks of
// rows, in them chunks, in those [tiles of rows][steps].
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

// Asks for the lines of y that rows [row, row + count) of R tiles will be written to.
template <int R, int P>
void AskForY(const Block& k, int64_t tile, int64_t p, int64_t row, int64_t count) {
  const int64_t n = (k.b.swiglu ? (k.panel + p) / 2 : k.panel + p) * 16;
  for (int64_t r = row; r < row + count; ++r) {
    for (int i = 0; i < R; ++i) {
      const int64_t at = k.row + (tile + i) * kTileRows + r;
      if (at >= k.row + k.rows) continue;
      for (int c = 0; c < (k.b.swiglu ? 1 : P); ++c) _mm_prefetch(YRow(k.b, at) + n + c * 16, _MM_HINT_T0);
    }
  }
}

// R tiles of rows by P panels over the block's steps: weights from w0 on, the second panel's panel_bytes further. p is
// the first panel's place among the sums. Intrinsics take a tile's number as a constant: sums are tiles 0 to 3, x 4 and
// 5, weights 6 and 7. Sums come and go between the first and the last step's products, one by one.
template <int R, int P>
void Tiles(const Block& k, int64_t tile, int64_t p, const char* w0, int64_t panel_bytes) {
  const char* x[2] = {k.x_tile(tile), k.x_tile(tile + 1)};
  const char* w[2] = {w0, w0 + panel_bytes};
  float* const sums[2][2] = {{k.sum(p, tile), k.sum(p + 1, tile)}, {k.sum(p, tile + 1), k.sum(p + 1, tile + 1)}};
  // What follows a last step that is short is another panel, or nothing.
  alignas(64) char short_step[2][kTileBytes];
  const int64_t whole = Min(k.steps, k.b.k / kStep - k.step);
  if (whole < k.steps) {
    const int64_t bytes = Ceil(k.b.k, 2) * 64 - (k.step + whole) * kTileBytes;
    for (int c = 0; c < P; ++c) {
      memcpy(short_step[c], w[c] + whole * kTileBytes, static_cast<size_t>(bytes));
      memset(short_step[c] + bytes, 0, static_cast<size_t>(kTileBytes - bytes));
    }
  }
  Ahead next0 = k.next_w[0].From(tile / 2 * k.steps);
  Ahead next1 = k.next_w[1].From(tile / 2 * k.steps);
  Ahead next_x = k.next_x.From(tile / 2 * k.steps);
  const int64_t ask = k.last ? Max(k.steps - kAskSteps, 0) : k.steps;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
#define MLA_PRODUCT(I, X, W)                            \
  do {                                                  \
    if (load) _tile_loadd(I, sums[(X)-4][(W)-6], 64);   \
    _tile_dpbf16ps(I, X, W);                            \
    if (store) _tile_stored(I, sums[(X)-4][(W)-6], 64); \
  } while (false)
  for (int64_t s = 0; s < k.steps; ++s) {
    const bool load = s == 0 && !k.first;
    const bool store = s + 1 == k.steps;
    if (s == whole) {
      w[0] = short_step[0];
      w[1] = short_step[1];
    }
    _tile_loadd(6, w[0], 64);
    _tile_stream_loadd(4, x[0], 64);
    MLA_PRODUCT(0, 4, 6);
    if (s >= ask) AskForY<R, P>(k, tile, p, (s - ask) * (kTileRows / kAskSteps), kTileRows / kAskSteps);
    next0.Step();
    if (P > 1) {
      _tile_loadd(7, w[1], 64);
      MLA_PRODUCT(1, 4, 7);
    }
    next_x.Step();
    if (R > 1) {
      next1.Step();
      _tile_stream_loadd(5, x[1], 64);
      MLA_PRODUCT(2, 5, 6);
      if (P > 1) MLA_PRODUCT(3, 5, 7);
    }
    x[0] += kTileBytes;
    x[1] += kTileBytes;
    w[0] += kTileBytes;
    w[1] += kTileBytes;
  }
#undef MLA_PRODUCT
  for (int i = 0; k.steps == 0 && i < R * P; ++i) memset(sums[i / P][i % P], 0, kTileBytes);
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
  const int64_t fit = k.row_tiles() <= kFewTiles ? kDecodedSteps : kManySteps;
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

// One block of rows by a group of panels, over k in passes of as many chunks as keep their x in the second cache.
class Run {
 public:
  Run(const GemmBlock& b, int64_t row, int64_t rows, int64_t panel, int64_t panels)
      : b_(b),
        row_(row),
        rows_(rows),
        tiles_(Ceil(rows, kTileRows)),
        panel_(panel),
        panels_(panels),
        steps_(Ceil(b.k, kStep)),
        chunk_(ChunkSteps(b, tiles_)),
        pass_(Max(1, kPackedX / (tiles_ * chunk_ * kTileBytes)) * chunk_) {}

  void Passes() const {
    for (int64_t begin = 0; begin == 0 || begin < steps_; begin += pass_) Pass(begin, Min(begin + pass_, steps_));
  }

 private:
  void Pass(int64_t begin, int64_t end) const {
    if (b_.packed_x == nullptr) PackX(begin, end);
    const int64_t chunks = Max(1, Ceil(end - begin, chunk_));
    const int64_t calls = Ceil(tiles_, 2);
    const Ahead next_x = NextX(end, Ceil(panels_, 2) * calls * (end - begin));
    for (int64_t p = 0; p < panels_; p += 2) {
      for (int64_t c = 0; c < chunks; ++c) {
        const int64_t step = begin + c * chunk_;
        Block k = At(step, Min(chunk_, end - step), begin);
        NextWeights(p, step, begin, end, k.next_w);
        k.next_x = next_x.From((p / 2 * (end - begin) + c * chunk_) * calls);
        if (p + 1 < panels_) {
          Panels<2>(k, p);
        } else {
          Panels<1>(k, p);
        }
      }
    }
  }

  Block At(int64_t step, int64_t steps, int64_t begin) const {
    char* scratch = static_cast<char*>(b_.scratch);
    return {b_,
            b_.packed_x != nullptr ? PackedBlock(b_, row_, step) : scratch + tiles_ * (step - begin) * kTileBytes,
            steps,
            reinterpret_cast<float*>(scratch + kPackedX),
            row_,
            rows_,
            panel_,
            step,
            steps,
            step == 0,
            step + steps == steps_,
            {},
            {}};
  }

  void PackX(int64_t begin, int64_t end) const {
    for (int64_t step = begin; step < end; step += chunk_) {
      const Block k = At(step, Min(chunk_, end - step), begin);
      for (int64_t r = 0; r < tiles_ * kTileRows; ++r) {
        PackRow(b_, row_ + r, step, k.steps, k.x_tile(r / kTileRows) + r % kTileRows * 64);
      }
    }
  }

  // x of the pass after this one, which may be the next group's first, over the steps of all calls of this pass.
  Ahead NextX(int64_t end, int64_t steps) const {
    if (b_.packed_x == nullptr || (end == steps_ && panel_ + panels_ >= b_.panel_end)) return {};
    const int64_t next = end == steps_ ? 0 : end;
    return Ahead::Over(PackedBlock(b_, row_, next), Min(pass_, steps_ - next) * tiles_ * kTileBytes, steps);
  }

  // Weights of the chunk after this one: of few rows, the same panels' bytes some steps ahead.
  void NextWeights(int64_t p, int64_t step, int64_t begin, int64_t end, Ahead* next) const {
    if (b_.scale_block != 0) return;  // asked for as they are decoded
    const int64_t at_work = step;
    if (tiles_ <= kFewTiles) {
      step += kFewAhead;
    } else if (step + chunk_ < end) {
      step += chunk_;
    } else if (p + 2 < panels_) {
      p += 2;
      step = begin;
    } else if (end < steps_) {
      p = 0;
      step = end;
    } else {
      p = panels_;
      step = 0;
    }
    const int64_t panel_bytes = Ceil(b_.k, 2) * 64;
    const int64_t steps = Min(chunk_, end - at_work) * Ceil(tiles_, 2);
    for (int64_t i = 0; i < 2 && panel_ + p + i < b_.panel_end; ++i) {
      const char* at = static_cast<const char*>(b_.panels) + (panel_ + p + i) * panel_bytes + step * kTileBytes;
      next[i] = Ahead::Over(at, Min(chunk_, steps_ - step) * kTileBytes, steps);
    }
  }

  const GemmBlock& b_;
  const int64_t row_;
  const int64_t rows_;
  const int64_t tiles_;
  const int64_t panel_;
  const int64_t panels_;
  const int64_t steps_;
  const int64_t chunk_;
  const int64_t pass_;
};

}  // namespace

void PackInputsAmx(const GemmBlock& b);
void PackInputsAmx(const GemmBlock& b) {
  const int64_t steps = Ceil(b.k, kStep);
  for (int64_t tile = b.row_begin / kTileRows; tile < Ceil(b.row_end, kTileRows); ++tile) {
    const int64_t row = tile / kBlockTiles * kBlockTiles * kTileRows;
    const int64_t fit = ChunkSteps(b, Min(kBlockTiles, Ceil(b.m - row, kTileRows)));
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
    const int64_t panels = b.panel_end - b.panel_begin;
    const int64_t most = kSums / (2 * Ceil(rows, kTileRows) * kTileBytes) * 2;
    const int64_t group = Ceil(panels, 2 * Max(Ceil(panels, most), 1)) * 2;  // groups alike, of pairs
    for (int64_t panel = b.panel_begin; panel < b.panel_end; panel += group) {
      Run(b, row, rows, panel, Min(group, b.panel_end - panel)).Passes();
    }
  }
  _tile_release();
}

// The block says how its weights are kept.
void GemmF8Amx(const GemmBlock& b);
void GemmF8Amx(const GemmBlock& b) { GemmBf16Amx(b); }

}  // namespace mla::ops

#endif
