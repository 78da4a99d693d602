// The kernels, over simd::V16. Included by one kernels_ISA.cc for each instruction set, which defines MLA_SIMD_*, the
// block sizes kRows x kPanels of the product's inner loop, MLA_DECODE_F8 (ops/f8_decode.h), and the table's name.

namespace mla::ops {
namespace {

using namespace simd::MLA_SIMD_NS;  // NOLINT(google-build-using-namespace): the vocabulary of this file

MLA_INLINE const float* XRow(const GemmBlock& b, int64_t r) { return b.x + (b.x_rows ? b.x_rows[r] : r) * b.ldx; }
MLA_INLINE float* YRow(const GemmBlock& b, int64_t r) { return b.y + (b.y_rows ? b.y_rows[r] : r) * b.ldy; }

// Writes 16 outputs of panel p, or those of them that exist.
MLA_INLINE void StorePanel(const GemmBlock& b, float* y, int64_t panel, V16 sum) {
  const int64_t n = panel * kLanes;
  sum = Mul(sum, Set1(b.scale));
  if (n + kLanes <= b.n) {
    Store(y + n, b.add ? Add(Load(y + n), sum) : sum);
    return;
  }
  float t[kLanes];
  Store(t, sum);
  for (int64_t i = n; i < b.n; ++i) y[i] = b.add ? y[i] + t[i - n] : t[i - n];
}

struct PanelsF32 {
  template <int R, int P>
  static void Run(const GemmBlock& b, const float* const (&x)[R], int64_t panel, V16 (&sum)[R][P]) {
    const float* w[P];
    for (int p = 0; p < P; ++p) w[p] = static_cast<const float*>(b.panels) + (panel + p) * b.k * kLanes;
    for (int64_t k = 0; k < b.k; ++k) {
      V16 v[P];
      for (int p = 0; p < P; ++p) v[p] = Load(w[p] + k * kLanes);
      for (int r = 0; r < R; ++r) {
        const V16 a = Set1(x[r][k]);
        for (int p = 0; p < P; ++p) sum[r][p] = Fma(a, v[p], sum[r][p]);
      }
    }
  }
};

struct PanelsBf16 {
  template <int R, int P>
  static void Run(const GemmBlock& b, const float* const (&x)[R], int64_t panel, V16 (&sum)[R][P]) {
    const int64_t pairs = (b.k + 1) / 2;
    const uint16_t* w[P];
    for (int p = 0; p < P; ++p) w[p] = static_cast<const uint16_t*>(b.panels) + (panel + p) * pairs * kLanes * 2;
    for (int64_t i = 0; i < b.k / 2; ++i) {
      for (int p = 0; p < P; ++p) {
        V16 first;
        V16 second;
        LoadBf16Pairs(w[p] + i * kLanes * 2, &first, &second);
        for (int r = 0; r < R; ++r) {
          sum[r][p] = Fma(Set1(x[r][2 * i]), first, sum[r][p]);
          sum[r][p] = Fma(Set1(x[r][2 * i + 1]), second, sum[r][p]);
        }
      }
    }
    if (b.k % 2 == 0) return;
    for (int p = 0; p < P; ++p) {
      V16 first;
      V16 second;
      LoadBf16Pairs(w[p] + b.k / 2 * kLanes * 2, &first, &second);
      for (int r = 0; r < R; ++r) sum[r][p] = Fma(Set1(x[r][b.k - 1]), first, sum[r][p]);
    }
  }
};

template <class Format, int R, int P>
void Tile(const GemmBlock& b, int64_t row, int64_t panel) {
  const float* x[R];
  V16 sum[R][P];
  for (int r = 0; r < R; ++r) {
    x[r] = XRow(b, row + r);
    for (int p = 0; p < P; ++p) sum[r][p] = Zero();
  }
  Format::template Run<R, P>(b, x, panel, sum);
  for (int r = 0; r < R; ++r) {
    float* y = YRow(b, row + r);
    for (int p = 0; p < P; ++p) StorePanel(b, y, panel + p, sum[r][p]);
  }
}

// The rows left over below kRows, one instantiation for each count.
template <class Format, int R, int P>
void TailRows(const GemmBlock& b, int64_t row, int64_t panel, int64_t rows) {
  if constexpr (R > 0) {
    if (rows == R) return Tile<Format, R, P>(b, row, panel);
    TailRows<Format, R - 1, P>(b, row, panel, rows);
  }
}

template <class Format, int P>
void PanelGroup(const GemmBlock& b, int64_t panel) {
  int64_t row = b.row_begin;
  for (; row + kRows <= b.row_end; row += kRows) Tile<Format, kRows, P>(b, row, panel);
  TailRows<Format, kRows - 1, P>(b, row, panel, b.row_end - row);
}

// Panels outside, rows inside: a group of panels stays in cache while all rows pass it.
template <class Format>
void Gemm(const GemmBlock& b) {
  int64_t panel = b.panel_begin;
  if (b.row_end - b.row_begin == 1) {
    // One row has few accumulators: more panels at once keep the multiply-add units fed.
    for (; panel + kPanelsOneRow <= b.panel_end; panel += kPanelsOneRow) {
      Tile<Format, 1, kPanelsOneRow>(b, b.row_begin, panel);
    }
  }
  for (; panel + kPanels <= b.panel_end; panel += kPanels) PanelGroup<Format, kPanels>(b, panel);
  for (; panel < b.panel_end; ++panel) PanelGroup<Format, 1>(b, panel);
}

// A piece of k of a group of panels in fp8, decoded, and the sums of some rows between pieces.
struct PieceF8 {
  const uint16_t* panels;  // [panels][pairs][16][2]
  int64_t pair;            // first
  int64_t k;               // of the piece
  float* sums;             // [rows][panels][16]
  int64_t row;             // first
  bool first;
  bool last;
};
constexpr int64_t kPairsF8 = 256;
constexpr int64_t kRowsF8 = 2048;
constexpr int64_t kDecodedF8 = kPanelsOneRow * kPairsF8 * 64;
static_assert(kPanelsOneRow >= kPanels && kDecodedF8 + kRowsF8 * kPanels * 64 <= kGemmScratch);

template <int R, int P>
void TileF8(const GemmBlock& b, const PieceF8& piece, int64_t row, int64_t panel) {
  const float* x[R];
  V16 sum[R][P];
  float* sums = piece.sums + (row - piece.row) * P * kLanes;
  for (int r = 0; r < R; ++r) {
    x[r] = XRow(b, row + r) + piece.pair * 2;
    for (int p = 0; p < P; ++p) sum[r][p] = piece.first ? Zero() : Load(sums + (r * P + p) * kLanes);
  }
  GemmBlock decoded = b;
  decoded.panels = piece.panels;
  decoded.k = piece.k;
  PanelsBf16::Run<R, P>(decoded, x, 0, sum);
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) {
      if (piece.last) {
        StorePanel(b, YRow(b, row + r), panel + p, sum[r][p]);
      } else {
        Store(sums + (r * P + p) * kLanes, sum[r][p]);
      }
    }
  }
}

