// Empty where the build leaves the instruction set out.
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#define MLA_SIMD_AVX512
#include "base/simd.h"
#include "ops/kernels.h"

namespace mla::ops {
namespace {
// 24 accumulators of 32 registers; the rest hold a panel's pair and a broadcast.
constexpr int kRows = 6;
constexpr int kPanels = 4;
constexpr int kPanelsOneRow = 8;
}  // namespace
}  // namespace mla::ops

#include "ops/kernels.inl"

namespace mla::ops {

// Of the bf16 products beside this file.
void GemmBf16Avx512(const GemmBlock& block);
void GemmBf16Amx(const GemmBlock& block);
void PackInputsAmx(const GemmBlock& block);

extern const OpKernels kOpsAvx512;
extern const OpKernels kOpsAvx512Bf16;
extern const OpKernels kOpsAmx;
const OpKernels kOpsAvx512 = {"avx512", false,   96,      Gemm<PanelsF32>, Gemm<PanelsBf16>,
                              nullptr,  RmsNorm, SiluMul, AddScaled};
const OpKernels kOpsAvx512Bf16 = {"avx512bf16", true,    96,      Gemm<PanelsF32>, GemmBf16Avx512,
                                  nullptr,      RmsNorm, SiluMul, AddScaled};
const OpKernels kOpsAmx = {"amx", true, 256, Gemm<PanelsF32>, GemmBf16Amx, PackInputsAmx, RmsNorm, SiluMul, AddScaled};

}  // namespace mla::ops

#endif
