// SiLU over sixteen lanes, for the kernels that round alike: of rows, and of sums before they are stored. Included
// after base/simd.h, under an instruction set's flags.
#ifndef MLA_OPS_SILU_H_
#define MLA_OPS_SILU_H_

namespace mla::ops {
namespace {

// x / (1 + e^-x).
MLA_INLINE simd::MLA_SIMD_NS::V16 Silu(simd::MLA_SIMD_NS::V16 x) {
  using namespace simd::MLA_SIMD_NS;  // NOLINT(google-build-using-namespace): the vocabulary of kernels
  // The clamp keeps e^-x finite; past -88 |silu| is below 1e-36 and counts as 0 (x over the clamped e would grow
  // again).
  const V16 e = Exp(Min(Set1(88.0F), Sub(Zero(), x)));
  return ZeroWhereLess(x, Set1(-88.0F), Div(x, Add(Set1(1.0F), e)));
}

}  // namespace
}  // namespace mla::ops

#endif  // MLA_OPS_SILU_H_
