#include "testing/fp8_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "contract/config.h"
#include "contract/tensors.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "testing/tiny_checkpoint.h"

namespace mla::testing {
namespace {

template <class T>
T OrDie(Result<T> result) {
  if (!result.ok()) internal::CheckFailed(__FILE__, __LINE__, "ok", result.error().message);
  return std::move(result).value();
}

void OrDie(const Status& status) {
  if (!status.ok()) internal::CheckFailed(__FILE__, __LINE__, "ok", status.error().message);
}

// Magnitudes of the codes 0 .. 126, ascending: the definition of E4M3.
std::vector<double> Magnitudes() {
  std::vector<double> values;
  for (int code = 0; code < 127; ++code) {
    values.push_back(code < 8 ? std::ldexp(code, -9) : std::ldexp(8 + code % 8, code / 8 - 10));
  }
  return values;
}

struct Quantised {
  std::vector<std::uint8_t> codes;
  std::vector<std::byte> scales;
  std::vector<float> wide;
  std::vector<std::int64_t> scale_shape;
};

// A scale that is no smaller than `least`, with its bytes appended.
double AddScale(double least, const Fp8Options& o, std::vector<std::byte>* out) {
  const auto append = [&](const auto& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out->insert(out->end(), bytes, bytes + sizeof value);
  };
  least = std::max(least, 1e-9);
  if (o.scale_dtype == DType::kF8E8M0) {
    const int exponent = static_cast<int>(std::ceil(std::log2(least)));
    append(static_cast<std::uint8_t>(exponent + 127));
    return std::ldexp(1.0, exponent);
  }
  float scale = o.power_of_two ? static_cast<float>(std::exp2(std::ceil(std::log2(least)))) : static_cast<float>(least);
  if (o.scale_dtype == DType::kBF16) {
    const auto bits = static_cast<Bf16Bits>(Bf16FromFloat(scale) + (o.power_of_two ? 0 : 1));
    append(bits);
    return static_cast<double>(FloatFromBf16(bits));
  }
  append(scale);
  return static_cast<double>(scale);
}

Quantised Quantise(const io::Tensor& tensor, const Fp8Options& o) {
  static const std::vector<double> kMagnitudes = Magnitudes();
  const std::int64_t rows = tensor.shape[0];
  const std::int64_t columns = tensor.shape[1];
  const auto value = [&](std::int64_t i, std::int64_t j) {
    float x = 0;
    std::memcpy(&x, tensor.data + (i * columns + j) * 4, 4);
    return static_cast<double>(x);
  };
  Quantised q;
  q.codes.resize(static_cast<std::size_t>(rows * columns));
  q.wide.resize(q.codes.size());
  q.scale_shape = {(rows + o.block_rows - 1) / o.block_rows, (columns + o.block_columns - 1) / o.block_columns};
  for (std::int64_t r = 0; r < rows; r += o.block_rows) {
    for (std::int64_t c = 0; c < columns; c += o.block_columns) {
      const std::int64_t row_end = std::min(rows, r + o.block_rows);
      const std::int64_t column_end = std::min(columns, c + o.block_columns);
      double largest = 0;
      for (std::int64_t i = r; i < row_end; ++i) {
        for (std::int64_t j = c; j < column_end; ++j) largest = std::max(largest, std::fabs(value(i, j)));
      }
      const double scale = AddScale(largest / 448, o, &q.scales);
      for (std::int64_t i = r; i < row_end; ++i) {
        for (std::int64_t j = c; j < column_end; ++j) {
          const double wanted = std::fabs(value(i, j)) / scale;
          auto above = std::lower_bound(kMagnitudes.begin(), kMagnitudes.end() - 1, wanted);
          if (above != kMagnitudes.begin() && wanted - above[-1] < *above - wanted) --above;
          const bool negative = value(i, j) < 0;
          const auto at = static_cast<std::size_t>(i * columns + j);
          q.codes[at] = static_cast<std::uint8_t>((above - kMagnitudes.begin()) + (negative ? 128 : 0));
          q.wide[at] = static_cast<float>((negative ? -1 : 1) * *above * scale);
        }
      }
    }
  }
  return q;
}

void Write(const std::string& dir, const std::string& config_json, const std::vector<io::SafetensorsSpec>& specs,
           const std::vector<std::vector<std::byte>>& bytes) {
  std::filesystem::create_directories(dir);
  std::ofstream(dir + "/config.json") << config_json;
  io::SafetensorsWriter writer = OrDie(io::SafetensorsWriter::Create(dir + "/model.safetensors", specs));
  for (const std::vector<std::byte>& part : bytes) OrDie(writer.Append(part));
  OrDie(writer.Finish());
}

template <class T>
std::vector<std::byte> BytesOf(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

std::string Fp8ConfigJson(const std::string& config_json, const Fp8Options& o) {
  std::string json = config_json;
  return json.insert(json.find('{') + 1,
                     fmt::format("\n  \"quantization_config\": {{\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", "
                                 "\"activation_scheme\": \"dynamic\", \"weight_block_size\": [{}, {}]{}}},",
                                 o.block_rows, o.block_columns, o.power_of_two ? ", \"scale_fmt\": \"ue8m0\"" : ""));
}

void WriteFp8Checkpoint(const std::string& dir, const std::string& wide_dir, const std::string& config_json,
                        std::uint64_t seed, const Fp8Options& options) {
  // Exact at first, and replaced at the end.
  WriteTinyCheckpoint(wide_dir, config_json, seed, DType::kF32);
  const io::Checkpoint checkpoint = OrDie(io::Checkpoint::Open(wide_dir));
  const contract::ModelConfig config = OrDie(contract::LoadConfig(wide_dir));
  std::map<std::string, bool> product;
  for (const contract::TensorSpec& spec : contract::ExpectedTensors(config)) product[spec.name] = spec.product;
  std::vector<io::SafetensorsSpec> specs;
  std::vector<io::SafetensorsSpec> wide_specs;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<std::vector<std::byte>> wide_bytes;
  for (const io::Tensor& tensor : checkpoint.tensors()) {
    wide_specs.push_back({tensor.name, DType::kF32, tensor.shape});
    if (product[tensor.name]) {
      const Quantised q = Quantise(tensor, options);
      specs.push_back({tensor.name, DType::kF8E4M3, tensor.shape});
      bytes.push_back(BytesOf(q.codes));
      specs.push_back({tensor.name + "_scale_inv", options.scale_dtype, q.scale_shape});
      bytes.push_back(q.scales);
      wide_bytes.push_back(BytesOf(q.wide));
      continue;
    }
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    std::memcpy(values.data(), tensor.data, static_cast<std::size_t>(tensor.bytes));
    const bool bias = tensor.name.ends_with("bias");
    std::vector<Bf16Bits> bits;
    for (float& x : values) {
      bits.push_back(Bf16FromFloat(x));
      if (!bias) x = FloatFromBf16(bits.back());
    }
    specs.push_back({tensor.name, bias ? DType::kF32 : DType::kBF16, tensor.shape});
    bytes.push_back(bias ? BytesOf(values) : BytesOf(bits));
    wide_bytes.push_back(BytesOf(values));
  }
  Write(dir, Fp8ConfigJson(config_json, options), specs, bytes);
  Write(wide_dir, config_json, wide_specs, wide_bytes);
}

}  // namespace mla::testing
