// Products of few rows with weights in fp8 on AMX tiles. Empty where the build leaves the instruction set out.
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#include <immintrin.h>
#include <string.h>

#include "base/amx.h"
#define MLA_SIMD_AVX512
#include "base/simd.h"
#include "ops/bf16_rows.h"
#include "ops/f8_decode.h"
#include "ops/f8_table_avx512.inl"
#include "ops/kernels.h"

// Such a product is as long as its weights take to come and to be decoded. Sums stay in tiles over all of k, and a step
// is multiplied while the next is decoded: tiles and vectors work side by side, and memory is never left idle. Tiles
// have as many rows as there are. Each row's bits are those of any other number of rows (kernels_amx.cc): steps of 32
// of k in ascending order.
namespace mla::ops {
namespace {

constexpr int64_t kStep = 32;  // of k, a tile's
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kMostRows = 4;
constexpr int kPanelsAtOnce = 2;
constexpr int64_t kWeights = 2 * kPanelsAtOnce * kTileBytes;  // bytes of scratch for two steps of weights
constexpr int64_t kSums = kPanelsAtOnce * kMostRows * 64;     // and for sums on their way out
constexpr int64_t kRoomForX = kGemmScratch - kWeights - kSums;

struct FewRows {
  const GemmBlock& b;
  int64_t rows;
  int64_t steps;
  char* x;      // [steps][rows][32] bf16
  char* w;      // [2][panels][16][16][2] bf16: two steps
  float* sums;  // [panels][rows][16]

  int64_t panel_bytes() const { return PanelBytesF8(b); }
  const char* panel(int64_t p) const { return static_cast<const char*>(b.panels) + p * panel_bytes(); }
};

void PackX(const FewRows& f) {
  for (int64_t r = 0; r < f.rows; ++r) {
    const float* from = XRow(f.b, f.b.row_begin + r);
    for (int64_t s = 0; s < f.steps; ++s) {
      _mm512_store_si512(f.x + (s * f.rows + r) * 64, RoundPairs(from + s * kStep, f.b.k - s * kStep));
    }
  }
}

MLA_INLINE void DecodeTile(const F8Table& table, const char* codes, char* to, int64_t ahead) {
  for (int64_t i = 0; i < 8; ++i) {
    __m512i first;
    __m512i second;
    _mm_prefetch(codes + i * 64 + ahead, _MM_HINT_T0);
    Look(table, _mm512_loadu_si512(codes + i * 64), &first, &second);
    _mm512_store_si512(to + i * 128, first);
    _mm512_store_si512(to + i * 128 + 64, second);
  }
}

// A step that tables can't do: of several scales, or short.
void DecodeSlowly(const FewRows& f, int64_t panel, int64_t step, char* to) {
  const int64_t pair = step * (kStep / 2);
  const int64_t left = Ceil(f.b.k, 2) - pair;
  if (left < kStep / 2) memset(to, 0, kTileBytes);
  DecodeF8Avx512(f.panel(panel), f.b.scale_block, pair, Min(kStep / 2, left), reinterpret_cast<uint16_t*>(to),
                 kAheadF8);
}

template <int P>
MLA_INLINE void Multiply(const FewRows& f, int64_t step) {
  const char* w = f.w + step % 2 * P * kTileBytes;
  _tile_loadd(4, f.x + step * f.rows * 64, 64);
  _tile_loadd(5, w, 64);
  _tile_dpbf16ps(0, 4, 5);
  if (P > 1) {
    _tile_loadd(6, w + kTileBytes, 64);
    _tile_dpbf16ps(1, 4, 6);
  }
}

template <int P>
void StoreSums(const FewRows& f, int64_t panel) {
  _tile_stored(0, f.sums, 64);
  if (P > 1) _tile_stored(1, f.sums + f.rows * 16, 64);
  for (int64_t r = 0; r < f.rows; ++r) {
    const int64_t row = f.b.row_begin + r;
    const __m512 first = _mm512_load_ps(f.sums + r * 16);
    if (P == 1) {
      StoreSum(f.b, row, panel, first);
      continue;
    }
    const __m512 second = _mm512_load_ps(f.sums + (f.rows + r) * 16);
    if (f.b.swiglu) {
      StoreSwiglu(f.b, row, panel, first, second);
    } else {
      StoreSum(f.b, row, panel, first);
      StoreSum(f.b, row, panel + 1, second);
    }
  }
}

template <int P>
void Panels(const FewRows& f, int64_t panel) {
  const int64_t block_steps = f.b.scale_block % kStep == 0 ? f.b.scale_block / kStep : 0;  // 0: blocks end within steps
  const char* codes = f.panel(panel);
  const char* end = codes + f.panel_bytes();
  F8Table table[P];
  bool tables = false;
  int64_t in_block = block_steps;
  _tile_zero(0);
  if (P > 1) _tile_zero(1);
  for (int64_t s = 0; s < f.steps; ++s) {
    if (block_steps > 0 && in_block == block_steps) {
      tables = true;
      for (int p = 0; p < P; ++p) tables = tables && HasTable(codes + p * f.panel_bytes());
      for (int p = 0; tables && p < P; ++p) table[p] = MakeTable(codes + p * f.panel_bytes());
      codes += 64;
      in_block = 0;
    }
    char* to = f.w + s % 2 * P * kTileBytes;
    // After a panel comes its like of the next panels.
    const int64_t ahead = codes + kAheadF8 < end ? kAheadF8 : kAheadF8 + (P - 1) * f.panel_bytes();
    for (int p = 0; p < P; ++p) {
      if (tables && (s + 1) * kStep <= f.b.k) {
        DecodeTile(table[p], codes + p * f.panel_bytes(), to + p * kTileBytes, ahead);
      } else {
        DecodeSlowly(f, panel + p, s, to + p * kTileBytes);
      }
    }
    codes += kTileBytes / 2;
    ++in_block;
    if (s > 0) Multiply<P>(f, s - 1);
  }
  if (f.steps > 0) Multiply<P>(f, f.steps - 1);
  StoreSums<P>(f, panel);
}

}  // namespace

void GemmF8Amx(const GemmBlock& b);
void GemmF8FewAmx(const GemmBlock& b);
void GemmF8FewAmx(const GemmBlock& b) {
  const int64_t rows = b.row_end - b.row_begin;
  const int64_t steps = Ceil(b.k, kStep);
  if (rows > kMostRows || b.packed_x != nullptr || steps * rows * 64 > kRoomForX) return GemmF8Amx(b);
  amx::TileConfig config;
  config.rows[0] = config.rows[1] = config.rows[4] = static_cast<uint8_t>(rows);
  _tile_loadconfig(&config);
  char* scratch = static_cast<char*>(b.scratch);
  const FewRows f{b, rows, steps, scratch + kWeights + kSums, scratch, reinterpret_cast<float*>(scratch + kWeights)};
  PackX(f);
  int64_t panel = b.panel_begin;
  for (; panel + kPanelsAtOnce <= b.panel_end; panel += kPanelsAtOnce) Panels<kPanelsAtOnce>(f, panel);
  if (panel < b.panel_end) Panels<1>(f, panel);
  _tile_release();
}

}  // namespace mla::ops

#endif
