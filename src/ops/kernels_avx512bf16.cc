// Products of bf16 by AVX-512 BF16's dot products. Empty where the build leaves the instruction set out.
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#include <immintrin.h>

#define MLA_SIMD_AVX512
#include "base/simd.h"
#include "ops/bf16_rows.h"
#include "ops/f8_decode.h"
#include "ops/f8_table_avx512.inl"
#include "ops/kernels.h"

// x is rounded to bf16 and packed in pairs of k; a pair is broadcast against a panel's sixteen outputs.
//
// Measured on two cores of an EPYC (Zen 5), weights from memory. k is taken in chunks: a group of panels' chunk comes
// from memory while the chunk before it is multiplied with all rows, from the second cache. Without asking ahead the
// first rows wait for the weights: 0.66 of the peak at 32 rows, 0.78 at 64; with it 0.84 and 0.88. Few rows are one
// tile: weights pass once, and the processor's own prefetcher is as fast as memory.
namespace mla::ops {
namespace {

// 24 accumulators of 32 registers; the rest hold a panel's pairs and a broadcast.
constexpr int kRows = 6;
constexpr int kPanels = 4;
constexpr int kPanelsOneRow = 8;
constexpr int kFewRows = 12;  // of one tile, by two panels
constexpr int64_t kBlockRows = 96;
constexpr int64_t kBlockPanels = 64;
constexpr int64_t kChunkPairs = 512;      // of k
constexpr int64_t kChunkPairsFew = 2048;  // of few rows
// Of fp8, decoded in between: short where rows are few, so that memory is never left idle for long.
constexpr int64_t kChunkPairsF8 = 128;
constexpr int64_t kChunkPairsFewF8 = 32;
static_assert(kChunkPairs % kChunkPairsF8 == 0);
// Rows of x, packed by each task, begin in different sets of the first cache.
constexpr int64_t kPadPairs = 16;
constexpr int64_t kPackedX = kBlockRows * (kChunkPairs + kPadPairs) * 4;
static_assert(kFewRows * (kChunkPairsFew + kPadPairs) * 4 <= kPackedX);
constexpr int64_t kSums = kBlockRows * kBlockPanels * 64;
constexpr int64_t kDecoded = kPanelsOneRow * kChunkPairsF8 * 64;
static_assert(kPackedX + kSums + kDecoded <= kGemmScratch);
constexpr int64_t kStepPairs = 4;  // between two askings for what comes next

// What is at work: some rows, panels and pairs of k.
struct Block {
  const GemmBlock& b;
  int* x;  // [rows][pairs], rows ldx apart
  int64_t ldx;
  float* sums;        // [panels][rows][16], between chunks of k
  uint16_t* decoded;  // [panels of a group][pairs][16][2]
  int64_t row;        // first
  int64_t rows;
  int64_t panel;  // first
  int64_t pair;   // first
  int64_t pairs;
  bool first;  // of k
  bool last;
};

// Rounds and packs pairs [pair, pair + pairs) of row r. A pair's second may be past k: zero.
void PackRow(const GemmBlock& b, int64_t r, int64_t pair, int64_t pairs, int* to) {
  const float* from = XRow(b, r) + pair * 2;
  const int64_t count = Min(pairs * 2, b.k - pair * 2);
  for (int64_t i = 0; i < count; i += 32) {
    const int64_t some = Min(16, Ceil(count - i, 2));
    _mm512_mask_storeu_epi32(to + i / 2, static_cast<__mmask16>((1U << some) - 1), RoundPairs(from + i, count - i));
  }
}

// Where a problem's packed x has pair `pair` of row `row`: blocks of rows, in them chunks, in those [rows][pairs].
struct Packed {
  int* at;
  int64_t ldx;
};
Packed PackedAt(const GemmBlock& b, int64_t row, int64_t pair) {
  const int64_t block = row / kBlockRows * kBlockRows;
  const int64_t rows = Min(kBlockRows, b.m - block);
  const int64_t pairs = Ceil(b.k, 2);
  const int64_t chunk = pair / kChunkPairs * kChunkPairs;
  const int64_t ldx = Min(kChunkPairs, pairs - chunk);
  return {static_cast<int*>(b.packed_x) + block * pairs + rows * chunk + (row - block) * ldx + pair - chunk, ldx};
}

// Some panels' weights in bf16 over the block's pairs.
struct Weights {
  const char* data;
  int64_t panel_bytes;  // from one to the next
};

Weights WeightsOf(const Block& k, int64_t p, int64_t panels) {
  const GemmBlock& b = k.b;
  const auto* from = static_cast<const char*>(b.panels);
  const int64_t pairs = Ceil(b.k, 2);
  if (b.scale_block == 0) return {from + ((k.panel + p) * pairs + k.pair) * 64, pairs * 64};
  const int64_t panel_bytes = PanelBytesF8(b);
  for (int64_t i = 0; i < panels; ++i) {
    DecodeF8Avx512(from + (k.panel + p + i) * panel_bytes, b.scale_block, k.pair, k.pairs, k.decoded + i * k.pairs * 32,
                   kAheadF8);
  }
  return {reinterpret_cast<const char*>(k.decoded), k.pairs * 64};
}

// Memory to ask for ahead of its use, a little a step: the same part of some panels.
struct Ahead {
  const char* at;
  int64_t lines;   // left of this panel
  int64_t panels;  // after it
  int64_t panel_lines;
  int64_t skip;  // bytes from a panel's last to the next one's first
  int64_t each;  // lines a step

