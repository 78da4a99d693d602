// Weight matrices in the layout that products read: sixteen outputs in lanes, k in order.
//
// A matrix W [n, k] (n outputs, k inputs) is cut into panels of 16 outputs. Panel p holds, for each k in turn, W of
// outputs 16p .. 16p+15; outputs past n are zero.
//   kF32:  [ceil(n/16)][k][16] floats
//   kBF16: [ceil(n/16)][ceil(k/2)][16][2] bf16: pairs of neighbouring k side by side, as the dot-product instructions
//          want them; an odd k is filled with zero
//   kF8:   e4m3 codes as the checkpoint has them. For each panel, for each block of k (scale_block of them, fewer in
//   the
//          last), sixteen fp32 scales, one a lane, then codes [ceil(block/2)][16][2] in the order of kBF16. The weight
//          is what kBF16 would hold: code times scale, rounded to fp32, then to bf16, to nearest even.
// The layout depends on the format alone, never on the instruction set, so its size can be planned anywhere.
//
// A gate and an up projection [I, k] that are one product (GemmProblem::swiglu) are one matrix of SwigluRows(I)
// outputs: panel 2p holds gate's outputs 16p .. 16p+15, panel 2p + 1 up's.
#ifndef MLA_OPS_PACKED_H_
#define MLA_OPS_PACKED_H_

#include <cstddef>
#include <cstdint>

#include "mla/dtypes.h"

namespace mla::ops {

inline constexpr std::int64_t kPanel = 16;

enum class PackedFormat : std::uint8_t { kF32, kBF16, kF8 };

constexpr std::int64_t Panels(std::int64_t n) { return (n + kPanel - 1) / kPanel; }

// Whether blocks of so many columns can be kept as kF8: no pair of k has two scales, and scales take a quarter of the
// codes' bytes at most.
constexpr bool CanKeepF8(std::int64_t block_columns) { return block_columns % 2 == 0 && block_columns >= 16; }

// scale_block: of kF8 alone.
constexpr std::int64_t PanelBytes(PackedFormat format, std::int64_t k, std::int64_t scale_block = 0) {
  const std::int64_t pairs = (k + 1) / 2;
  switch (format) {
    case PackedFormat::kF32: return k * kPanel * 4;
    case PackedFormat::kBF16: return pairs * kPanel * 4;
    case PackedFormat::kF8: return (k + scale_block - 1) / scale_block * kPanel * 4 + pairs * kPanel * 2;
  }
  return 0;
}

// Bytes of a packed [n, k].
constexpr std::int64_t PackedBytes(PackedFormat format, std::int64_t n, std::int64_t k, std::int64_t scale_block = 0) {
  return Panels(n) * PanelBytes(format, k, scale_block);
}

// Outputs of a gate and an up projection of `width` each in one matrix, those past `width` counted.
constexpr std::int64_t SwigluRows(std::int64_t width) { return 2 * kPanel * Panels(width); }

// A packed matrix in memory that someone else owns.
struct PackedMatrix {
  PackedFormat format = PackedFormat::kF32;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::byte* data = nullptr;     // PackedBytes(format, n, k, scale_block), 64-byte aligned
  std::int64_t scale_block = 0;  // kF8: columns that share a scale; CanKeepF8

  std::int64_t panel_bytes() const { return PanelBytes(format, k, scale_block); }
  std::int64_t bytes() const { return PackedBytes(format, n, k, scale_block); }
};

// Scales of a source in fp8: that of its element (i, j) is scale
//   (first_row + i) / block_rows * row_stride + (first_column + j) / block_columns * column_stride
// so that a part of a matrix keeps the whole one's blocks: a head may begin within a block.
struct ScaleGrid {
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;  // null: none
  std::int64_t block_rows = 1;
  std::int64_t block_columns = 1;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
  std::int64_t first_row = 0;
  std::int64_t first_column = 0;
};

// Where elements of W [n, k] lie: element (i, j) at data + (i * row_stride + j * column_stride) * width; the data may
// be unaligned. Strides are in elements. kF8E4M3 needs scales, other dtypes have none.
struct MatrixSource {
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;
  ScaleGrid scales = {};

  // A dense, row-major matrix of so many columns; scales.data may be null.
  static MatrixSource Dense(DType dtype, const std::byte* data, std::int64_t columns, const BlockScales& scales);
  // The same elements from row `row` on.
  MatrixSource FromRow(std::int64_t row) const;
  // W^T.
  MatrixSource Transposed() const;
};

// Writes source rows [0, rows) to rows [first_row, first_row + rows) of `out`, touching panels [panel_begin, panel_end)
// alone, so that workers can share a matrix and two sources can be stacked in one ([q_a; kv_a_proj_with_mqa]). What
// lies past the rows written is left as it is: `out` starts zeroed. `panel_step` apart are the panels of `out` that are
// `out`'s own: 2 for one of the two projections of a SwiGLU, whose first panel out.data then is. F32 and F16 to BF16
// round to nearest even; fp8 is its value times its scale, a product rounded to float, then as F32; the rest is exact.
// kF8 takes fp8 alone, whose blocks are out.scale_block columns from the first on: codes are copied.
void PackPanels(const MatrixSource& source, std::int64_t first_row, std::int64_t rows, const PackedMatrix& out,
                std::int64_t panel_begin, std::int64_t panel_end, std::int64_t panel_step = 1);

// Elements [0, columns) of a row, converted in the same way.
void ReadRow(const MatrixSource& source, std::int64_t row, std::int64_t columns, float* out);
void ReadRow(const MatrixSource& source, std::int64_t row, std::int64_t columns, Bf16Bits* out);

}  // namespace mla::ops

#endif  // MLA_OPS_PACKED_H_
