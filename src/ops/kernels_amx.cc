// Products of bf16 on AMX tiles. Empty where the build leaves the instruction set out.
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#include <immintrin.h>
#include <string.h>

#define MLA_SIMD_AVX512
#include "base/simd.h"
#include "ops/kernels.h"
#include "ops/silu.h"

// A packed panel is a column of B tiles as it stands: 16 pairs of k by 16 outputs are 1 KiB in a row. x is rounded to
// bf16 and packed into A tiles of 16 rows by 32 of k. Blocks of x and of the sums stay in the second cache, a pair of
// panels' block in the first, while the weights stream past once.
namespace mla::ops {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kStep = 32;  // of k, a tile's
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kStepBytes = kTileBytes;  // of a panel
constexpr int64_t kPackedX = 512 << 10;     // bytes of scratch that hold x
constexpr int64_t kSums = 1 << 20;          // and sums between blocks of k
constexpr int64_t kRows = 512;              // of a block: kPackedX / 1 KiB, kSums / 2 KiB
constexpr int64_t kStreamRows = 32;         // up to which weights are read once without blocks of k
constexpr int64_t kBlockSteps = 16;         // of k beyond that: two panels' are 32 KiB
static_assert(kPackedX + kSums <= kGemmScratch);

struct __attribute__((packed)) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t Ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What is at work: some rows, panels and steps of k.
struct Block {
  const GemmBlock& b;
  char* x;      // [tiles of rows][steps][16][32] bf16
  float* sums;  // [panels][tiles of rows][16][16]
  int64_t row;  // first
  int64_t rows;
  int64_t panel;  // first
  int64_t step;   // first, of k
  int64_t steps;
  bool first;  // of k
  bool last;

  int64_t row_tiles() const { return Ceil(rows, kTileRows); }
  char* x_tile(int64_t tile) const { return x + tile * steps * kTileBytes; }
  float* sum(int64_t p, int64_t tile) const { return sums + (p * row_tiles() + tile) * 256; }
};

__m512i RoundPairs(const float* x, int64_t left) {
  if (left >= kStep) return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x));
  const auto low = static_cast<__mmask16>(left >= 16 ? 0xffff : (1U << left) - 1);
  const auto high = static_cast<__mmask16>(left > 16 ? (1U << (left - 16)) - 1 : 0);
  return (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(high, x + 16), _mm512_maskz_loadu_ps(low, x));
}

// Rounds and packs the block's part of x. Rows past the last are zero: their sums are not looked at.
void PackX(const Block& k) {
  const GemmBlock& b = k.b;
  for (int64_t r = 0; r < k.row_tiles() * kTileRows; ++r) {
    char* to = k.x_tile(r / kTileRows) + r % kTileRows * 64;
    if (r >= k.rows) {
      for (int64_t s = 0; s < k.steps; ++s) _mm512_store_si512(to + s * kTileBytes, _mm512_setzero_si512());
      continue;
    }
    const int64_t row = k.row + r;
    const float* from = b.x + (b.x_rows != nullptr ? b.x_rows[row] : row) * b.ldx + k.step * kStep;
    const int64_t left = b.k - k.step * kStep;
    for (int64_t s = 0; s < k.steps; ++s) {
      _mm512_store_si512(to + s * kTileBytes, RoundPairs(from + s * kStep, left - s * kStep));
    }
  }
}

// One tile of sums to y.
void StoreTile(const Block& k, const float* sum, int64_t tile, int64_t panel) {
  const GemmBlock& b = k.b;
  const int64_t n = panel * 16;
  const auto mask = static_cast<__mmask16>(n + 16 <= b.n ? 0xffff : (1U << (b.n - n)) - 1);
  const __m512 scale = _mm512_set1_ps(b.scale);
  const int64_t rows = Min(kTileRows, k.rows - tile * kTileRows);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = k.row + tile * kTileRows + r;
    float* y = b.y + (b.y_rows != nullptr ? b.y_rows[row] : row) * b.ldy + n;
    __m512 v = _mm512_mul_ps(_mm512_load_ps(sum + r * 16), scale);
    if (b.add) v = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), v);
    _mm512_mask_storeu_ps(y, mask, v);
  }
}