template <int R, int P>
void TailRowsF8(const GemmBlock& b, const PieceF8& piece, int64_t row, int64_t panel, int64_t rows) {
  if constexpr (R > 0) {
    if (rows == R) return TileF8<R, P>(b, piece, row, panel);
    TailRowsF8<R - 1, P>(b, piece, row, panel, rows);
  }
}

// P panels from `panel`, rows [row, end), R at a time: a piece of k is decoded once for all of them.
template <int R, int P>
void PanelGroupF8(const GemmBlock& b, int64_t row, int64_t end, int64_t panel) {
  const int64_t pairs = (b.k + 1) / 2;
  const int64_t panel_bytes = (b.k + b.scale_block - 1) / b.scale_block * 64 + pairs * 32;
  const char* from = static_cast<const char*>(b.panels) + panel * panel_bytes;
  auto* decoded = static_cast<uint16_t*>(b.scratch);
  auto* sums = reinterpret_cast<float*>(static_cast<char*>(b.scratch) + kDecodedF8);
  for (int64_t pair = 0; pair == 0 || pair < pairs; pair += kPairsF8) {  // once without k: zeros are written
    const int64_t count = pairs - pair < kPairsF8 ? pairs - pair : kPairsF8;
    for (int p = 0; p < P; ++p) {
      MLA_DECODE_F8(from + p * panel_bytes, b.scale_block, pair, count, decoded + p * count * 32, kAheadF8);
    }
    const int64_t left = b.k - pair * 2;
    const PieceF8 piece{
        decoded, pair, left < count * 2 ? left : count * 2, sums, row, pair == 0, pair + count == pairs};
    int64_t r = row;
    for (; r + R <= end; r += R) TileF8<R, P>(b, piece, r, panel);
    TailRowsF8<R - 1, P>(b, piece, r, panel, end - r);
  }
}

