#include "ops/self_test.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/buffer.h"

namespace mla::ops {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kGuard = -77;
constexpr double kU = 0x1p-24;  // unit roundoff of fp32

// Nine whole panels and five lanes: one group of eight panels, two of four or four of two, and panels left over.
constexpr std::int64_t kN = 149;
constexpr std::int64_t kPanels = (kN + 15) / 16;
constexpr std::int64_t kK = 7;
constexpr std::int64_t kRows = 13;
constexpr std::int64_t kLdx = kK + 2;
constexpr std::int64_t kLdy = kN + 3;

// Of k, in fp8: a whole block of three pairs, and a last one that is short and ends in half a pair.
constexpr std::int64_t kBlock = 6;
constexpr std::int64_t kPanelF8 = 2 * 64 + (kK + 1) / 2 * 32;

// x [13, 7], W [149, 7] in the packed layouts, and what their product is: that of fp8 is of other weights.
struct Product {
  std::array<float, kRows * kLdx> x;
  std::array<float, kPanels* kK* 16> f32 = {};
  std::array<std::uint16_t, kPanels*((kK + 1) / 2)* 32> bf16 = {};
  std::array<std::byte, kPanels* kPanelF8> f8 = {};
  std::array<double, kRows* kN> exact = {};
  std::array<double, kRows* kN> exact_f8 = {};
};

// The layouts are written here once more, from their description in ops/packed.h: a kernel and a packing that agree on
// a wrong order would pass each other.
void Fill(Product* p) {
  CheckValues values;
  p->x.fill(kNan);
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t k = 0; k < kK; ++k) p->x[static_cast<std::size_t>(r * kLdx + k)] = values.Next();
  }
  for (std::int64_t j = 0; j < kN; ++j) {
    for (std::int64_t k = 0; k < kK; ++k) {
      const float w = values.Next();
      p->f32[static_cast<std::size_t>((j / 16 * kK + k) * 16 + j % 16)] = w;
      p->bf16[static_cast<std::size_t>(((j / 16 * ((kK + 1) / 2) + k / 2) * 16 + j % 16) * 2 + k % 2)] =
          Bf16FromFloat(w);
      for (std::int64_t r = 0; r < kRows; ++r) {
        p->exact[static_cast<std::size_t>(r * kN + j)] +=
            static_cast<double>(p->x[static_cast<std::size_t>(r * kLdx + k)]) * static_cast<double>(w);
      }
    }
  }
}

// The same for fp8. A third of the panels has one scale and codes down to the denormal ones, a third a scale by which
// weights are rounded, a third two scales; all so that sums in fp32 are exact.
void FillF8(Product* p) {
  CheckValues values;
  for (std::int64_t j = 0; j < kN; ++j) {
    const std::int64_t kind = j / 16 % 3;
    const float scale = kind == 0 ? 1.0F : kind == 1 ? 129.0F / 128 : static_cast<float>(1 + j % 2);
    for (std::int64_t k = 0; k < kK; ++k) {
      const float block_scale = k < kBlock ? scale : scale / 2;
      // Magnitudes below 2; from 1/8 on where they are rounded.
      const auto bits = static_cast<unsigned>(values.Next() * 64 + 128) & 0xbfU;
      const auto code = static_cast<std::uint8_t>(kind == 1 ? bits | 0x20U : bits);
      const auto block = static_cast<std::size_t>(j / 16 * kPanelF8 + k / kBlock * (64 + kBlock * 16));
      std::memcpy(&p->f8[block + static_cast<std::size_t>(j % 16 * 4)], &block_scale, 4);
      p->f8[block + 64 + static_cast<std::size_t>((k % kBlock / 2 * 16 + j % 16) * 2 + k % 2)] = std::byte{code};
      const float w = FloatFromBf16(Bf16FromFloat(FloatFromE4M3(code) * block_scale));
      for (std::int64_t r = 0; r < kRows; ++r) {
        p->exact_f8[static_cast<std::size_t>(r * kN + j)] +=
            static_cast<double>(p->x[static_cast<std::size_t>(r * kLdx + k)]) * static_cast<double>(w);
      }
    }
  }
}

// A kernel, its panels and what x times them is.
struct GemmSubject {
  GemmFn gemm;
  const void* panels;
  std::int64_t scale_block;
  const std::array<double, kRows * kN>& exact;
};

struct GemmCase {
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::int64_t panel_begin = 0;
  bool add = false;
  float scale = 1;
  const std::int32_t* x_rows = nullptr;
  const std::int32_t* y_rows = nullptr;
};