  void Step() {
    for (int64_t i = 0; i < each && lines > 0; ++i) {
      _mm_prefetch(at, _MM_HINT_T0);
      at += 64;
      if (--lines == 0 && panels > 0) {
        --panels;
        lines = panel_lines;
        at += skip;
      }
    }
  }
};

// The weights that are at work after panels [p, p + group) of the block's: of the next panels, or of the first ones
// over what comes next of k, or of the first ones from the beginning for other rows. Shared out over all the block's
// tiles.
Ahead AheadOf(const Block& k, int64_t p, int64_t panels, int64_t group) {
  if (k.rows <= kFewRows || k.b.scale_block != 0) return {};  // fp8 is asked for as it is decoded
  const int64_t pairs = Ceil(k.b.k, 2);
  int64_t panel = k.panel + p + group;
  int64_t pair = k.pair;
  if (p + group >= panels && !k.last) {
    panel = k.panel;
    pair += k.pairs;
  } else if (p + group >= panels) {
    pair = 0;
  }
  const int64_t count = Min(group, k.b.panel_end - panel);
  if (count <= 0) return {};
  const int64_t lines = Min(k.pairs, pairs - pair);
  const int64_t steps = Ceil(k.pairs, kStepPairs) * Ceil(k.rows, kRows);
  return {static_cast<const char*>(k.b.panels) + (panel * pairs + pair) * 64,
          lines,
          count - 1,
          lines,
          (pairs - lines) * 64,
          Ceil(lines * count, Max(steps, 1))};
}

// R rows from r by P panels from p over the block's pairs.
template <int R, int P>
void Tile(const Block& k, const Weights& w, int64_t r, int64_t p, Ahead* ahead) {
  const int* x = k.x + r * k.ldx;
  __m512 sum[R][P];
  for (int i = 0; i < R; ++i) {
    for (int j = 0; j < P; ++j) {
      sum[i][j] = k.first ? _mm512_setzero_ps() : _mm512_load_ps(k.sums + ((p + j) * k.rows + r + i) * 16);
    }
  }
  Ahead next = *ahead;
  for (int64_t pair = 0; pair < k.pairs; ++pair) {
    if (pair % kStepPairs == 0) next.Step();
    __m512bh v[P];
    for (int j = 0; j < P; ++j) v[j] = (__m512bh)_mm512_loadu_si512(w.data + j * w.panel_bytes + pair * 64);
    for (int i = 0; i < R; ++i) {
      const auto a = (__m512bh)_mm512_set1_epi32(x[i * k.ldx + pair]);
      for (int j = 0; j < P; ++j) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], a, v[j]);
    }
  }
  *ahead = next;
  for (int i = 0; i < R; ++i) {
    for (int j = 0; j < P; ++j) {
      if (k.last && k.b.swiglu) {
        if (j % 2 == 0) StoreSwiglu(k.b, k.row + r + i, k.panel + p + j, sum[i][j], sum[i][(j + 1) % P]);
      } else if (k.last) {
        StoreSum(k.b, k.row + r + i, k.panel + p + j, sum[i][j]);
      } else {
        _mm512_store_ps(k.sums + ((p + j) * k.rows + r + i) * 16, sum[i][j]);
      }
    }
  }
}

