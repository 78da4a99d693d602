#define MLA_SIMD_PORTABLE
#include "base/simd.h"
#include "base/simd_probe.h"
#include "base/simd_probe.inl"

namespace mla::testing {

const SimdProbe kProbePortable = MakeProbe("portable", false);

}  // namespace mla::testing
