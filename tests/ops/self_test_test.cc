// The start-up self-test of ops tables: every table of this machine passes, and each planted fault is found, by the
// kernel that has it.
#include "ops/self_test.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ops/ops_testing.h"

namespace mla {
namespace {

using ops::GemmBlock;
using ops::kOpsPortable;
using ops::OpKernels;

TEST(OpsSelfTest, EveryTableOfThisMachinePasses) {
  for (const Isa isa : testing::MachineIsas()) {
    const std::vector<KernelCheck> checks = ops::CheckKernels(ops::KernelsFor(isa));
    EXPECT_EQ(checks.size(), 6U);
    for (const KernelCheck& check : checks) EXPECT_EQ(check.fault, "") << IsaName(isa) << " " << check.kernel;
  }
}

// Only `kernel` fails; returns what is said of it.
std::string OnlyFault(const OpKernels& table, const std::string& kernel) {
  std::string fault;
  for (const KernelCheck& check : ops::CheckKernels(table)) {
    EXPECT_EQ(check.fault.empty(), check.kernel != kernel) << check.kernel << ": " << check.fault;
    if (check.kernel == kernel) fault = check.fault;
  }
  return fault;
}

// Each format's products, wrapped by a change of the block that is asked for.
template <class Change>
void ExpectGemmFault(Change /*change*/, const std::string& what) {
  OpKernels table = kOpsPortable;
  table.gemm_f32 = [](const GemmBlock& block) {
    GemmBlock changed = block;
    Change()(&changed);
    kOpsPortable.gemm_f32(changed);
  };
  EXPECT_NE(OnlyFault(table, "gemm_f32"), "") << what;
  table = kOpsPortable;
  table.gemm_bf16 = [](const GemmBlock& block) {
    GemmBlock changed = block;
    Change()(&changed);
    kOpsPortable.gemm_bf16(changed);
  };
  EXPECT_NE(OnlyFault(table, "gemm_bf16"), "") << what;
  table = kOpsPortable;
  table.gemm_f8 = [](const GemmBlock& block) {
    GemmBlock changed = block;
    Change()(&changed);
    kOpsPortable.gemm_f8(changed);
  };
  EXPECT_NE(OnlyFault(table, "gemm_f8"), "") << what;
}

TEST(OpsSelfTest, FindsWrongProducts) {
  ExpectGemmFault([](GemmBlock* b) { b->add = false; }, "add is ignored");
  ExpectGemmFault([](GemmBlock* b) { b->add = true; }, "y is added to where it was to be overwritten");
  ExpectGemmFault([](GemmBlock* b) { b->scale = 1; }, "the scale is ignored");
  ExpectGemmFault([](GemmBlock* b) { --b->row_end; }, "the last row is left out");
  ExpectGemmFault([](GemmBlock* b) { b->row_begin = 0; }, "rows before the first are written");
  ExpectGemmFault([](GemmBlock* b) { --b->panel_end; }, "the last panel is left out");
  ExpectGemmFault([](GemmBlock* b) { b->panel_begin = 0; }, "panels before the first are written");
  ExpectGemmFault([](GemmBlock* b) { b->n = b->n / 16 * 16; }, "the tail lanes are lost");
  ExpectGemmFault([](GemmBlock* b) { b->n = (b->n + 15) / 16 * 16; }, "lanes past n are written");
  ExpectGemmFault([](GemmBlock* b) { b->x_rows = nullptr; }, "rows of x are not gathered");
  ExpectGemmFault([](GemmBlock* b) { b->y_rows = nullptr; }, "rows of y are not scattered");
  ExpectGemmFault([](GemmBlock* b) { b->swiglu = false; }, "sums are stored where silu(gate) * up was wanted");
}

// Faults that a change of the block can't make: plain loops with the fault.
float Element(const GemmBlock& b, std::int64_t j, std::int64_t k, bool bf16, bool swap_pair) {
  if (!bf16) return static_cast<const float*>(b.panels)[(j / 16 * b.k + k) * 16 + j % 16];
  const std::int64_t lane = swap_pair ? 1 - k % 2 : k % 2;
  const std::int64_t at = ((j / 16 * ((b.k + 1) / 2) + k / 2) * 16 + j % 16) * 2 + lane;
  return FloatFromBf16(static_cast<const std::uint16_t*>(b.panels)[at]);
}

// element(j, k): the weight of output j.
template <class ElementOf>
void PlainSwiglu(const GemmBlock& b, const ElementOf& element, bool up_is_gate) {
  for (std::int64_t r = b.row_begin; r < b.row_end; ++r) {
    for (std::int64_t j = b.panel_begin * 8; j < std::min(b.n, b.panel_end * 8); ++j) {
      std::array<float, 2> sum = {};
      for (std::int64_t k = 0; k < b.k; ++k) {
        for (std::int64_t i = 0; i < 2; ++i) {
          sum[static_cast<std::size_t>(i)] += b.x[r * b.ldx + k] * element(j / 16 * 32 + i * 16 + j % 16, k);
        }
      }
      const float gate = sum[up_is_gate ? 1 : 0];
      b.y[r * b.ldy + j] = gate / (1 + std::exp(-gate)) * sum[up_is_gate ? 0 : 1];
    }
  }
}

template <bool kBf16, bool kSwapPair, bool kDropOddK, bool kScaleFirst, bool kRoundSums, bool kUpIsGate = false>
void PlainGemm(const GemmBlock& b) {
  if (b.swiglu) {
    return PlainSwiglu(
        b, [&](std::int64_t j, std::int64_t k) { return Element(b, j, k, kBf16, false); }, kUpIsGate);
  }
  for (std::int64_t r = b.row_begin; r < b.row_end; ++r) {
    const float* x = b.x + (b.x_rows != nullptr ? b.x_rows[r] : r) * b.ldx;
    float* y = b.y + (b.y_rows != nullptr ? b.y_rows[r] : r) * b.ldy;
    for (std::int64_t j = b.panel_begin * 16; j < std::min(b.n, b.panel_end * 16); ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < (kDropOddK ? b.k / 2 * 2 : b.k); ++k) {
        sum += x[k] * Element(b, j, k, kBf16, kSwapPair);
        if (kRoundSums) sum = FloatFromBf16(Bf16FromFloat(sum));
      }
      if (kScaleFirst) {
        y[j] = ((b.add ? y[j] : 0.0F) + sum) * b.scale;
      } else {
        y[j] = (b.add ? y[j] : 0.0F) + sum * b.scale;
      }
    }
  }
}

TEST(OpsSelfTest, FindsAWrongPairOrderAndALostOddK) {
  OpKernels table = kOpsPortable;
  table.gemm_f32 = PlainGemm<false, false, false, false, false>;
  table.gemm_bf16 = PlainGemm<true, false, false, false, false>;
  for (const KernelCheck& check : ops::CheckKernels(table)) EXPECT_EQ(check.fault, "") << "the plain loops themselves";
  table.gemm_bf16 = PlainGemm<true, true, false, false, false>;
  EXPECT_NE(OnlyFault(table, "gemm_bf16"), "");
  table.gemm_bf16 = PlainGemm<true, false, true, false, false>;
  EXPECT_NE(OnlyFault(table, "gemm_bf16"), "");
  table.gemm_bf16 = PlainGemm<true, false, false, true, false>;
  EXPECT_NE(OnlyFault(table, "gemm_bf16"), "") << "scales what y held";
  table.gemm_bf16 = PlainGemm<true, false, false, false, true>;
  EXPECT_NE(OnlyFault(table, "gemm_bf16"), "") << "keeps its sums in bf16";
  table.gemm_bf16 = PlainGemm<true, false, false, false, false, true>;
  EXPECT_NE(OnlyFault(table, "gemm_bf16"), "") << "takes up for gate";
}

// Decodes as it should, but for the fault; then plain loops.
enum class Fp8Fault { kNone, kOneScale, kFirstBlock, kSwapPair, kTruncates, kFlushes };
template <Fp8Fault kFault>
float ElementF8(const GemmBlock& b, std::int64_t j, std::int64_t k) {
  const std::int64_t panel_bytes = (b.k + b.scale_block - 1) / b.scale_block * 64 + (b.k + 1) / 2 * 32;
  const auto* panel = static_cast<const char*>(b.panels) + j / 16 * panel_bytes;
  const auto* block = panel + k / b.scale_block * (64 + b.scale_block * 16);
  const std::int64_t half = kFault == Fp8Fault::kSwapPair ? 1 - k % 2 : k % 2;
  const auto code = static_cast<std::uint8_t>(block[64 + (k % b.scale_block / 2 * 16 + j % 16) * 2 + half]);
  const char* scales = kFault == Fp8Fault::kFirstBlock ? panel : block;
  float scale = 0;
  std::memcpy(&scale, scales + (kFault == Fp8Fault::kOneScale ? 0 : j % 16 * 4), 4);
  const float w = kFault == Fp8Fault::kFlushes && (code & 0x78U) == 0 ? 0 : FloatFromE4M3(code) * scale;
  const auto cut = static_cast<Bf16Bits>(std::bit_cast<std::uint32_t>(w) >> 16);
  return FloatFromBf16(kFault == Fp8Fault::kTruncates ? cut : Bf16FromFloat(w));
}

template <Fp8Fault kFault>
void PlainF8(const GemmBlock& b) {
  if (b.swiglu)
    return PlainSwiglu(
        b, [&](std::int64_t j, std::int64_t k) { return ElementF8<kFault>(b, j, k); }, false);
  for (std::int64_t r = b.row_begin; r < b.row_end; ++r) {
    const float* x = b.x + (b.x_rows != nullptr ? b.x_rows[r] : r) * b.ldx;
    float* y = b.y + (b.y_rows != nullptr ? b.y_rows[r] : r) * b.ldy;
    for (std::int64_t j = b.panel_begin * 16; j < std::min(b.n, b.panel_end * 16); ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < b.k; ++k) sum += x[k] * ElementF8<kFault>(b, j, k);
      y[j] = (b.add ? y[j] : 0.0F) + sum * b.scale;
    }
  }
}