// `rows` of them, R at most.
template <int R, int P>
void TileOf(const Block& k, const Weights& w, int64_t r, int64_t p, int64_t rows, Ahead* ahead) {
  if constexpr (R > 0) {
    if (rows == R) return Tile<R, P>(k, w, r, p, ahead);
    TileOf<R - 1, P>(k, w, r, p, rows, ahead);
  }
}

// P panels by all rows, in tiles of R at most, as alike as can be.
template <int R, int P>
void Panels(const Block& k, int64_t p, int64_t panels) {
  const Weights w = WeightsOf(k, p, P);
  Ahead ahead = AheadOf(k, p, panels, P);
  const int64_t tiles = Ceil(k.rows, R);
  int64_t r = 0;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t rows = Ceil(k.rows - r, tiles - tile);
    TileOf<R, P>(k, w, r, p, rows, &ahead);
    r += rows;
  }
}

void RunBlock(const Block& k, int64_t panels) {
  int64_t p = 0;
  if (k.rows == 1) {
    for (; p + kPanelsOneRow <= panels; p += kPanelsOneRow) Panels<1, kPanelsOneRow>(k, p, panels);
  }
  const bool one_tile = k.rows > kRows && k.rows <= kFewRows;
  for (; !one_tile && p + kPanels <= panels; p += kPanels) Panels<kRows, kPanels>(k, p, panels);
  for (; p + 2 <= panels; p += 2) Panels<kFewRows, 2>(k, p, panels);
  if (p < panels) Panels<kRows, 1>(k, p, panels);
}

// A chunk of k by the block's rows and some panels.
void RunChunk(const GemmBlock& b, int64_t row, int64_t rows, int64_t panel, int64_t pair, int64_t pairs) {
  char* scratch = static_cast<char*>(b.scratch);
  Block k{b,
          reinterpret_cast<int*>(scratch),
          pairs + kPadPairs,
          reinterpret_cast<float*>(scratch + kPackedX),
          reinterpret_cast<uint16_t*>(scratch + kPackedX + kSums),
          row,
          rows,
          panel,
          pair,
          pairs,
          pair == 0,
          pair + pairs == Ceil(b.k, 2)};
  if (b.packed_x != nullptr) {
    const Packed packed = PackedAt(b, row, pair);
    k.x = packed.at;
    k.ldx = packed.ldx;
  } else {
    for (int64_t r = 0; r < rows; ++r) PackRow(b, row + r, pair, pairs, k.x + r * k.ldx);
  }
  RunBlock(k, Min(kBlockPanels, b.panel_end - panel));
}

void Gemm(const GemmBlock& b, int64_t chunk) {
  const int64_t pairs = Ceil(b.k, 2);
  for (int64_t row = b.row_begin; row < b.row_end; row += kBlockRows) {
    const int64_t rows = Min(kBlockRows, b.row_end - row);
    for (int64_t panel = b.panel_begin; panel < b.panel_end; panel += kBlockPanels) {
      for (int64_t pair = 0; pair == 0 || pair < pairs; pair += chunk) {  // once without k: zeros are written
        RunChunk(b, row, rows, panel, pair, Min(chunk, pairs - pair));
      }
    }
  }
}

// Of a task's rows: those of x that have been packed are in chunks of kChunkPairs.
bool Few(const GemmBlock& b) { return b.row_end - b.row_begin <= kFewRows && b.packed_x == nullptr; }

// One row by P panels over pairs [pair, end) of k, decoded first.
template <int P>
void DecodedF8(const GemmBlock& b, const int* x, int64_t panel, int64_t pair, int64_t end, __m512 (&sum)[P]) {
  auto* decoded = reinterpret_cast<uint16_t*>(static_cast<char*>(b.scratch) + kPackedX + kSums);
  const char* from = static_cast<const char*>(b.panels) + panel * PanelBytesF8(b);
  for (int64_t count = 0; pair < end; pair += count) {
    count = Min(kChunkPairsFewF8, end - pair);
    for (int p = 0; p < P; ++p) {
      DecodeF8Avx512(from + p * PanelBytesF8(b), b.scale_block, pair, count, decoded, kAheadF8);
      for (int64_t i = 0; i < count; ++i) {
        const auto w = (__m512bh)_mm512_load_si512(decoded + i * 32);
        sum[p] = _mm512_dpbf16_ps(sum[p], (__m512bh)_mm512_set1_epi32(x[pair + i]), w);
      }
    }
  }
}

