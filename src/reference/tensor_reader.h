// Tensors of a checkpoint, one at a time, widened to float64.
#ifndef MLA_REFERENCE_TENSOR_READER_H_
#define MLA_REFERENCE_TENSOR_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "contract/config.h"
#include "io/checkpoint.h"
#include "reference/rounding.h"
#include "reference/vector_math.h"

namespace mla::reference {

// Element i of a tensor's bytes, exactly; NaN for the code of fp8 that is none.
double Widen(DType dtype, const std::byte* data, std::int64_t i);

// Fetches tensors by name and shape. A tensor that is missing or of another shape is a broken precondition
// (contract::RequireTensors). Fp8 becomes its value times its block's scale, exactly. With `rounding` for weights kept
// in bf16, the elements of products that bf16 can't hold are rounded at random. Thread-safe without it.
class TensorReader {
 public:
  // Both outlive this.
  TensorReader(const contract::ModelConfig& config, const io::Checkpoint& checkpoint, Rounding* rounding = nullptr)
      : config_(config), checkpoint_(checkpoint), rounding_(rounding) {}

  const contract::ModelConfig& config() const { return config_; }

  // The product NAME.weight [out, in].
  Matrix Weight(const std::string& name, std::int64_t out, std::int64_t in) const;
  // Its rows [first, first + count) alone; not of fp8.
  Matrix Rows(const std::string& name, std::int64_t out, std::int64_t in, std::int64_t first, std::int64_t count) const;
  // The same as Weight, never rounded: the router.
  Matrix ExactWeight(const std::string& name, std::int64_t out, std::int64_t in) const;
  std::vector<double> Vector(const std::string& name, std::int64_t n) const;
  bool Has(const std::string& name) const { return checkpoint_.Find(name + ".weight") != nullptr; }
  // Whether NAME.weight is in bf16 in the file: keeping it so rounds nothing.
  bool IsBf16(const std::string& name) const;

 private:
  const io::Tensor& Fetch(const std::string& name, std::int64_t out, std::int64_t in) const;
  std::vector<double> Values(const io::Tensor& tensor, std::int64_t first, std::int64_t count) const;
  void Scale(const io::Tensor& tensor, std::vector<double>* values) const;

  const contract::ModelConfig& config_;
  const io::Checkpoint& checkpoint_;
  Rounding* rounding_;
};

}  // namespace mla::reference

#endif  // MLA_REFERENCE_TENSOR_READER_H_
