#define MLA_SIMD_PORTABLE
#define MLA_DECODE_F8 DecodeF8Portable
#include "base/simd.h"
#include "ops/f8_decode.h"
#include "ops/kernels.h"

namespace mla::ops {
namespace {
constexpr int kPanelsOneRow = 2;
// A V16 is four SSE registers here: 8 of 16 are sums.
constexpr int kTileRows = 2;
constexpr int kTilePanels = 1;
constexpr int64_t kBlockK = 256;  // a panel's part is 16 KiB
}  // namespace
}  // namespace mla::ops

#include "ops/kernels_f8.inl"

namespace mla::ops {

extern const OpKernels kOpsPortable;
const OpKernels kOpsPortable = {"portable", false,   96,      0,       GemmF32,  GemmBf16,
                                GemmF8,     nullptr, RmsNorm, SiluMul, AddScaled};

}  // namespace mla::ops