// One row by P panels: weights go from codes to products in registers, where a block's lanes have one scale. x: the
// row's pairs.
template <int P>
void RowF8(const GemmBlock& b, const int* x, int64_t panel) {
  const int64_t panel_bytes = PanelBytesF8(b);
  const char* from = static_cast<const char*>(b.panels) + panel * panel_bytes;
  const int64_t pairs = Ceil(b.k, 2);
  const int64_t block_pairs = b.scale_block / 2;
  __m512 sum[P];
  for (int p = 0; p < P; ++p) sum[p] = _mm512_setzero_ps();
  for (int64_t pair = 0; pair < pairs;) {
    const int64_t end = Min(pairs, pair + block_pairs);
    const char* block = from + pair / block_pairs * 64 + pair * 32;
    bool tables = true;
    for (int p = 0; p < P; ++p) tables = tables && HasTable(block + p * panel_bytes);
    if (tables) {
      F8Table table[P];
      for (int p = 0; p < P; ++p) table[p] = MakeTable(block + p * panel_bytes);
      const char* codes = block + 64;
      // After a panel comes its like of the next panels.
      const int64_t ahead = kAheadF8 + (codes + kAheadF8 < from + panel_bytes ? 0 : (P - 1) * panel_bytes);
      for (; pair + 2 <= end; pair += 2, codes += 64) {
        const auto first = (__m512bh)_mm512_set1_epi32(x[pair]);
        const auto second = (__m512bh)_mm512_set1_epi32(x[pair + 1]);
        for (int p = 0; p < P; ++p) {
          __m512i w[2];
          _mm_prefetch(codes + p * panel_bytes + ahead, _MM_HINT_T0);
          Look(table[p], _mm512_loadu_si512(codes + p * panel_bytes), &w[0], &w[1]);
          sum[p] = _mm512_dpbf16_ps(sum[p], first, (__m512bh)w[0]);
          sum[p] = _mm512_dpbf16_ps(sum[p], second, (__m512bh)w[1]);
        }
      }
    }
    DecodedF8<P>(b, x, panel, pair, end, sum);
    pair = end;
  }
  for (int p = 0; p < P; ++p) {
    if (b.swiglu) {
      if (p % 2 == 0) StoreSwiglu(b, b.row_begin, panel + p, sum[p], sum[(p + 1) % P]);
    } else {
      StoreSum(b, b.row_begin, panel + p, sum[p]);
    }
  }
}

}  // namespace

void PackInputsAvx512(const GemmBlock& b);
void PackInputsAvx512(const GemmBlock& b) {
  const int64_t pairs = Ceil(b.k, 2);
  for (int64_t r = b.row_begin; r < b.row_end; ++r) {
    for (int64_t pair = 0; pair < pairs; pair += kChunkPairs) {
      PackRow(b, r, pair, Min(kChunkPairs, pairs - pair), PackedAt(b, r, pair).at);
    }
  }
}

void GemmBf16Avx512(const GemmBlock& b);
void GemmBf16Avx512(const GemmBlock& b) { Gemm(b, Few(b) ? kChunkPairsFew : kChunkPairs); }
void GemmF8Avx512(const GemmBlock& b);
void GemmF8Avx512(const GemmBlock& b) {
  constexpr int kPanelsRowF8 = 4;  // each takes two registers of tables
  GemmBlock rest = b;
  const int64_t pairs = Ceil(b.k, 2);
  if (b.row_end - b.row_begin == 1 && pairs * 4 <= kPackedX) {
    auto* x = static_cast<int*>(b.scratch);
    PackRow(b, b.row_begin, 0, pairs, x);
    for (; rest.panel_begin + kPanelsRowF8 <= b.panel_end; rest.panel_begin += kPanelsRowF8) {
      RowF8<kPanelsRowF8>(b, x, rest.panel_begin);
    }
  }
  Gemm(rest, Few(b) ? kChunkPairsFewF8 : kChunkPairsF8);
}

}  // namespace mla::ops

#endif
