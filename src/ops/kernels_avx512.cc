// Empty where the build leaves the instruction set out.
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#define MLA_SIMD_AVX512
#define MLA_F8_TABLE
#define MLA_DECODE_F8 DecodeF8Avx512
#include "base/simd.h"
#include "ops/f8_decode.h"
#include "ops/kernels.h"

namespace mla::ops {
namespace {
constexpr int kPanelsOneRow = 8;
// 24 of 32 registers are sums.
constexpr int kTileRows = 12;
constexpr int kTilePanels = 2;
constexpr int64_t kBlockK = 192;  // two panels' part is 24 KiB
}  // namespace
}  // namespace mla::ops

#include "ops/f8_table_avx512.inl"

namespace mla::ops {
namespace {

constexpr int kPanelsRowF8 = 4;  // each takes two registers of tables
constexpr int kStepPairsF8 = 2;

MLA_INLINE void StepF8(const F8Table& table, const char* codes, simd::avx512::V16 (&w)[4]) {
  __m512i pairs[2];
  Look(table, _mm512_loadu_si512(codes), &pairs[0], &pairs[1]);
  for (int i = 0; i < 2; ++i) {
    w[2 * i].v = _mm512_castsi512_ps(_mm512_slli_epi32(pairs[i], 16));
    w[2 * i + 1].v = _mm512_castsi512_ps(_mm512_and_si512(pairs[i], _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
  }
}

}  // namespace
}  // namespace mla::ops

#include "ops/kernels_f8.inl"

namespace mla::ops {

// Of the bf16 products beside this file.
void GemmBf16Avx512(const GemmBlock& block);
void GemmF8Avx512(const GemmBlock& block);
void PackInputsAvx512(const GemmBlock& block);
void GemmBf16Amx(const GemmBlock& block);
void GemmF8FewAmx(const GemmBlock& block);
void PackInputsAmx(const GemmBlock& block);

extern const OpKernels kOpsAvx512;
extern const OpKernels kOpsAvx512Bf16;
extern const OpKernels kOpsAmx;
const OpKernels kOpsAvx512 = {"avx512", false, 96, 0, GemmF32, GemmBf16, GemmF8, nullptr, RmsNorm, SiluMul, AddScaled};
const OpKernels kOpsAvx512Bf16 = {"avx512bf16",     true,    96,      32,       GemmF32, GemmBf16Avx512, GemmF8Avx512,
                                  PackInputsAvx512, RmsNorm, SiluMul, AddScaled};
const OpKernels kOpsAmx = {"amx",        true,          512,     4,       GemmF32,  GemmBf16Amx,
                           GemmF8FewAmx, PackInputsAmx, RmsNorm, SiluMul, AddScaled};

}  // namespace mla::ops

#endif
