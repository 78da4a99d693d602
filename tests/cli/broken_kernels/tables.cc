// The program's vector tables, broken: linked into a program of its own in their place (the linker's --wrap). The real
// program has no way to be told to.
#include "attention/kernels.h"
#include "ops/kernels.h"

#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)

namespace {

using mla::attention::AttentionKernels;
using mla::attention::TileBlock;
using mla::ops::GemmBlock;
using mla::ops::OpKernels;

void WithoutTheLastHead(const TileBlock& block);
void WithoutAdding(const GemmBlock& block);

AttentionKernels Broken(AttentionKernels table) {
  table.attend_tile = WithoutTheLastHead;
  return table;
}

OpKernels Broken(OpKernels table) {
  table.gemm_bf16 = WithoutAdding;
  return table;
}

}  // namespace

// The linker's names: of mla::attention's kAttentionAvx512, kAttentionAvx512Bf16 and kAttentionAmx, and of
// mla::ops::kOpsAvx2, mangled.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {
extern const AttentionKernels __real__ZN3mla9attention16kAttentionAvx512E;
extern const AttentionKernels __real__ZN3mla9attention20kAttentionAvx512Bf16E;
extern const AttentionKernels __real__ZN3mla9attention13kAttentionAmxE;
extern const OpKernels __real__ZN3mla3ops8kOpsAvx2E;
extern const AttentionKernels __wrap__ZN3mla9attention16kAttentionAvx512E;
extern const AttentionKernels __wrap__ZN3mla9attention20kAttentionAvx512Bf16E;
extern const AttentionKernels __wrap__ZN3mla9attention13kAttentionAmxE;
extern const OpKernels __wrap__ZN3mla3ops8kOpsAvx2E;
const AttentionKernels __wrap__ZN3mla9attention16kAttentionAvx512E =
    Broken(__real__ZN3mla9attention16kAttentionAvx512E);
const AttentionKernels __wrap__ZN3mla9attention20kAttentionAvx512Bf16E =
    Broken(__real__ZN3mla9attention20kAttentionAvx512Bf16E);
const AttentionKernels __wrap__ZN3mla9attention13kAttentionAmxE = Broken(__real__ZN3mla9attention13kAttentionAmxE);
const OpKernels __wrap__ZN3mla3ops8kOpsAvx2E = Broken(__real__ZN3mla3ops8kOpsAvx2E);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace {

void WithoutTheLastHead(const TileBlock& block) {
  TileBlock fewer = block;
  --fewer.rows;
  __real__ZN3mla9attention16kAttentionAvx512E.attend_tile(fewer);
}

void WithoutAdding(const GemmBlock& block) {
  GemmBlock changed = block;
  changed.add = false;
  __real__ZN3mla3ops8kOpsAvx2E.gemm_bf16(changed);
}

}  // namespace

#endif
