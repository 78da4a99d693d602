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

extern const Bf16Kernels kBf16Avx512;
extern const Bf16Kernels kBf16Amx;

extern const AttentionKernels kAttentionAvx512;
const AttentionKernels kAttentionAvx512 = {"avx512", nullptr, AttendTile, Fold, Normalise, Widen, TransposeTile};
extern const AttentionKernels kAttentionAvx512Bf16;
const AttentionKernels kAttentionAvx512Bf16 = {"avx512bf16", &kBf16Avx512, AttendTile,   Fold,
                                               Normalise,    Widen,        TransposeTile};
extern const AttentionKernels kAttentionAmx;
const AttentionKernels kAttentionAmx = {"amx", &kBf16Amx, AttendTile, Fold, Normalise, Widen, TransposeTile};

}  // namespace mla::attention

#endif
