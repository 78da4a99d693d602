// Products of several rows, over simd::V16. A kernels_ISA.cc defines the block kTileRows x kTilePanels of the inner
// loop, and kBlockK.
//
// k is cut into blocks. A block of x is copied to where its rows are neighbours, some panels' part of a block is
// widened to fp32, which the first cache then holds while all rows pass it: the inner loop is loads and multiply-adds.
// Sums wait in memory from one block to the next, as they are.
#include "ops/kernels.inl"

namespace mla::ops {
namespace {

constexpr int64_t kBlockRows = 96;
constexpr int64_t kBlockPanels = 64;
constexpr int64_t kManyX = kBlockRows * kBlockK * 4;           // bytes of scratch for x,
constexpr int64_t kManySums = kBlockRows * kBlockPanels * 64;  // for sums,
constexpr int64_t kManyWide = kTilePanels * kBlockK * 64;      // for widened panels,
constexpr int64_t kManyDecoded = kBlockK * 32;                 // and for a panel of fp8 on its way there
static_assert(kManyX + kManySums + kManyWide + kManyDecoded <= kGemmScratch);
static_assert(kBlockK % kLanes == 0 && kBlockPanels % (2 * kTilePanels) == 0);

// What is at work: some rows, panels and k.
struct ManyBlock {
  const GemmBlock& b;
  float* x;           // [rows][kBlockK]
  float* sums;        // [panels][rows][16]
  float* wide;        // [kTilePanels][kBlockK][16]
  uint16_t* decoded;  // [kBlockK / 2][16][2]
  int64_t row;        // first
  int64_t rows;
  int64_t panel;  // first
  int64_t panels;
  int64_t k;  // first
  int64_t count;
  bool first;  // of k
  bool last;

  float* sum(int64_t p, int64_t r) const { return sums + (p * rows + r) * kLanes; }
};

void CopyX(const ManyBlock& m) {
  for (int64_t r = 0; r < m.rows; ++r) {
    const float* from = XRow(m.b, m.row + r) + m.k;
    float* to = m.x + r * kBlockK;
    int64_t i = 0;
    for (; i + kLanes <= m.count; i += kLanes) Store(to + i, Load(from + i));
    for (; i < m.count; ++i) to[i] = from[i];
  }
}

// `count` of k of a panel in bf16 to fp32.
void Widen(const uint16_t* from, int64_t count, float* to) {
  for (int64_t k = 0; k < count; k += 2) {
    V16 first;
    V16 second;
    LoadBf16Pairs(from + k * kLanes, &first, &second);
    Store(to + k * kLanes, first);
    Store(to + (k + 1) * kLanes, second);
  }
}

// The part of panel `panel` that begins at k: where it is kept, and in fp32, by way of `to` where it is not kept so.
struct ManyF32 {
  static const char* At(const GemmBlock& b, int64_t panel, int64_t k) {
    return static_cast<const char*>(b.panels) + (panel * b.k + k) * 64;
  }
  static int64_t Bytes(int64_t count) { return count * 64; }
  static const float* Wide(const ManyBlock& m, int64_t panel, float* /*to*/) {
    return reinterpret_cast<const float*>(At(m.b, panel, m.k));
  }
};

struct ManyBf16 {
  static const char* At(const GemmBlock& b, int64_t panel, int64_t k) {
    return static_cast<const char*>(b.panels) + (panel * ((b.k + 1) / 2) + k / 2) * 64;
  }
  static int64_t Bytes(int64_t count) { return count * 32; }
  static const float* Wide(const ManyBlock& m, int64_t panel, float* to) {
    Widen(reinterpret_cast<const uint16_t*>(At(m.b, panel, m.k)), m.count, to);
    return to;
  }
};

struct ManyF8 {
  static const char* At(const GemmBlock& b, int64_t panel, int64_t k) {
    const int64_t scales = (k / b.scale_block + 1) * 64;
    return static_cast<const char*>(b.panels) + panel * PanelBytesF8(b) + scales + k * 16;
  }
  static int64_t Bytes(int64_t count) { return count * 16; }
  static const float* Wide(const ManyBlock& m, int64_t panel, float* to) {
    const char* from = static_cast<const char*>(m.b.panels) + panel * PanelBytesF8(m.b);
    MLA_DECODE_F8(from, m.b.scale_block, m.k / 2, (m.count + 1) / 2, m.decoded, 0);
    Widen(m.decoded, m.count, to);
    return to;
  }
};

// Asks for memory ahead of its use, a little with each few steps: arithmetic leaves the way to memory idle.
template <int P>
struct ManyAhead {
  const char* at[P];
  int64_t left;   // bytes of each panel
  int64_t share;  // of them each few steps

