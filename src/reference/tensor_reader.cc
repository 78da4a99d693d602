#include "reference/tensor_reader.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "contract/fp8.h"
#include "mla/dtypes.h"

namespace mla::reference {
namespace {

template <class T>
T ReadAs(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);  // a mapped tensor may be unaligned
  return value;
}

// OCP 8-bit floating point, E4M3: sign, exponent with bias 7, fraction; no infinity, so that the largest exponent holds
// numbers too.
double E4M3(unsigned code) {
  const unsigned exponent = code >> 3 & 15U;
  const unsigned fraction = code & 7U;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<double>::quiet_NaN();
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, int(exponent) - 10);
  return code >= 128 ? -magnitude : magnitude;
}

}  // namespace

double Widen(DType dtype, const std::byte* data, std::int64_t i) {
  const std::byte* at = data + i * static_cast<std::int64_t>(DTypeBytes(dtype));
  switch (dtype) {
    case DType::kF32: return ReadAs<float>(at);
    case DType::kF16: return FloatFromF16(ReadAs<std::uint16_t>(at));
    case DType::kBF16: return FloatFromBf16(ReadAs<std::uint16_t>(at));
    case DType::kF8E4M3: return E4M3(ReadAs<std::uint8_t>(at));
    case DType::kF8E8M0: return std::ldexp(1.0, ReadAs<std::uint8_t>(at) - 127);
  }
  return 0;
}

const io::Tensor& TensorReader::Fetch(const std::string& name, std::int64_t out, std::int64_t in) const {
  const io::Tensor* tensor = checkpoint_.Find(name + ".weight");
  MLA_CHECK(tensor != nullptr && tensor->known_dtype);
  MLA_CHECK_EQ(tensor->shape.size(), 2U);
  MLA_CHECK_EQ(tensor->shape[0], out);
  MLA_CHECK_EQ(tensor->shape[1], in);
  return *tensor;
}

Matrix TensorReader::ExactWeight(const std::string& name, std::int64_t out, std::int64_t in) const {
  return {out, in, Values(Fetch(name, out, in), 0, out * in)};
}

Matrix TensorReader::Weight(const std::string& name, std::int64_t out, std::int64_t in) const {
  return Rows(name, out, in, 0, out);
}

Matrix TensorReader::Rows(const std::string& name, std::int64_t out, std::int64_t in, std::int64_t first,
                          std::int64_t count) const {
  Matrix rows{count, in, Values(Fetch(name, out, in), first * in, count * in)};
  if (rounding_ != nullptr && rounding_->bf16_weights() && !IsBf16(name)) {
    for (double& value : rows.values) value = rounding_->ToBf16(value);
  }
  return rows;
}

std::vector<double> TensorReader::Vector(const std::string& name, std::int64_t n) const {
  const io::Tensor* tensor = checkpoint_.Find(name);
  MLA_CHECK(tensor != nullptr && tensor->known_dtype);
  MLA_CHECK_EQ(tensor->shape.size(), 1U);
  MLA_CHECK_EQ(tensor->shape[0], n);
  return Values(*tensor, 0, n);
}

bool TensorReader::IsBf16(const std::string& name) const {
  const io::Tensor* tensor = checkpoint_.Find(name + ".weight");
  return tensor != nullptr && tensor->known_dtype && tensor->dtype == DType::kBF16;
}

std::vector<double> TensorReader::Values(const io::Tensor& tensor, std::int64_t first, std::int64_t count) const {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    values[static_cast<std::size_t>(i)] = Widen(tensor.dtype, tensor.data, first + i);
  }
  if (tensor.dtype == DType::kF8E4M3) {
    MLA_CHECK_EQ(count, tensor.elements());
    Scale(tensor, &values);
  }
  checkpoint_.Drop(tensor);
  return values;
}

// Each block times its scale. A product of 4 bits and 24 is exact in double.
void TensorReader::Scale(const io::Tensor& tensor, std::vector<double>* values) const {
  const BlockScales scales = contract::ScalesOf(config_, tensor, checkpoint_);
  const std::int64_t columns = tensor.shape[1];
  const std::int64_t blocks_a_row = (columns - 1) / scales.block_columns + 1;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const std::int64_t block = i / columns / scales.block_rows * blocks_a_row + i % columns / scales.block_columns;
    (*values)[static_cast<std::size_t>(i)] *= Widen(scales.dtype, scales.data, block);
  }
}

}  // namespace mla::reference
