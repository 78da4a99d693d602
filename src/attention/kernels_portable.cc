#define MLA_SIMD_PORTABLE
#include "attention/kernels.h"
#include "base/simd.h"

namespace mla::attention {
namespace {
// A V16 is four SSE registers here: 8 accumulators of 16.
constexpr int kRows = 2;
constexpr int kScoreVectors = 1;
constexpr int kValueVectors = 1;
}  // namespace
}  // namespace mla::attention

#include "attention/kernels.inl"

namespace mla::attention {

extern const AttentionKernels kAttentionPortable;
const AttentionKernels kAttentionPortable = {"portable", nullptr, AttendTile, Fold, Normalise, Widen, TransposeTile};

}  // namespace mla::attention
