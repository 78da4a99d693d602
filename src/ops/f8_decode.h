// Weights in fp8 as bf16, for products. Plain types alone: this header is compiled under every instruction set's flags.
#ifndef MLA_OPS_F8_DECODE_H_
#define MLA_OPS_F8_DECODE_H_

#include <stdint.h>

namespace mla::ops {

// What `ahead` is best: two blocks of 128 columns.
constexpr int64_t kAheadF8 = 2 * (64 + 64 * 32);

// Pairs [pair, pair + pairs) of a panel in kF8 (ops/packed.h), as kBF16 holds them: to out [pairs][16][2], 64-byte
// aligned. The same bits by each; no code is NaN. A panel whose lanes have one scale is fastest. Asks for memory
// `ahead` bytes beyond what it reads: what follows there may not be the matrix.
void DecodeF8Portable(const void* panel, int64_t scale_block, int64_t pair, int64_t pairs, uint16_t* out,
                      int64_t ahead);
void DecodeF8Avx2(const void* panel, int64_t scale_block, int64_t pair, int64_t pairs, uint16_t* out, int64_t ahead);
void DecodeF8Avx512(const void* panel, int64_t scale_block, int64_t pair, int64_t pairs, uint16_t* out, int64_t ahead);

}  // namespace mla::ops

#endif  // MLA_OPS_F8_DECODE_H_
