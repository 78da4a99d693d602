// The products of weights in fp8, over simd::V16 and ops/kernels.inl. Included after that by one kernels_ISA.cc for
// each instruction set, which defines MLA_DECODE_F8 (ops/f8_decode.h) and, where one row is faster without decoding
// first, MLA_F8_TABLE: then it has the tables of ops/f8_table_ISA.inl, kPanelsRowF8, kStepPairsF8 and
//   StepF8(table, codes, w): the weights of kStepPairsF8 pairs of k, two vectors a pair.

namespace mla::ops {
namespace {

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
static_assert(kPanelsOneRow >= kPanels && kDecodedF8 + kRowsF8 * (kPanels > 2 ? kPanels : 2) * 64 <= kGemmScratch);

MLA_INLINE const char* PanelF8(const GemmBlock& b, int64_t panel) {
  return static_cast<const char*>(b.panels) + panel * PanelBytesF8(b);
}

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
    if (piece.last) {
      StoreRow<P>(b, row + r, panel, sum[r]);
    } else {
      for (int p = 0; p < P; ++p) Store(sums + (r * P + p) * kLanes, sum[r][p]);
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
  auto* decoded = static_cast<uint16_t*>(b.scratch);
  auto* sums = reinterpret_cast<float*>(static_cast<char*>(b.scratch) + kDecodedF8);
  for (int64_t pair = 0; pair == 0 || pair < pairs; pair += kPairsF8) {  // once without k: zeros are written
    const int64_t count = pairs - pair < kPairsF8 ? pairs - pair : kPairsF8;
    for (int p = 0; p < P; ++p) {
      MLA_DECODE_F8(PanelF8(b, panel + p), b.scale_block, pair, count, decoded + p * count * 32, kAheadF8);
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
// One row by P panels over [k, end), kPairsF8 pairs at most, decoded first.
template <int P>
void DecodedF8(const GemmBlock& b, const float* x, int64_t panel, int64_t k, int64_t end, V16 (&sum)[1][P]) {
  GemmBlock decoded = b;
  decoded.k = end - k < 2 * kPairsF8 ? end - k : 2 * kPairsF8;
  decoded.panels = b.scratch;
  const int64_t pairs = (decoded.k + 1) / 2;
  for (int p = 0; p < P; ++p) {
    MLA_DECODE_F8(PanelF8(b, panel + p), b.scale_block, k / 2, pairs,
                  static_cast<uint16_t*>(b.scratch) + p * pairs * 32, kAheadF8);
  }
  const float* rest[1] = {x + k};
  PanelsBf16::Run<1, P>(decoded, rest, 0, sum);
}

// One row by P panels: weights go from codes to products in registers. What tables can't do, lanes of several scales
// and the end of a block, is decoded first.
template <int P>
void RowF8(const GemmBlock& b, int64_t row, int64_t panel) {
  const int64_t panel_bytes = PanelBytesF8(b);
  const char* from = PanelF8(b, panel);
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
    for (; k < end; k += 2 * kPairsF8) DecodedF8<P>(b, x[0], panel, k, end, sum);
  }
  StoreRow<P>(b, row, panel, sum[0]);
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
      for (; panel + kPanelsOneRow <= b.panel_end; panel += kPanelsOneRow) {
        PanelGroupF8<1, kPanelsOneRow>(b, row, end, panel);
      }
    }
    if (b.swiglu) {
      // Both panels of a pair meet in one tile.
      constexpr int kPairRows = kPanels > 1 ? kRows : kRows / 2;
      for (; panel < b.panel_end; panel += 2) PanelGroupF8<kPairRows, 2>(b, row, end, panel);
      continue;
    }
    for (; panel + kPanels <= b.panel_end; panel += kPanels) PanelGroupF8<kRows, kPanels>(b, row, end, panel);
    for (; panel < b.panel_end; ++panel) PanelGroupF8<kRows, 1>(b, row, end, panel);
  }
}

}  // namespace
}  // namespace mla::ops