// Tiles of sums of panels `panel` and `panel` + 1 to y.
void StoreSwiglu(const Block& k, const float* gate, const float* up, int64_t tile, int64_t panel) {
  const GemmBlock& b = k.b;
  const int64_t n = panel / 2 * 16;
  const auto mask = static_cast<__mmask16>(n + 16 <= b.n ? 0xffff : (1U << (b.n - n)) - 1);
  const int64_t rows = Min(kTileRows, k.rows - tile * kTileRows);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = k.row + tile * kTileRows + r;
    float* y = b.y + (b.y_rows != nullptr ? b.y_rows[row] : row) * b.ldy + n;
    const __m512 silu = Silu({_mm512_load_ps(gate + r * 16)}).v;
    _mm512_mask_storeu_ps(y, mask, _mm512_mul_ps(silu, _mm512_load_ps(up + r * 16)));
  }
}

// Intrinsics take a tile's number as a constant: sums are tiles 0 to 3, x 4 and 5, weights 6 and 7.
#define MLA_EACH_SUM(OP)  \
  OP(0, 0, 0);            \
  if (P > 1) OP(1, 0, 1); \
  if (R > 1) OP(2, 1, 0); \
  if (R > 1 && P > 1) OP(3, 1, 1)

// R tiles of rows by P panels over the block's steps.
template <int R, int P>
void Tiles(const Block& k, int64_t tile, int64_t p) {
  const int64_t panel_bytes = Ceil(k.b.k, 2) * 64;
  const char* w0 = static_cast<const char*>(k.b.panels) + (k.panel + p) * panel_bytes + k.step * kStepBytes;
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
  const int64_t whole = Min(k.steps, k.b.k / kStep - k.step);
  for (int64_t s = 0; s < whole; ++s) {
    const int64_t at = s * kTileBytes;
    _tile_loadd(6, w0 + at, 64);
    _tile_loadd(4, x0 + at, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (P > 1) {
      _tile_loadd(7, w1 + at, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (R > 1) {
      _tile_loadd(5, x1 + at, 64);
      _tile_dpbf16ps(2, 5, 6);
      if (P > 1) _tile_dpbf16ps(3, 5, 7);
    }
  }
  if (whole < k.steps) {
    // The last step is short: what follows in memory is another panel, or nothing.
    alignas(64) char w[2][kTileBytes] = {};
    const int64_t bytes = panel_bytes - (k.step + whole) * kStepBytes;
    memcpy(w[0], w0 + whole * kStepBytes, static_cast<size_t>(bytes));
    if (P > 1) memcpy(w[1], w1 + whole * kStepBytes, static_cast<size_t>(bytes));
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
    for (int r = 0; r < R; ++r) StoreSwiglu(k, k.sum(p, tile + r), k.sum(p + 1, tile + r), tile + r, k.panel + p);
    return;
  }
  for (int c = 0; c < P; ++c) {
    for (int r = 0; r < R; ++r) StoreTile(k, k.sum(p + c, tile + r), tile + r, k.panel + p + c);
  }
}

template <int P>
void Panels(const Block& k, int64_t p) {
  int64_t tile = 0;
  for (; tile + 2 <= k.row_tiles(); tile += 2) Tiles<2, P>(k, tile, p);
  if (tile < k.row_tiles()) Tiles<1, P>(k, tile, p);
}

// Rows [row, row + rows) by panels [panel, end).
void Run(const GemmBlock& b, int64_t row, int64_t rows, int64_t panel, int64_t end) {
  const int64_t steps = Ceil(b.k, kStep);
  const int64_t tiles = Ceil(rows, kTileRows);
  const int64_t block = rows <= kStreamRows ? kPackedX / (tiles * kTileBytes) : kBlockSteps;
  for (int64_t step = 0; step == 0 || step < steps; step += block) {  // once without k: zeros are written
    const int64_t count = Min(block, steps - step);
    const Block k{b,
                  static_cast<char*>(b.scratch),
                  reinterpret_cast<float*>(static_cast<char*>(b.scratch) + kPackedX),
                  row,
                  rows,
                  panel,
                  step,
                  count,
                  step == 0,
                  step + count == steps};
    PackX(k);
    int64_t p = 0;
    for (; p + 2 <= end - panel; p += 2) Panels<2>(k, p);
    if (p < end - panel) Panels<1>(k, p);
  }
}

}  // namespace

void GemmBf16Amx(const GemmBlock& b);
void GemmBf16Amx(const GemmBlock& b) {
  const TileConfig config;
  _tile_loadconfig(&config);
  for (int64_t row = b.row_begin; row < b.row_end; row += kRows) {
    const int64_t rows = Min(kRows, b.row_end - row);
    const int64_t panels = kSums / (Ceil(rows, kTileRows) * kTileBytes);
    for (int64_t panel = b.panel_begin; panel < b.panel_end; panel += panels) {
      Run(b, row, rows, panel, Min(b.panel_end, panel + panels));
    }
  }
  _tile_release();
}

}  // namespace mla::ops

#endif
