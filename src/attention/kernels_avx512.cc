// Empty where the build leaves the instruction set out.
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#define MLA_SIMD_AVX512
#include "attention/kernels.h"
#include "base/simd.h"

namespace mla::attention {
namespace {
// 24 accumulators of 32 registers.
constexpr int kRows = 6;
constexpr int kScoreVectors = 4;
constexpr int kValueVectors = 4;
}  // namespace
}  // namespace mla::attention

#include "attention/kernels.inl"

namespace mla::attention {

extern const AttentionKernels kAttentionAvx512;
const AttentionKernels kAttentionAvx512 = {"avx512", AttendTile, Fold, Normalise, Widen, TransposeTile};

}  // namespace mla::attention

#endif
