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

extern const OpKernels kOpsAvx512;
const OpKernels kOpsAvx512 = {"avx512", Gemm<PanelsF32>, Gemm<PanelsBf16>, RmsNorm, SiluMul, AddScaled};

}  // namespace mla::ops

#endif