#ifdef MLA_F8_TABLE
// The weights of kStepPairsF8 pairs of k: two vectors a pair.
#if defined(MLA_SIMD_AVX512)
constexpr int kStepPairsF8 = 2;
MLA_INLINE void StepF8(const F8Table& table, const char* codes, V16 (&w)[4]) {
  __m512i pairs[2];
  Look(table, _mm512_loadu_si512(codes), &pairs[0], &pairs[1]);
  for (int i = 0; i < 2; ++i) {
    w[2 * i].v = _mm512_castsi512_ps(_mm512_slli_epi32(pairs[i], 16));
    w[2 * i + 1].v = _mm512_castsi512_ps(_mm512_and_si512(pairs[i], _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
  }
}
#else
constexpr int kStepPairsF8 = 1;
MLA_INLINE void StepF8(const F8Table& table, const char* codes, V16 (&w)[2]) {
  __m256i a;
  __m256i b;
  Look(table, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)), &a, &b);
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
  w[0].a = _mm256_castsi256_ps(_mm256_slli_epi32(a, 16));
  w[0].b = _mm256_castsi256_ps(_mm256_slli_epi32(b, 16));
  w[1].a = _mm256_castsi256_ps(_mm256_and_si256(a, mask));
  w[1].b = _mm256_castsi256_ps(_mm256_and_si256(b, mask));
}
#endif

// One row by P panels: weights go from codes to products in registers. What tables can't do, lanes of several scales
// and the end of a block, is decoded first.
template <int P>
void RowF8(const GemmBlock& b, int64_t row, int64_t panel) {
  const int64_t panel_bytes = (b.k + b.scale_block - 1) / b.scale_block * 64 + (b.k + 1) / 2 * 32;
  const char* from = static_cast<const char*>(b.panels) + panel * panel_bytes;
  const float* x[1] = {XRow(b, row)};
  V16 sum[1][P];
  for (int p = 0; p < P; ++p) sum[0][p] = Zero();
  for (int64_t begin = 0; begin < b.k; begin += b.scale_block) {
    const int64_t end = b.k - begin < b.scale_block ? b.k : begin + b.scale_block;
    const char* block = from + begin / b.scale_block * 64 + begin * 16;
    bool tables = true;
    for (int p = 0; p < P; ++p) tables = tables && HasTable(block + p * panel_bytes);
    int64_t k = begin;
    if (tables) {
      F8Table table[P];
      for (int p = 0; p < P; ++p) table[p] = MakeTable(block + p * panel_bytes);
      const char* codes = block + 64;
      for (; k + 2 * kStepPairsF8 <= end; k += 2 * kStepPairsF8) {
        for (int p = 0; p < P; ++p) {
          V16 w[2 * kStepPairsF8];
          StepF8(table[p], codes + p * panel_bytes, w);
          for (int i = 0; i < 2 * kStepPairsF8; ++i) sum[0][p] = Fma(Set1(x[0][k + i]), w[i], sum[0][p]);
        }
        codes += kStepPairsF8 * 32;
      }
    }
    while (k < end) {
      GemmBlock decoded = b;
      decoded.k = end - k < 2 * kPairsF8 ? end - k : 2 * kPairsF8;
      decoded.panels = b.scratch;
      const int64_t pairs = (decoded.k + 1) / 2;
      for (int p = 0; p < P; ++p) {
        MLA_DECODE_F8(from + p * panel_bytes, b.scale_block, k / 2, pairs,
                      static_cast<uint16_t*>(b.scratch) + p * pairs * 32, kAheadF8);
      }
      const float* rest[1] = {x[0] + k};
      PanelsBf16::Run<1, P>(decoded, rest, 0, sum);
      k += decoded.k;
    }
  }
  for (int p = 0; p < P; ++p) StorePanel(b, YRow(b, row), panel + p, sum[0][p]);
}
#endif

