// Empty where the build leaves the instruction set out.
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#define MLA_SIMD_AVX2
#include "attention/kernels.h"
#include "base/simd.h"

namespace mla::attention {
namespace {
// A V16 is two registers here: 12 accumulators of 16.
constexpr int kRows = 3;
constexpr int kScoreVectors = 2;
constexpr int kValueVectors = 2;
}  // namespace
}  // namespace mla::attention

#include "attention/kernels.inl"

namespace mla::attention {

extern const AttentionKernels kAttentionAvx2;
const AttentionKernels kAttentionAvx2 = {"avx2", nullptr, AttendTile, Fold, Normalise, Widen, TransposeTile};

}  // namespace mla::attention

#endif
