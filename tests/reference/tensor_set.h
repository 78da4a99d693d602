// Named tensors that a test can make, edit and open as a checkpoint, in float32 (exact for bf16 values).
#ifndef MLA_TESTS_REFERENCE_TENSOR_SET_H_
#define MLA_TESTS_REFERENCE_TENSOR_SET_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "contract/config.h"
#include "contract/tensors.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "reference/demo.h"
#include "reference/reference.h"
#include "testing/temp_dir.h"

namespace mla::testing {

struct EditableTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;

  // Of a matrix.
  float* row(std::int64_t i) { return values.data() + i * shape[1]; }
};

class TensorSet {
 public:
  // Every required tensor of the config: norms about 1, biases of the router about 0 and of both signs, matrices so
  // that a product keeps the size of its input.
  static TensorSet Random(const contract::ModelConfig& config, std::uint32_t seed) {
    TensorSet set;
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    for (const contract::TensorSpec& spec : contract::ExpectedTensors(config)) {
      if (!spec.required) continue;
      EditableTensor& tensor = set.tensors_[spec.name];
      tensor.shape = spec.shape;
      std::int64_t elements = 1;
      for (const std::int64_t dim : spec.shape) elements *= dim;
      const bool is_bias = spec.name.ends_with("bias");
      for (std::int64_t i = 0; i < elements; ++i) {
        const float value = normal(engine);
        if (spec.shape.size() == 2) {
          tensor.values.push_back(value / std::sqrt(static_cast<float>(spec.shape[1])));
        } else {
          tensor.values.push_back((is_bias ? 0.0F : 1.0F) + 0.2F * value);
        }
      }
    }
    return set;
  }

  // Every tensor of a checkpoint.
  static TensorSet Read(const io::Checkpoint& checkpoint) {
    TensorSet set;
    for (const io::Tensor& source : checkpoint.tensors()) {
      EditableTensor& tensor = set.tensors_[source.name];
      tensor.shape = source.shape;
      tensor.values.resize(static_cast<std::size_t>(source.elements()));
      for (std::size_t i = 0; i < tensor.values.size(); ++i) {
        if (source.dtype == DType::kF32) {
          std::memcpy(&tensor.values[i], source.data + 4 * i, 4);
        } else {
          MLA_CHECK(source.dtype == DType::kBF16);
          Bf16Bits bits = 0;
          std::memcpy(&bits, source.data + 2 * i, 2);
          tensor.values[i] = FloatFromBf16(bits);
        }
      }
    }
    return set;
  }

  EditableTensor& operator[](const std::string& name) { return tensors_[name]; }
  EditableTensor& At(const std::string& name) {
    MLA_CHECK(tensors_.contains(name));
    return tensors_[name];
  }
  void Erase(const std::string& name) { MLA_CHECK_EQ(tensors_.erase(name), 1U); }
  std::map<std::string, EditableTensor>& all() { return tensors_; }

  // Rounds every value to a multiple of 1/256 within (-8, 8): exact in float16 too.
  void RoundForF16() {
    for (auto& [name, tensor] : tensors_) {
      for (float& value : tensor.values) value = std::clamp(std::round(value * 256), -2047.0F, 2047.0F) / 256;
    }
  }

  // Writes the tensors to a file, as F32, or (values of RoundForF16 alone) as F16.
  void Save(const std::string& path, DType dtype = DType::kF32) const {
    MLA_CHECK(dtype != DType::kBF16);
    std::vector<io::SafetensorsSpec> specs;
    for (const auto& [name, tensor] : tensors_) specs.push_back({name, dtype, tensor.shape});
    auto writer = Must(io::SafetensorsWriter::Create(path, specs));
    for (const auto& [name, tensor] : tensors_) {
      if (dtype == DType::kF32) {
        Must(writer.Append(std::as_bytes(std::span(tensor.values))));
      } else {
        std::vector<std::uint16_t> bits;
        for (const float value : tensor.values) bits.push_back(F16FromExact(value));
        Must(writer.Append(std::as_bytes(std::span(bits))));
      }
    }
    Must(writer.Finish());
  }

  // The reference model of these tensors. They must be what the config promises.
  reference::ReferenceModel Model(const contract::ModelConfig& config, DType dtype = DType::kF32) const {
    const TempDir dir;
    const std::string path = dir.File("model.safetensors");
    Save(path, dtype);
    const auto checkpoint = Must(io::Checkpoint::Open(path));
    Must(contract::RequireTensors(config, checkpoint));
    return Must(reference::ReferenceModel::Load(config, checkpoint, config.max_position_embeddings));
  }

 private:
  // Of a value that is a normal float16, or zero.
  static std::uint16_t F16FromExact(float value) {
    const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    if (value == 0) return sign;
    const int exponent = std::ilogb(value);
    const float fraction = std::ldexp(std::abs(value), -exponent) - 1;
    const auto bits = static_cast<std::uint16_t>(sign | (exponent + 15) << 10 | static_cast<int>(fraction * 1024));
    MLA_CHECK_EQ(FloatFromF16(bits), value);
    return bits;
  }

  std::map<std::string, EditableTensor> tensors_;
};

}  // namespace mla::testing

#endif  // MLA_TESTS_REFERENCE_TENSOR_SET_H_
