#include "contract/fp8.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/fp8.h"
#include "io/quote.h"

namespace mla::contract {
namespace {

constexpr std::string_view kScaleSuffix = "_scale_inv";

bool IsFp8(const io::Tensor& tensor) { return tensor.known_dtype && tensor.dtype == DType::kF8E4M3; }

bool IsWide(const io::Tensor& tensor) {
  return tensor.known_dtype &&
         (tensor.dtype == DType::kF32 || tensor.dtype == DType::kF16 || tensor.dtype == DType::kBF16);
}

bool MayScale(const io::Tensor& tensor) {
  return tensor.known_dtype &&
         (tensor.dtype == DType::kF32 || tensor.dtype == DType::kBF16 || tensor.dtype == DType::kF8E8M0);
}

// The types that a tensor may have, and where fp8 alone is what is wrong, why.
std::string Types(const ModelConfig& config, const TensorSpec& spec, const io::Tensor& tensor) {
  if (config.fp8 && spec.product) return "F32, F16, BF16 or F8_E4M3";
  if (spec.product && IsFp8(tensor)) return "F32, F16 or BF16 (the config has no quantization_config)";
  return "F32, F16 or BF16";
}

}  // namespace

std::string ScaleName(std::string_view product) { return fmt::format("{}{}", product, kScaleSuffix); }

std::optional<std::string_view> ProductOf(std::string_view name) {
  if (!name.ends_with(kScaleSuffix)) return std::nullopt;
  return name.substr(0, name.size() - kScaleSuffix.size());
}

std::vector<std::int64_t> ScaleShape(const Fp8Config& fp8, const std::vector<std::int64_t>& product) {
  MLA_CHECK_EQ(product.size(), 2U);
  return {(product[0] + fp8.block_rows - 1) / fp8.block_rows, (product[1] + fp8.block_columns - 1) / fp8.block_columns};
}

std::optional<std::string> PlaceFault(const ModelConfig& config, const TensorSpec& spec, const io::Tensor& tensor,
                                      const io::Checkpoint& checkpoint) {
  const bool may_be_fp8 = config.fp8 && spec.product;
  if (tensor.shape != spec.shape || !(IsWide(tensor) || (may_be_fp8 && IsFp8(tensor)))) {
    return fmt::format("{}: expected {} of {}, found {}", spec.name, io::ShapeText(spec.shape),
                       Types(config, spec, tensor), io::Describe(tensor));
  }
  if (!may_be_fp8) return std::nullopt;
  const std::string name = ScaleName(spec.name);
  const io::Tensor* scales = checkpoint.Find(name);
  if (!IsFp8(tensor)) {
    if (scales == nullptr) return std::nullopt;
    return fmt::format("{}: expected {} of F8_E4M3 beside it, found {}", name, spec.name, io::Describe(tensor));
  }
  const std::vector<std::int64_t> shape = ScaleShape(*config.fp8, spec.shape);
  if (scales != nullptr && MayScale(*scales) && scales->shape == shape) return std::nullopt;
  return fmt::format("{}: expected {} of F32, BF16 or F8_E8M0, found {}", name, io::ShapeText(shape),
                     scales == nullptr ? "nothing" : io::Describe(*scales));
}

BlockScales ScalesOf(const ModelConfig& config, const io::Tensor& tensor, const io::Checkpoint& checkpoint) {
  if (!IsFp8(tensor)) return {};
  const io::Tensor* scales = checkpoint.Find(ScaleName(tensor.name));
  MLA_CHECK(config.fp8.has_value() && scales != nullptr);
  return {scales->dtype, scales->data, config.fp8->block_rows, config.fp8->block_columns};
}

std::optional<std::string> ScaleValueFault(const ModelConfig& config, const io::Tensor& tensor,
                                           const io::Checkpoint& checkpoint) {
  if (!IsFp8(tensor)) return std::nullopt;
  const io::Tensor* scales = checkpoint.Find(ScaleName(tensor.name));
  MLA_CHECK(config.fp8.has_value() && scales != nullptr);
  const std::optional<std::string> fault =
      ScaleFault(scales->dtype, scales->data, scales->elements(), scales->shape[1], config.fp8->power_of_two_scales);
  if (!fault) return std::nullopt;
  return fmt::format("{}: {} in {}", scales->name, *fault, io::Printable(scales->file));
}

std::string NanCodeFault(const io::Tensor& tensor) {
  return fmt::format("{}: expected numbers, found a NaN of F8_E4M3 (0x7f or 0xff) in {}", tensor.name,
                     io::Printable(tensor.file));
}

}  // namespace mla::contract