  void Step() {
    for (int64_t i = 0; i < share && left > 0; i += 64, left -= 64) {
      for (int j = 0; j < P; ++j) {
        __builtin_prefetch(at[j], 0, 2);
        at[j] += 64;
      }
    }
  }
};
constexpr int64_t kAheadSteps = 16;

// R rows from r by P panels from p.
template <int R, int P>
void ManyTile(const ManyBlock& m, const float* const (&w)[P], int64_t r, int64_t p, ManyAhead<P>* ahead) {
  const float* x = m.x + r * kBlockK;
  V16 sum[R][P];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
    for (int j = 0; j < P; ++j) sum[i][j] = m.first ? Zero() : Load(m.sum(p + j, r + i));
  }
  for (int64_t begin = 0; begin < m.count; begin += kAheadSteps) {
    ahead->Step();
    const int64_t end = m.count - begin < kAheadSteps ? m.count : begin + kAheadSteps;
#pragma GCC unroll 4
    for (int64_t k = begin; k < end; ++k) {
      V16 v[P];
      for (int j = 0; j < P; ++j) v[j] = Load(w[j] + k * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) {
        const V16 a = Set1(x[i * kBlockK + k]);
        for (int j = 0; j < P; ++j) sum[i][j] = Fma(a, v[j], sum[i][j]);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
    for (int j = 0; j < P; ++j) {
      if (m.last && !m.b.swiglu) {
        StorePanel(m.b, YRow(m.b, m.row + r + i), m.panel + p + j, sum[i][j]);
      } else {
        Store(m.sum(p + j, r + i), sum[i][j]);
      }
    }
  }
}

// As ManyTile, of `rows` rows, R at most.
template <int R, int P>
void ManyTileOf(int64_t rows, const ManyBlock& m, const float* const (&w)[P], int64_t r, int64_t p,
                ManyAhead<P>* ahead) {
  if constexpr (R > 0) {
    if (rows == R) return ManyTile<R, P>(m, w, r, p, ahead);
    ManyTileOf<R - 1, P>(rows, m, w, r, p, ahead);
  }
}

// P panels from p by all rows, in tiles of like size: few rows have too few sums to keep the multiply-add units fed.
// Meanwhile memory is asked for the weights that come next.
template <class Format, int P>
void ManyPanels(const ManyBlock& m, int64_t p) {
  const float* w[P];
  for (int j = 0; j < P; ++j) w[j] = Format::Wide(m, m.panel + p + j, m.wide + j * kBlockK * kLanes);
  const int64_t tiles = (m.rows + kTileRows - 1) / kTileRows;
  const bool more = p + P < m.panels;
  ManyAhead<P> ahead;
  for (int j = 0; j < P; ++j) {
    ahead.at[j] = Format::At(m.b, m.panel + (more ? p + P + j : j), more ? m.k : m.k + m.count);
  }
  const int64_t steps = tiles * (m.count / kAheadSteps + 1);
  ahead.left = Format::Bytes(m.count);
  ahead.share = (ahead.left / 64 + steps - 1) / steps * 64;
  int64_t r = 0;
  for (int64_t tile = 1; tile <= tiles; ++tile) {
    const int64_t end = m.rows * tile / tiles;
    ManyTileOf<kTileRows, P>(end - r, m, w, r, p, &ahead);
    r = end;
  }
}

template <class Format>
void RunManyBlock(const ManyBlock& m) {
  CopyX(m);
  int64_t p = 0;
  for (; p + kTilePanels <= m.panels; p += kTilePanels) ManyPanels<Format, kTilePanels>(m, p);
  for (; p < m.panels; ++p) ManyPanels<Format, 1>(m, p);
  if (!m.last || !m.b.swiglu) return;
  for (int64_t r = 0; r < m.rows; ++r) {
    float* y = YRow(m.b, m.row + r);
    for (p = 0; p < m.panels; p += 2) StoreSwiglu(m.b, y, m.panel + p, Load(m.sum(p, r)), Load(m.sum(p + 1, r)));
  }
}

template <class Format>
void GemmMany(const GemmBlock& b) {
  char* scratch = static_cast<char*>(b.scratch);
  for (int64_t row = b.row_begin; row < b.row_end; row += kBlockRows) {
    const int64_t rows = b.row_end - row < kBlockRows ? b.row_end - row : kBlockRows;
    for (int64_t panel = b.panel_begin; panel < b.panel_end; panel += kBlockPanels) {
      const int64_t panels = b.panel_end - panel < kBlockPanels ? b.panel_end - panel : kBlockPanels;
      for (int64_t k = 0; k == 0 || k < b.k; k += kBlockK) {  // once without k: zeros are written
        const int64_t count = b.k - k < kBlockK ? b.k - k : kBlockK;
        RunManyBlock<Format>({b, reinterpret_cast<float*>(scratch), reinterpret_cast<float*>(scratch + kManyX),
                              reinterpret_cast<float*>(scratch + kManyX + kManySums),
                              reinterpret_cast<uint16_t*>(scratch + kManyX + kManySums + kManyWide), row, rows, panel,
                              panels, k, count, k == 0, k + count == b.k});
      }
    }
  }
}

void GemmF32(const GemmBlock& b) {
  return b.row_end - b.row_begin == 1 ? GemmOneRow<PanelsF32>(b) : GemmMany<ManyF32>(b);
}
void GemmBf16(const GemmBlock& b) {
  return b.row_end - b.row_begin == 1 ? GemmOneRow<PanelsBf16>(b) : GemmMany<ManyBf16>(b);
}

}  // namespace
}  // namespace mla::ops
