#include "ops/packed.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace mla::ops {
namespace {

template <class T>
T ReadAt(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

float ReadElement(DType dtype, const std::byte* p) {
  switch (dtype) {
    case DType::kF32: return ReadAt<float>(p);
    case DType::kF16: return FloatFromF16(ReadAt<std::uint16_t>(p));
    case DType::kBF16: return FloatFromBf16(ReadAt<std::uint16_t>(p));
  }
  return 0;
}

// Index, within a panel, of the element (k, lane).
std::int64_t PanelIndex(PackedFormat format, std::int64_t k, std::int64_t lane) {
  return format == PackedFormat::kF32 ? k * kPanel + lane : (k / 2 * kPanel + lane) * 2 + k % 2;
}

// One output's k inputs into its lane. `Convert` turns a stored element into a packed one.
template <class Stored, class Packed, class Convert>
void PackRow(const std::byte* row, std::int64_t column_stride, const PackedMatrix& out, Packed* panel,
             std::int64_t lane, Convert convert) {
  const std::int64_t step = column_stride * static_cast<std::int64_t>(sizeof(Stored));
  for (std::int64_t k = 0; k < out.k; ++k) {
    panel[PanelIndex(out.format, k, lane)] = convert(ReadAt<Stored>(row + k * step));
  }
}

void PackOutput(const MatrixSource& source, std::int64_t source_row, const PackedMatrix& out, std::int64_t n) {
  std::byte* panel = out.data + n / kPanel * PanelBytes(out.format, out.k);
  const std::int64_t lane = n % kPanel;
  const std::byte* row =
      source.data + source_row * source.row_stride * static_cast<std::int64_t>(DTypeBytes(source.dtype));
  if (out.format == PackedFormat::kBF16) {
    auto* to = reinterpret_cast<Bf16Bits*>(panel);
    if (source.dtype == DType::kBF16) {
      PackRow<std::uint16_t>(row, source.column_stride, out, to, lane, [](std::uint16_t x) { return x; });
    } else if (source.dtype == DType::kF32) {
      PackRow<float>(row, source.column_stride, out, to, lane, Bf16FromFloat);
    } else {
      PackRow<std::uint16_t>(row, source.column_stride, out, to, lane,
                             [](std::uint16_t x) { return Bf16FromFloat(FloatFromF16(x)); });
    }
    return;
  }
  auto* to = reinterpret_cast<float*>(panel);
  if (source.dtype == DType::kBF16) {
    PackRow<std::uint16_t>(row, source.column_stride, out, to, lane, FloatFromBf16);
  } else if (source.dtype == DType::kF32) {
    PackRow<float>(row, source.column_stride, out, to, lane, [](float x) { return x; });
  } else {
    PackRow<std::uint16_t>(row, source.column_stride, out, to, lane, FloatFromF16);
  }
}

}  // namespace

void PackPanels(const MatrixSource& source, std::int64_t first_row, std::int64_t rows, const PackedMatrix& out,
                std::int64_t panel_begin, std::int64_t panel_end) {
  MLA_CHECK_LE(first_row + rows, out.n);
  const std::int64_t begin = std::max(first_row, panel_begin * kPanel);
  const std::int64_t end = std::min(first_row + rows, panel_end * kPanel);
  for (std::int64_t n = begin; n < end; ++n) PackOutput(source, n - first_row, out, n);
}

float ElementAt(const MatrixSource& source, std::int64_t row, std::int64_t column) {
  const std::int64_t at = row * source.row_stride + column * source.column_stride;
  return ReadElement(source.dtype, source.data + at * static_cast<std::int64_t>(DTypeBytes(source.dtype)));
}

}  // namespace mla::ops
