#include "ops/packed.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/fp8.h"

namespace mla::ops {
namespace {

constexpr std::array<float, 256> kE4M3Values = [] {
  std::array<float, 256> values{};
  for (std::size_t code = 0; code < values.size(); ++code) {
    values[code] = FloatFromE4M3(static_cast<std::uint8_t>(code));
  }
  return values;
}();

template <class T>
T ReadAt(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

// A float as it is kept.
template <class Kept>
Kept Keep(float value) {
  if constexpr (sizeof(Kept) == 4) return value;
  if constexpr (sizeof(Kept) == 2) return Bf16FromFloat(value);
}

// `count` stored elements, `stride` apart, to out. The loop over neighbours is apart from the other, since compilers
// turn it into vector code.
template <class Stored, class Kept, class Convert>
void ConvertRun(const std::byte* from, std::int64_t stride, std::int64_t count, Kept* out, Convert convert) {
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(Stored));
  if (stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = convert(ReadAt<Stored>(from + i * kWidth));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) out[i] = convert(ReadAt<Stored>(from + i * stride * kWidth));
}

// Fp8, one run for each block that the elements pass.
template <class Kept>
void ConvertFp8(const MatrixSource& source, const std::byte* from, std::int64_t row, std::int64_t begin,
                std::int64_t end, Kept* out) {
  const ScaleGrid& s = source.scales;
  MLA_DCHECK(s.data != nullptr);
  const std::int64_t scale_row = (s.first_row + row) / s.block_rows * s.row_stride;
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t block = (s.first_column + at) / s.block_columns;
    const std::int64_t stop = std::min(end, (block + 1) * s.block_columns - s.first_column);
    const float scale = ScaleAt(s.dtype, s.data, scale_row + block * s.column_stride);
    ConvertRun<std::uint8_t>(from + (at - begin) * source.column_stride, source.column_stride, stop - at,
                             out + (at - begin),
                             [scale](std::uint8_t code) { return Keep<Kept>(kE4M3Values[code] * scale); });
    at = stop;
  }
}

// Columns [begin, end) of a row to out.
template <class Kept>
void Convert(const MatrixSource& source, std::int64_t row, std::int64_t begin, std::int64_t end, Kept* out) {
  const std::int64_t at = row * source.row_stride + begin * source.column_stride;
  const std::byte* from = source.data + at * static_cast<std::int64_t>(DTypeBytes(source.dtype));
  const std::int64_t stride = source.column_stride;
  const std::int64_t count = end - begin;
  switch (source.dtype) {
    case DType::kF32: return ConvertRun<float>(from, stride, count, out, Keep<Kept>);
    case DType::kF16:
      return ConvertRun<std::uint16_t>(from, stride, count, out,
                                       [](std::uint16_t x) { return Keep<Kept>(FloatFromF16(x)); });
    case DType::kBF16:
      return ConvertRun<std::uint16_t>(from, stride, count, out, [](std::uint16_t x) {
        if constexpr (sizeof(Kept) == 2) return x;  // the same bits, a NaN's too
        if constexpr (sizeof(Kept) == 4) return FloatFromBf16(x);
      });
    case DType::kF8E4M3: return ConvertFp8(source, from, row, begin, end, out);
    case DType::kF8E8M0: break;  // scales alone
  }
  MLA_CHECK(source.dtype != DType::kF8E8M0);
}

// Columns of a panel that are turned at a time: even, and 16 rows of them lie in the first-level cache.
constexpr std::int64_t kTileColumns = 128;

// Rows [row, row + lanes) of the source into lanes [lane, lane + lanes) of a panel. A tile is read row by row, where
// the source's lines are whole, and written column by column, where the panel's are: a row written alone would pass
// over all of the panel, four bytes a line.
template <class Kept>
void PackLanes(const MatrixSource& source, std::int64_t row, std::int64_t lane, std::int64_t lanes, std::int64_t k,
               std::byte* panel) {
  // Elements that lie side by side in a lane: a pair of bf16, or one float.
  constexpr std::int64_t kGroup = 4 / sizeof(Kept);
  alignas(64) Kept tile[kPanel][kTileColumns];
  for (std::int64_t begin = 0; begin < k; begin += kTileColumns) {
    const std::int64_t end = std::min(k, begin + kTileColumns);
    const std::int64_t groups = (end - begin + kGroup - 1) / kGroup;
    for (std::int64_t i = 0; i < lanes; ++i) {
      Convert(source, row + i, begin, end, tile[i]);
      if ((end - begin) % kGroup != 0) tile[i][end - begin] = 0;
    }
    std::byte* to = panel + (begin / kGroup * kPanel + lane) * 4;
    for (std::int64_t g = 0; g < groups; ++g) {
      for (std::int64_t i = 0; i < lanes; ++i) std::memcpy(to + (g * kPanel + i) * 4, &tile[i][g * kGroup], 4);
    }
  }
}

// The same for fp8 that is kept: codes are copied, a block's scale is written to each of its lanes.
void CopyLanes(const MatrixSource& source, std::int64_t row, std::int64_t lane, std::int64_t lanes,
               const PackedMatrix& out, std::byte* panel) {
  const ScaleGrid& s = source.scales;
  alignas(64) std::byte tile[kPanel][kTileColumns];
  for (std::int64_t block = 0; block * out.scale_block < out.k; ++block) {
    for (std::int64_t i = 0; i < lanes; ++i) {
      const std::int64_t scale_row = (s.first_row + row + i) / s.block_rows * s.row_stride;
      const float scale = ScaleAt(s.dtype, s.data, scale_row + block * s.column_stride);
      std::memcpy(panel + (lane + i) * 4, &scale, 4);
    }
    panel += kPanel * 4;
    const std::int64_t last = std::min(out.k, (block + 1) * out.scale_block);
    for (std::int64_t begin = block * out.scale_block; begin < last; begin += kTileColumns) {
      const std::int64_t count = std::min(kTileColumns, last - begin);
      for (std::int64_t i = 0; i < lanes; ++i) {
        std::memcpy(tile[i], source.data + (row + i) * source.row_stride + begin, static_cast<std::size_t>(count));
        if (count % 2 != 0) tile[i][count] = std::byte{0};
      }
      const std::int64_t pairs = (count + 1) / 2;
      for (std::int64_t g = 0; g < pairs; ++g) {
        for (std::int64_t i = 0; i < lanes; ++i) std::memcpy(panel + (g * kPanel + lane + i) * 2, &tile[i][2 * g], 2);
      }
      panel += pairs * kPanel * 2;
    }
  }
}

}  // namespace

