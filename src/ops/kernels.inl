// The kernels, over simd::V16. Included by one kernels_ISA.cc for each instruction set, which defines MLA_SIMD_*
// and kPanelsOneRow, panels that one row's product takes at once.
#include "ops/gemm_rows.h"
#include "ops/silu.h"

namespace mla::ops {
namespace {

using namespace simd::MLA_SIMD_NS;  // NOLINT(google-build-using-namespace): the vocabulary of this file

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

// Writes silu(gate) * up of panels `panel` and `panel` + 1, or those outputs that exist.
// Not inlined: tiles of every size would each hold a copy of SiLU.
[[gnu::noinline]] void StoreSwiglu(const GemmBlock& b, float* y, int64_t panel, V16 gate, V16 up) {
  const int64_t n = panel / 2 * kLanes;
  const V16 product = Mul(Silu(gate), up);
  if (n + kLanes <= b.n) return Store(y + n, product);
  float t[kLanes];
  Store(t, product);
  for (int64_t i = n; i < b.n; ++i) y[i] = t[i - n];
}

// The sums of P panels of a row to its y.
template <int P>
MLA_INLINE void StoreRow(const GemmBlock& b, int64_t row, int64_t panel, const V16 (&sum)[P]) {
  float* y = YRow(b, row);
  if (P % 2 == 0 && b.swiglu) {
    for (int p = 0; p < P; p += 2) StoreSwiglu(b, y, panel + p, sum[p], sum[p + 1]);
  } else {
    for (int p = 0; p < P; ++p) StorePanel(b, y, panel + p, sum[p]);
  }
}

// One row by P panels: each of its sums over k in ascending order.
struct PanelsF32 {
  template <int P>
  static void Run(const GemmBlock& b, const float* x, int64_t panel, V16 (&sum)[P]) {
    const float* w[P];
    for (int p = 0; p < P; ++p) w[p] = static_cast<const float*>(b.panels) + (panel + p) * b.k * kLanes;
    for (int64_t k = 0; k < b.k; ++k) {
      const V16 a = Set1(x[k]);
      for (int p = 0; p < P; ++p) sum[p] = Fma(a, Load(w[p] + k * kLanes), sum[p]);
    }
  }
};

struct PanelsBf16 {
  template <int P>
  static void Run(const GemmBlock& b, const float* x, int64_t panel, V16 (&sum)[P]) {
    const int64_t pairs = (b.k + 1) / 2;
    const uint16_t* w[P];
    for (int p = 0; p < P; ++p) w[p] = static_cast<const uint16_t*>(b.panels) + (panel + p) * pairs * kLanes * 2;
    V16 first;
    V16 second;
    for (int64_t i = 0; i < b.k / 2; ++i) {
      for (int p = 0; p < P; ++p) {
        LoadBf16Pairs(w[p] + i * kLanes * 2, &first, &second);
        sum[p] = Fma(Set1(x[2 * i]), first, sum[p]);
        sum[p] = Fma(Set1(x[2 * i + 1]), second, sum[p]);
      }
    }
    if (b.k % 2 == 0) return;
    for (int p = 0; p < P; ++p) {
      LoadBf16Pairs(w[p] + b.k / 2 * kLanes * 2, &first, &second);
      sum[p] = Fma(Set1(x[b.k - 1]), first, sum[p]);
    }
  }
};

template <class Format, int P>
void RowPanels(const GemmBlock& b, int64_t panel) {
  V16 sum[P];
  for (int p = 0; p < P; ++p) sum[p] = Zero();
  Format::template Run<P>(b, XRow(b, b.row_begin), panel, sum);
  StoreRow<P>(b, b.row_begin, panel, sum);
}

// One row has few accumulators: some panels at once keep the multiply-add units fed.
template <class Format>
void GemmOneRow(const GemmBlock& b) {
  int64_t panel = b.panel_begin;
  for (; panel + kPanelsOneRow <= b.panel_end; panel += kPanelsOneRow) RowPanels<Format, kPanelsOneRow>(b, panel);
  for (; b.swiglu && panel < b.panel_end; panel += 2) RowPanels<Format, 2>(b, panel);
  for (; panel < b.panel_end; ++panel) RowPanels<Format, 1>(b, panel);
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
