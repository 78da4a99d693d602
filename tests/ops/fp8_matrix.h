// A matrix in blocks of fp8, for tests.
#ifndef MLA_TESTS_OPS_FP8_MATRIX_H_
#define MLA_TESTS_OPS_FP8_MATRIX_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "mla/dtypes.h"
#include "ops/ops_testing.h"
#include "ops/packed.h"

namespace mla::testing {

// A code's value from the definition of E4M3: no table, no bits.
inline double ValueOf(unsigned code) {
  const int exponent = static_cast<int>(code / 8 % 16);
  const double fraction = code % 8 / 8.0;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -6) : std::ldexp(1 + fraction, exponent - 7);
  return code < 128 ? magnitude : -magnitude;
}

// A matrix in fp8 with its scales, behind odd addresses.
struct Fp8Matrix {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t block_rows;
  std::int64_t block_columns;
  DType scale_dtype;
  std::vector<std::byte> codes;   // [1 + rows columns]
  std::vector<std::byte> scales;  // [1 + ...]
  std::vector<float> scale_values;

  Fp8Matrix(std::int64_t m, std::int64_t n, std::int64_t br, std::int64_t bc, DType dtype = DType::kF32)
      : rows(m), columns(n), block_rows(br), block_columns(bc), scale_dtype(dtype) {
    std::mt19937 random(71);
    codes.resize(1 + static_cast<std::size_t>(m * n));
    for (std::byte& code : codes) {
      do code = static_cast<std::byte>(random() % 256);
      while ((code & std::byte{0x7f}) == std::byte{0x7f});
    }
    const auto count = static_cast<std::size_t>((m + br - 1) / br * GridColumns());
    scales.resize(1 + count * DTypeBytes(dtype));
    for (std::size_t i = 0; i < count; ++i) {
      const auto code = static_cast<std::uint8_t>(120 + random() % 10);
      const float value =
          std::ldexp(dtype == DType::kF8E8M0 ? 1.0F : 1.0F + static_cast<float>(random() % 128) / 128, code - 127);
      scale_values.push_back(value);
      const Bf16Bits half = Bf16FromFloat(value);
      const void* from = dtype == DType::kF32    ? static_cast<const void*>(&value)
                         : dtype == DType::kBF16 ? static_cast<const void*>(&half)
                                                 : &code;
      std::memcpy(scales.data() + 1 + i * DTypeBytes(dtype), from, DTypeBytes(dtype));
    }
  }
  std::int64_t GridColumns() const { return (columns + block_columns - 1) / block_columns; }
  ops::MatrixSource Source() const {
    return ops::MatrixSource::Dense(DType::kF8E4M3, codes.data() + 1, columns,
                                    {scale_dtype, scales.data() + 1, block_rows, block_columns});
  }
  // The element as it is kept: a float product, then the format's rounding.
  float Kept(ops::PackedFormat format, std::int64_t i, std::int64_t j) const {
    const auto code = std::to_integer<unsigned>(codes[1 + static_cast<std::size_t>(i * columns + j)]);
    const float scale = scale_values[static_cast<std::size_t>(i / block_rows * GridColumns() + j / block_columns)];
    return Stored(format, static_cast<float>(ValueOf(code)) * scale);
  }
};

}  // namespace mla::testing

#endif  // MLA_TESTS_OPS_FP8_MATRIX_H_
