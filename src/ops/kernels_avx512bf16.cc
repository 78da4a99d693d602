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
namespace mla::ops {
namespace {

// 24 accumulators of 32 registers; the rest hold a panel's pairs and a broadcast.
constexpr int kRows = 6;
constexpr int kPanels = 4;
constexpr int kPanelsOneRow = 8;
constexpr int64_t kBlockRows = 96;
constexpr int64_t kBlockPairs = 2048;  // of k
constexpr int64_t kBlockPanels = 64;
constexpr int64_t kBlockPairsF8 = 32;  // of fp8, decoded in between: short, so that memory is never left idle for long
constexpr int64_t kPackedX = kBlockRows * kBlockPairs * 4;
constexpr int64_t kSums = kBlockRows * kBlockPanels * 64;
static_assert(kPackedX + kSums + kPanelsOneRow * kBlockPairsF8 * 64 <= kGemmScratch);

// What is at work: some rows, panels and pairs of k.
struct Block {
  const GemmBlock& b;
  int* x;             // [rows][pairs]
  float* sums;        // [panels][rows][16], between blocks of k
  uint16_t* decoded;  // [panels of a group][pairs][16][2]
  int64_t row;        // first
  int64_t rows;
  int64_t panel;  // first
  int64_t pair;   // first
  int64_t pairs;
  bool first;  // of k
  bool last;
};

// Rounds and packs the block's part of x. A pair's second may be past k: zero.
void PackX(const Block& k) {
  const GemmBlock& b = k.b;
  for (int64_t r = 0; r < k.rows; ++r) {
    const float* from = XRow(b, k.row + r) + k.pair * 2;
    int* to = k.x + r * k.pairs;
    const int64_t count = Min(k.pairs * 2, b.k - k.pair * 2);
    for (int64_t i = 0; i < count; i += 32) {
      const int64_t pairs = Min(16, Ceil(count - i, 2));
      _mm512_mask_storeu_epi32(to + i / 2, static_cast<__mmask16>((1U << pairs) - 1), RoundPairs(from + i, count - i));
    }
  }
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

// R rows from r by P panels from p over the block's pairs.
template <int R, int P>
void Tile(const Block& k, const Weights& w, int64_t r, int64_t p) {
  const int* x = k.x + r * k.pairs;
  __m512 sum[R][P];
  for (int i = 0; i < R; ++i) {
    for (int j = 0; j < P; ++j) {
      sum[i][j] = k.first ? _mm512_setzero_ps() : _mm512_load_ps(k.sums + ((p + j) * k.rows + r + i) * 16);
    }
  }
  for (int64_t pair = 0; pair < k.pairs; ++pair) {
    __m512bh v[P];
    for (int j = 0; j < P; ++j) v[j] = (__m512bh)_mm512_loadu_si512(w.data + j * w.panel_bytes + pair * 64);
    for (int i = 0; i < R; ++i) {
      const auto a = (__m512bh)_mm512_set1_epi32(x[i * k.pairs + pair]);
      for (int j = 0; j < P; ++j) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], a, v[j]);
    }
  }
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

template <int R, int P>
void TailRows(const Block& k, const Weights& w, int64_t r, int64_t p, int64_t rows) {
  if constexpr (R > 0) {
    if (rows == R) return Tile<R, P>(k, w, r, p);
    TailRows<R - 1, P>(k, w, r, p, rows);
  }
}

template <int P>
void Panels(const Block& k, int64_t p) {
  const Weights w = WeightsOf(k, p, P);
  int64_t r = 0;
  for (; r + kRows <= k.rows; r += kRows) Tile<kRows, P>(k, w, r, p);
  TailRows<kRows - 1, P>(k, w, r, p, k.rows - r);
}

void RunBlock(const Block& k, int64_t panels) {
  int64_t p = 0;
  if (k.rows == 1) {
    for (; p + kPanelsOneRow <= panels; p += kPanelsOneRow) {
      Tile<1, kPanelsOneRow>(k, WeightsOf(k, p, kPanelsOneRow), 0, p);
    }
  }
  for (; p + kPanels <= panels; p += kPanels) Panels<kPanels>(k, p);
  for (; k.b.swiglu && p < panels; p += 2) Panels<2>(k, p);
  for (; p < panels; ++p) Panels<1>(k, p);
}

void Gemm(const GemmBlock& b, int64_t block_pairs) {
  const int64_t pairs = Ceil(b.k, 2);
  char* scratch = static_cast<char*>(b.scratch);
  for (int64_t row = b.row_begin; row < b.row_end; row += kBlockRows) {
    const int64_t rows = Min(kBlockRows, b.row_end - row);
    for (int64_t panel = b.panel_begin; panel < b.panel_end; panel += kBlockPanels) {
      for (int64_t pair = 0; pair == 0 || pair < pairs; pair += block_pairs) {  // once without k: zeros are written
        const int64_t count = Min(block_pairs, pairs - pair);
        const Block k{b,
                      reinterpret_cast<int*>(scratch),
                      reinterpret_cast<float*>(scratch + kPackedX),
                      reinterpret_cast<uint16_t*>(scratch + kPackedX + kSums),
                      row,
                      rows,
                      panel,
                      pair,
                      count,
                      pair == 0,
                      pair + count == pairs};
        PackX(k);
        RunBlock(k, Min(kBlockPanels, b.panel_end - panel));
      }
    }
  }
}

// One row by P panels over pairs [pair, end) of k, decoded first.
template <int P>
void DecodedF8(const GemmBlock& b, const int* x, int64_t panel, int64_t pair, int64_t end, __m512 (&sum)[P]) {
  auto* decoded = reinterpret_cast<uint16_t*>(static_cast<char*>(b.scratch) + kPackedX + kSums);
  const char* from = static_cast<const char*>(b.panels) + panel * PanelBytesF8(b);
  for (int64_t count = 0; pair < end; pair += count) {
    count = Min(kBlockPairsF8, end - pair);
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

void GemmBf16Avx512(const GemmBlock& b);
void GemmBf16Avx512(const GemmBlock& b) { Gemm(b, kBlockPairs); }
void GemmF8Avx512(const GemmBlock& b);
void GemmF8Avx512(const GemmBlock& b) {
  constexpr int kPanelsRowF8 = 4;  // each takes two registers of tables
  GemmBlock rest = b;
  const int64_t pairs = Ceil(b.k, 2);
  if (b.row_end - b.row_begin == 1 && pairs * 4 <= kPackedX) {
    auto* x = static_cast<int*>(b.scratch);
    PackX({b, x, nullptr, nullptr, b.row_begin, 1, b.panel_begin, 0, pairs, true, true});
    for (; rest.panel_begin + kPanelsRowF8 <= b.panel_end; rest.panel_begin += kPanelsRowF8) {
      RowF8<kPanelsRowF8>(b, x, rest.panel_begin);
    }
  }
  Gemm(rest, kBlockPairsF8);
}

}  // namespace mla::ops

#endif