// One call, compared over all of y: what it was not asked to write must be as before.
std::string CheckCase(const GemmSubject& s, const Product& p, void* scratch, const GemmCase& c) {
  std::array<float, kRows * kLdy> y;
  std::array<double, kRows * kLdy> want;
  CheckValues values;
  for (float& v : y) v = c.add ? values.Next() : kGuard;
  std::copy(y.begin(), y.end(), want.begin());
  for (std::int64_t r = c.row_begin; r < c.row_end; ++r) {
    const std::int64_t from = c.x_rows != nullptr ? c.x_rows[r] : r;
    const std::int64_t to = c.y_rows != nullptr ? c.y_rows[r] : r;
    for (std::int64_t j = c.panel_begin * 16; j < kN; ++j) {
      double& out = want[static_cast<std::size_t>(to * kLdy + j)];
      const double sum = static_cast<double>(c.scale) * s.exact[static_cast<std::size_t>(from * kN + j)];
      out = c.add ? out + sum : sum;
    }
  }
  GemmBlock b{};
  b.x = p.x.data();
  b.ldx = kLdx;
  b.x_rows = c.x_rows;
  b.y = y.data();
  b.ldy = kLdy;
  b.y_rows = c.y_rows;
  b.m = kRows;
  b.panels = s.panels;
  b.n = kN;
  b.k = kK;
  b.scale_block = s.scale_block;
  b.row_begin = c.row_begin;
  b.row_end = c.row_end;
  b.panel_begin = c.panel_begin;
  b.panel_end = kPanels;
  b.add = c.add;
  b.scale = c.scale;
  b.scratch = scratch;
  s.gemm(b);
  const std::string fault = FirstFault(y.data(), want.data(), nullptr, static_cast<std::int64_t>(y.size()));
  if (fault.empty()) return "";
  return fmt::format("rows {} to {}, panels from {}{}{}: {}", c.row_begin, c.row_end, c.panel_begin,
                     c.add ? ", added" : "", c.x_rows != nullptr ? ", gathered" : "", fault);
}

// The last panels taken for a gate's and an up projection's in turn; y has `kWidth` columns then. Sums are exact, and
// e^-x, 1 + e^-x, the division and the product round as in CheckSiluMul.
std::string CheckSwiglu(const GemmSubject& s, const Product& p, void* scratch, std::int64_t rows,
                        std::int64_t panel_begin) {
  constexpr std::int64_t kWidth = (kPanels / 2 - 1) * 16 + kN % 16;
  static_assert(kPanels % 2 == 0);
  std::array<float, kRows * kLdy> y;
  std::array<double, kRows * kLdy> want;
  std::array<double, kRows* kLdy> bound = {};
  y.fill(kGuard);
  want.fill(static_cast<double>(kGuard));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = panel_begin * 8; j < kWidth; ++j) {
      const auto gate = static_cast<std::size_t>(r * kN + j / 16 * 32 + j % 16);
      const auto at = static_cast<std::size_t>(r * kLdy + j);
      want[at] = s.exact[gate] / (1 + std::exp(-s.exact[gate])) * s.exact[gate + 16];
      bound[at] = 8 * kU * std::fabs(want[at]);
    }
  }
  GemmBlock b{};
  b.x = p.x.data();
  b.ldx = kLdx;
  b.y = y.data();
  b.ldy = kLdy;
  b.m = kRows;
  b.panels = s.panels;
  b.n = kWidth;
  b.k = kK;
  b.scale_block = s.scale_block;
  b.row_end = rows;
  b.panel_begin = panel_begin;
  b.panel_end = kPanels;
  b.scale = 1;
  b.swiglu = true;
  b.scratch = scratch;
  s.gemm(b);
  const std::string fault = FirstFault(y.data(), want.data(), bound.data(), static_cast<std::int64_t>(y.size()));
  return fault.empty() ? "" : fmt::format("SwiGLU, {} rows, panels from {}: {}", rows, panel_begin, fault);
}

std::string CheckGemm(const GemmSubject& s, const Product& p, void* scratch) {
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 13}) {
    for (const bool add : {false, true}) {
      std::string fault = CheckCase(s, p, scratch, {0, rows, 0, add, -1.5F, nullptr, nullptr});
      if (!fault.empty()) return fault;
    }
  }
  // 5 and 8 have no factor in common with 13: permutations.
  std::array<std::int32_t, kRows> x_rows;
  std::array<std::int32_t, kRows> y_rows;
  for (std::int32_t r = 0; r < kRows; ++r) {
    x_rows[static_cast<std::size_t>(r)] = r * 5 % kRows;
    y_rows[static_cast<std::size_t>(r)] = (r * 8 + 1) % kRows;
  }
  for (const bool add : {false, true}) {
    std::string fault = CheckCase(s, p, scratch, {2, 12, 1, add, 1, x_rows.data(), y_rows.data()});
    if (!fault.empty()) return fault;
  }
  for (const std::int64_t rows : {1, 2, 3, 13}) {
    std::string fault = CheckSwiglu(s, p, scratch, rows, rows == 13 ? 0 : 2);
    if (!fault.empty()) return fault;
  }
  return "";
}

// Two vectors and five lanes, or five lanes alone; a guard behind.
constexpr std::size_t kLong = 37;
constexpr std::size_t kRoom = kLong + 3;
using Row = std::array<float, kRoom>;
using Exact = std::array<double, kRoom>;