MatrixSource MatrixSource::Dense(DType dtype, const std::byte* data, std::int64_t columns, const BlockScales& scales) {
  MatrixSource source{dtype, data, columns, 1};
  MLA_CHECK_EQ(dtype == DType::kF8E4M3, scales.data != nullptr);
  if (scales.data == nullptr) return source;
  MLA_CHECK(scales.block_rows > 0 && scales.block_columns > 0);
  const std::int64_t grid_columns = (columns + scales.block_columns - 1) / scales.block_columns;
  source.scales = {scales.dtype, scales.data, scales.block_rows, scales.block_columns, grid_columns, 1, 0, 0};
  return source;
}

MatrixSource MatrixSource::FromRow(std::int64_t row) const {
  MatrixSource part = *this;
  part.data += row * row_stride * static_cast<std::int64_t>(DTypeBytes(dtype));
  part.scales.first_row += row;
  return part;
}

MatrixSource MatrixSource::Transposed() const {
  MatrixSource turned = *this;
  std::swap(turned.row_stride, turned.column_stride);
  std::swap(turned.scales.block_rows, turned.scales.block_columns);
  std::swap(turned.scales.row_stride, turned.scales.column_stride);
  std::swap(turned.scales.first_row, turned.scales.first_column);
  return turned;
}

void PackPanels(const MatrixSource& source, std::int64_t first_row, std::int64_t rows, const PackedMatrix& out,
                std::int64_t panel_begin, std::int64_t panel_end, std::int64_t panel_step) {
  MLA_CHECK_LE(first_row + rows, out.n);
  if (out.format == PackedFormat::kF8) {
    MLA_CHECK(source.dtype == DType::kF8E4M3 && source.column_stride == 1);
    MLA_CHECK(CanKeepF8(out.scale_block) && source.scales.first_column == 0);
    MLA_CHECK_EQ(source.scales.block_columns, out.scale_block);
  }
  const std::int64_t last = std::min(first_row + rows, panel_end * kPanel);
  for (std::int64_t n = std::max(first_row, panel_begin * kPanel); n < last;) {
    const std::int64_t lane = n % kPanel;
    const std::int64_t lanes = std::min(kPanel - lane, last - n);
    std::byte* panel = out.data + n / kPanel * panel_step * out.panel_bytes();
    switch (out.format) {
      case PackedFormat::kF32: PackLanes<float>(source, n - first_row, lane, lanes, out.k, panel); break;
      case PackedFormat::kBF16: PackLanes<Bf16Bits>(source, n - first_row, lane, lanes, out.k, panel); break;
      case PackedFormat::kF8: CopyLanes(source, n - first_row, lane, lanes, out, panel); break;
    }
    n += lanes;
  }
}

void ReadRow(const MatrixSource& source, std::int64_t row, std::int64_t columns, float* out) {
  Convert(source, row, 0, columns, out);
}

void ReadRow(const MatrixSource& source, std::int64_t row, std::int64_t columns, Bf16Bits* out) {
  Convert(source, row, 0, columns, out);
}

}  // namespace mla::ops