TEST(OpsSelfTest, FindsWrongFp8) {
  OpKernels table = kOpsPortable;
  table.gemm_f8 = PlainF8<Fp8Fault::kNone>;
  for (const KernelCheck& check : ops::CheckKernels(table)) EXPECT_EQ(check.fault, "") << "the plain loops themselves";
  table.gemm_f8 = PlainF8<Fp8Fault::kOneScale>;
  EXPECT_NE(OnlyFault(table, "gemm_f8"), "") << "a panel's lanes share the first scale";
  table.gemm_f8 = PlainF8<Fp8Fault::kFirstBlock>;
  EXPECT_NE(OnlyFault(table, "gemm_f8"), "") << "all blocks share the first one's scales";
  table.gemm_f8 = PlainF8<Fp8Fault::kSwapPair>;
  EXPECT_NE(OnlyFault(table, "gemm_f8"), "") << "pairs are turned";
  table.gemm_f8 = PlainF8<Fp8Fault::kTruncates>;
  EXPECT_NE(OnlyFault(table, "gemm_f8"), "") << "weights are cut off to bf16";
  table.gemm_f8 = PlainF8<Fp8Fault::kFlushes>;
  EXPECT_NE(OnlyFault(table, "gemm_f8"), "") << "denormal codes are lost";
}

