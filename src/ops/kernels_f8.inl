// The products of weights in fp8, over simd::V16. Included, and the other kernels with it, by one kernels_ISA.cc for
// each instruction set, which defines MLA_DECODE_F8 (ops/f8_decode.h) and, where one row is faster without decoding
// first, MLA_F8_TABLE: then it has the tables of ops/f8_table_ISA.inl, kPanelsRowF8, kStepPairsF8 and
//   StepF8(table, codes, w): the weights of kStepPairsF8 pairs of k, two vectors a pair.
#include "ops/kernels_many.inl"

namespace mla::ops {
namespace {

#ifdef MLA_F8_TABLE
constexpr int64_t kPairsF8 = 256;
static_assert(kPanelsRowF8 * kPairsF8 * 64 <= kGemmScratch);

MLA_INLINE const char* PanelF8(const GemmBlock& b, int64_t panel) {
  return static_cast<const char*>(b.panels) + panel * PanelBytesF8(b);
}

// One row by P panels over [k, end), kPairsF8 pairs at most, decoded first.
template <int P>
void DecodedF8(const GemmBlock& b, const float* x, int64_t panel, int64_t k, int64_t end, V16 (&sum)[P]) {
  GemmBlock decoded = b;
  decoded.k = end - k < 2 * kPairsF8 ? end - k : 2 * kPairsF8;
  decoded.panels = b.scratch;
  const int64_t pairs = (decoded.k + 1) / 2;
  for (int p = 0; p < P; ++p) {
    MLA_DECODE_F8(PanelF8(b, panel + p), b.scale_block, k / 2, pairs,
                  static_cast<uint16_t*>(b.scratch) + p * pairs * 32, kAheadF8);
  }
  PanelsBf16::Run<P>(decoded, x + k, 0, sum);
}

// One row by P panels: weights go from codes to products in registers. What tables can't do, lanes of several scales
// and the end of a block, is decoded first.
template <int P>
void RowF8(const GemmBlock& b, int64_t panel) {
  const int64_t panel_bytes = PanelBytesF8(b);
  const char* from = PanelF8(b, panel);
  const float* x = XRow(b, b.row_begin);
  V16 sum[P];
  for (int p = 0; p < P; ++p) sum[p] = Zero();
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
      // After a panel comes its like of the next panels.
      const int64_t ahead = kAheadF8 + (codes + kAheadF8 < from + panel_bytes ? 0 : (P - 1) * panel_bytes);
      for (; k + 2 * kStepPairsF8 <= end; k += 2 * kStepPairsF8) {
        for (int p = 0; p < P; ++p) {
          V16 w[2 * kStepPairsF8];
          __builtin_prefetch(codes + p * panel_bytes + ahead, 0, 3);
          StepF8(table[p], codes + p * panel_bytes, w);
          for (int i = 0; i < 2 * kStepPairsF8; ++i) sum[p] = Fma(Set1(x[k + i]), w[i], sum[p]);
        }
        codes += kStepPairsF8 * 32;
      }
    }
    for (; k < end; k += 2 * kPairsF8) DecodedF8<P>(b, x, panel, k, end, sum);
  }
  StoreRow<P>(b, b.row_begin, panel, sum);
}
#endif

void GemmF8(const GemmBlock& b) {
  GemmBlock rest = b;
#ifdef MLA_F8_TABLE
  if (b.row_end - b.row_begin == 1) {
    for (; rest.panel_begin + kPanelsRowF8 <= b.panel_end; rest.panel_begin += kPanelsRowF8) {
      RowF8<kPanelsRowF8>(b, rest.panel_begin);
    }
  }
#endif
  GemmMany<ManyF8>(rest);
}

}  // namespace
}  // namespace mla::ops
