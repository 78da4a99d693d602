// Empty where the build leaves the instruction set out.
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#define MLA_SIMD_AVX512
#include "base/simd.h"
#include "base/simd_probe.h"
#include "base/simd_probe.inl"

namespace mla::testing {

const SimdProbe kProbeAvx512 = MakeProbe("avx512", true);

}  // namespace mla::testing

#endif
