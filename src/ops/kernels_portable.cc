#define MLA_SIMD_PORTABLE
#define MLA_DECODE_F8 DecodeF8Portable
#include "base/simd.h"
#include "ops/f8_decode.h"
#include "ops/kernels.h"

namespace mla::ops {
namespace {
// A V16 is four SSE registers here: 8 accumulators of 16.
constexpr int kRows = 2;
constexpr int kPanels = 1;
constexpr int kPanelsOneRow = 2;
}  // namespace
}  // namespace mla::ops

#include "ops/kernels.inl"
#include "ops/kernels_f8.inl"

namespace mla::ops {

extern const OpKernels kOpsPortable;
const OpKernels kOpsPortable = {"portable", false,   96,      Gemm<PanelsF32>, Gemm<PanelsBf16>,
                                GemmF8,     nullptr, RmsNorm, SiluMul,         AddScaled};

}  // namespace mla::ops