TEST(OpsSelfTest, FindsWrongRows) {
  OpKernels table = kOpsPortable;
  table.rms_norm = [](const float* x, const float* weight, float /*eps*/, float* y, int64_t n) {
    kOpsPortable.rms_norm(x, weight, 0, y, n);
  };
  EXPECT_NE(OnlyFault(table, "rms_norm"), "") << "eps is left out";
  table.rms_norm = [](const float* x, const float* weight, float eps, float* y, int64_t n) {
    kOpsPortable.rms_norm(x, weight, eps, y, n / 16 * 16);
  };
  EXPECT_NE(OnlyFault(table, "rms_norm"), "") << "the tail is lost";
  table = kOpsPortable;
  table.silu_mul = [](const float* gate, const float* /*up*/, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = gate[i] / (1 + std::exp(-gate[i]));
  };
  EXPECT_NE(OnlyFault(table, "silu_mul"), "") << "nothing is multiplied";
  table.silu_mul = [](const float* gate, const float* up, float* y, int64_t n) {
    kOpsPortable.silu_mul(gate, up, y, n / 16 * 16);
  };
  EXPECT_NE(OnlyFault(table, "silu_mul"), "") << "the tail is lost";
  table = kOpsPortable;
  table.add_scaled = [](const float* x, float /*scale*/, float* y, int64_t n) { kOpsPortable.add_scaled(x, 1, y, n); };
  EXPECT_NE(OnlyFault(table, "add_scaled"), "") << "the scale is ignored";
  table.add_scaled = [](const float* x, float scale, float* y, int64_t n) {
    kOpsPortable.add_scaled(x, scale, y, n + 1);
  };
  EXPECT_NE(OnlyFault(table, "add_scaled"), "") << "lanes past the end are written";
}

// What a person reads: the place, what was found, what was expected.
TEST(OpsSelfTest, SaysWhatWasWrong) {
  OpKernels table = kOpsPortable;
  table.add_scaled = [](const float* /*x*/, float /*scale*/, float* /*y*/, int64_t /*n*/) {};
  const std::string fault = OnlyFault(table, "add_scaled");
  EXPECT_EQ(fault.rfind("5 elements: element 0 is ", 0), 0U) << fault;
  EXPECT_NE(fault.find(", expected "), std::string::npos) << fault;
}

}  // namespace
}  // namespace mla