void GemmF8(const GemmBlock& b) {
  for (int64_t row = b.row_begin; row < b.row_end; row += kRowsF8) {
    const int64_t end = b.row_end - row < kRowsF8 ? b.row_end : row + kRowsF8;
    int64_t panel = b.panel_begin;
#ifdef MLA_F8_TABLE
    if (end - row == 1) {
      for (; panel + kPanelsRowF8 <= b.panel_end; panel += kPanelsRowF8) RowF8<kPanelsRowF8>(b, row, panel);
    }
#endif
    if (end - row == 1) {
      for (; panel + kPanelsOneRow <= b.panel_end; panel += kPanelsOneRow)
        PanelGroupF8<1, kPanelsOneRow>(b, row, end, panel);
    }
    for (; panel + kPanels <= b.panel_end; panel += kPanels) PanelGroupF8<kRows, kPanels>(b, row, end, panel);
    for (; panel < b.panel_end; ++panel) PanelGroupF8<kRows, 1>(b, row, end, panel);
  }
}

void RmsNorm(const float* x, const float* weight, float eps, float* y, int64_t n) {
  V16 squares = Zero();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) squares = Fma(Load(x + i), Load(x + i), squares);
  float sum = ReduceAdd(squares);
  for (int64_t j = i; j < n; ++j) sum += x[j] * x[j];
  const float scale = 1.0F / __builtin_sqrtf(sum / static_cast<float>(n) + eps);
  const V16 s = Set1(scale);
  for (i = 0; i + kLanes <= n; i += kLanes) Store(y + i, Mul(Mul(Load(x + i), s), Load(weight + i)));
  for (; i < n; ++i) y[i] = x[i] * scale * weight[i];
}

MLA_INLINE V16 Silu(V16 x) {
  // The clamp keeps e^-x finite; past -88 |silu| is below 1e-36 and counts as 0 (x over the clamped e would grow
  // again).
  const V16 e = Exp(Min(Set1(88.0F), Sub(Zero(), x)));
  return ZeroWhereLess(x, Set1(-88.0F), Div(x, Add(Set1(1.0F), e)));
}

void SiluMul(const float* gate, const float* up, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(y + i, Mul(Silu(Load(gate + i)), Load(up + i)));
  if (i == n) return;
  float g[kLanes] = {};
  float u[kLanes] = {};
  for (int64_t j = i; j < n; ++j) {
    g[j - i] = gate[j];
    u[j - i] = up[j];
  }
  Store(g, Mul(Silu(Load(g)), Load(u)));
  for (int64_t j = i; j < n; ++j) y[j] = g[j - i];
}

void AddScaled(const float* x, float scale, float* y, int64_t n) {
  const V16 s = Set1(scale);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(y + i, Add(Load(y + i), Mul(s, Load(x + i))));
  for (; i < n; ++i) y[i] = y[i] + scale * x[i];
}

}  // namespace
}  // namespace mla::ops