Row Values(CheckValues* values, float scale) {
  Row row;
  for (float& v : row) v = values->Next() * scale;
  return row;
}

// `run` writes n elements of y, which begins as `before`. `exact` holds what they should be; `roundings` of them are
// allowed, 0 for none.
template <class Run>
std::string CheckRow(std::size_t n, Row before, Exact exact, double roundings, Run&& run) {
  Exact bound = {};
  for (std::size_t i = 0; i < n; ++i) bound[i] = roundings * kU * std::fabs(exact[i]);
  for (std::size_t i = n; i < kRoom; ++i) exact[i] = before[i] = kGuard;
  run(before.data(), static_cast<std::int64_t>(n));
  const std::string fault = FirstFault(before.data(), exact.data(), bound.data(), kRoom);
  return fault.empty() ? "" : fmt::format("{} elements: {}", n, fault);
}

// The squares' sum is exact here. The division, + eps, the root, its inverse and two products round, the first two
// halved by the root: 5, and 3 for kernels that take another way.
std::string CheckRmsNorm(const OpKernels& kernels, std::size_t n) {
  CheckValues values;
  const Row x = Values(&values, 1);
  const Row weight = Values(&values, 1);
  const float eps = 0.25F;
  double squares = 0;
  for (std::size_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double root = std::sqrt(squares / static_cast<double>(n) + static_cast<double>(eps));
  Exact exact = {};
  for (std::size_t i = 0; i < n; ++i) exact[i] = static_cast<double>(x[i]) / root * static_cast<double>(weight[i]);
  Row apart;
  apart.fill(kNan);
  std::string fault = CheckRow(n, apart, exact, 8, [&](float* y, std::int64_t count) {
    kernels.rms_norm(x.data(), weight.data(), eps, y, count);
  });
  if (!fault.empty()) return fault;
  return CheckRow(n, x, exact, 8,
                  [&](float* y, std::int64_t count) { kernels.rms_norm(y, weight.data(), eps, y, count); });
}

// e^-x is within 4 roundings (2 ulp), 1 + e^-x, the division and the product round: 7, and one for second orders.
std::string CheckSiluMul(const OpKernels& kernels, std::size_t n) {
  CheckValues values;
  const Row gate = Values(&values, 8);
  const Row up = Values(&values, 1);
  Exact exact = {};
  for (std::size_t i = 0; i < n; ++i) {
    const auto g = static_cast<double>(gate[i]);
    exact[i] = g / (1 + std::exp(-g)) * static_cast<double>(up[i]);
  }
  Row apart;
  apart.fill(kNan);
  std::string fault = CheckRow(
      n, apart, exact, 8, [&](float* y, std::int64_t count) { kernels.silu_mul(gate.data(), up.data(), y, count); });
  if (!fault.empty()) return fault;
  return CheckRow(n, gate, exact, 8, [&](float* y, std::int64_t count) { kernels.silu_mul(y, up.data(), y, count); });
}

std::string CheckAddScaled(const OpKernels& kernels, std::size_t n) {
  CheckValues values;
  const Row x = Values(&values, 1);
  const Row before = Values(&values, 1);
  Exact exact = {};
  for (std::size_t i = 0; i < n; ++i) exact[i] = static_cast<double>(before[i]) - 1.5 * static_cast<double>(x[i]);
  return CheckRow(n, before, exact, 0,
                  [&](float* y, std::int64_t count) { kernels.add_scaled(x.data(), -1.5F, y, count); });
}

template <class Check>
std::string BothLengths(const OpKernels& kernels, Check check) {
  std::string fault = check(kernels, 5);
  return fault.empty() ? check(kernels, kLong) : fault;
}

}  // namespace

std::vector<KernelCheck> CheckKernels(const OpKernels& kernels, std::byte* scratch) {
  Product product;
  Fill(&product);
  FillF8(&product);
  Buffer own;
  std::string trouble;
  if (scratch == nullptr) {
    Result<Buffer> made = Buffer::Allocate(kGemmScratch, "product scratch");
    if (made.ok()) own = std::move(made).value();
    if (!made.ok()) trouble = made.error().message;
    scratch = own.data();
  }
  const auto check = [&](const GemmSubject& subject) {
    return trouble.empty() ? CheckGemm(subject, product, scratch) : trouble;
  };
  return {{"gemm_f32", DType::kF32, check({kernels.gemm_f32, product.f32.data(), 0, product.exact})},
          {"gemm_bf16", DType::kBF16, check({kernels.gemm_bf16, product.bf16.data(), 0, product.exact})},
          {"gemm_f8", DType::kF8E4M3, check({kernels.gemm_f8, product.f8.data(), kBlock, product.exact_f8})},
          {"rms_norm", DType::kF32, BothLengths(kernels, CheckRmsNorm)},
          {"silu_mul", DType::kF32, BothLengths(kernels, CheckSiluMul)},
          {"add_scaled", DType::kF32, BothLengths(kernels, CheckAddScaled)}};
}

}  // namespace mla::ops
