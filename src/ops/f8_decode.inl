// The walk over a panel's blocks. Included by one f8_decode_ISA.cc for each instruction set, which defines
//   DecodeBlock(const char* scales, const char* codes, int64_t pairs, uint16_t* out, int64_t ahead)
// for pairs of one block: scales [16] floats, codes and out [pairs][16][2]. With MLA_F8_TABLE it has the tables of
// ops/f8_table_ISA.inl and defines instead
//   DecodeOneScale(const F8Table& table, codes, pairs, out, ahead) and DecodeEachScale(scales, codes, pairs, out).

namespace mla::ops {
namespace {

#ifdef MLA_F8_TABLE
void DecodeBlock(const char* scales, const char* codes, int64_t pairs, uint16_t* out, int64_t ahead) {
  if (HasTable(scales)) {
    DecodeOneScale(MakeTable(scales), codes, pairs, out, ahead);
  } else {
    DecodeEachScale(scales, codes, pairs, out);
  }
}
#endif

void DecodePairs(const void* panel, int64_t scale_block, int64_t pair, int64_t pairs, uint16_t* out, int64_t ahead) {
  constexpr int64_t kScaleBytes = 64;
  constexpr int64_t kPairBytes = 32;
  const int64_t block_pairs = scale_block / 2;
  // The matrix may have fewer columns than a block: no block past the first is looked at then.
  const char* block = static_cast<const char*>(panel) + pair / block_pairs * (kScaleBytes + block_pairs * kPairBytes);
  int64_t first = pair % block_pairs;
  while (pairs > 0) {
    const int64_t count = pairs < block_pairs - first ? pairs : block_pairs - first;
    DecodeBlock(block, block + kScaleBytes + first * kPairBytes, count, out, ahead);
    block += kScaleBytes + block_pairs * kPairBytes;
    first = 0;
    pairs -= count;
    out += count * kPairBytes;
  }
}

}  // namespace
}  // namespace mla::ops
