// Empty where the build leaves the instruction set out.
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#define MLA_SIMD_AVX2
#define MLA_F8_TABLE
#define MLA_DECODE_F8 DecodeF8Avx2
#include "base/simd.h"
#include "ops/f8_decode.h"
#include "ops/kernels.h"

namespace mla::ops {
namespace {
constexpr int kPanelsOneRow = 4;
// A V16 is two registers here: 12 of 16 are sums, the others a panel's two and a broadcast.
constexpr int kTileRows = 6;
constexpr int kTilePanels = 1;
constexpr int64_t kBlockK = 256;  // a panel's part is 16 KiB
}  // namespace
}  // namespace mla::ops

#include "ops/f8_table_avx2.inl"

namespace mla::ops {
namespace {

constexpr int kPanelsRowF8 = 2;  // each takes two registers of tables
constexpr int kStepPairsF8 = 1;

MLA_INLINE void StepF8(const F8Table& table, const char* codes, simd::avx2::V16 (&w)[2]) {
  __m256i a;
  __m256i b;
  Look(table, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)), &a, &b);
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
  w[0].a = _mm256_castsi256_ps(_mm256_slli_epi32(a, 16));
  w[0].b = _mm256_castsi256_ps(_mm256_slli_epi32(b, 16));
  w[1].a = _mm256_castsi256_ps(_mm256_and_si256(a, mask));
  w[1].b = _mm256_castsi256_ps(_mm256_and_si256(b, mask));
}

}  // namespace
}  // namespace mla::ops

#include "ops/kernels_f8.inl"

namespace mla::ops {

extern const OpKernels kOpsAvx2;
const OpKernels kOpsAvx2 = {"avx2", false, 96, 0, GemmF32, GemmBf16, GemmF8, nullptr, RmsNorm, SiluMul, AddScaled};

}  // namespace mla::ops

#endif
