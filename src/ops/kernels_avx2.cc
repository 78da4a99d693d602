// Empty where the build leaves the instruction set out.
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#define MLA_SIMD_AVX2
#include "base/simd.h"
#include "ops/kernels.h"

namespace mla::ops {
namespace {
// A V16 is two registers here: 12 accumulators of 16.
constexpr int kRows = 3;
constexpr int kPanels = 2;
constexpr int kPanelsOneRow = 4;
}  // namespace
}  // namespace mla::ops

#include "ops/kernels.inl"

namespace mla::ops {

extern const OpKernels kOpsAvx2;
const OpKernels kOpsAvx2 = {"avx2", false, 96, Gemm<PanelsF32>, Gemm<PanelsBf16>, nullptr, RmsNorm, SiluMul, AddScaled};

}  // namespace mla::ops

#endif
