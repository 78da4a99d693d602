// Products of bf16 by AVX-512 BF16's dot products. Empty where the build leaves the instruction set out.
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#include <immintrin.h>

#define MLA_SIMD_AVX512
#include "base/simd.h"
#include "ops/bf16_rows.h"
#include "ops/f8_decode.h"
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

}  // namespace

void GemmBf16Avx512(const GemmBlock& b);
void GemmBf16Avx512(const GemmBlock& b) { Gemm(b, kBlockPairs); }
void GemmF8Avx512(const GemmBlock& b);
void GemmF8Avx512(const GemmBlock& b) { Gemm(b, kBlockPairsF8); }

}  // namespace mla::ops

#endif
