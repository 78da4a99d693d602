// Tensors stored in blocks of fp8: which may be, what lies beside them, and how a checkpoint is held to it.
//
// A product W [out, in] in F8_E4M3 has scales NAME_scale_inv [ceil(out / rows), ceil(in / columns)] in F32, BF16 or
// F8_E8M0; an element is its code's value times its block's scale. Each product may also be in a wider type, without
// scales. Norms, the router with its bias, embeddings and heads are never in fp8: DeepSeek publishes them wider, and a
// rounded router picks other experts.
#ifndef MLA_CONTRACT_FP8_H_
#define MLA_CONTRACT_FP8_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/config.h"
#include "contract/tensors.h"
#include "io/checkpoint.h"
#include "mla/dtypes.h"

namespace mla::contract {

// The name of a product's scales: "model.layers.0.mlp.up_proj.weight_scale_inv" for ".weight".
std::string ScaleName(std::string_view product);
// The other way: the name of the product whose scales are called so; empty for another name.
std::optional<std::string_view> ProductOf(std::string_view name);
// The shape of its scales.
std::vector<std::int64_t> ScaleShape(const Fp8Config& fp8, const std::vector<std::int64_t>& product);

// What is wrong with the shape or the type of `tensor`, found under spec.name, or of the scales beside it: a line of
// TensorReport.
std::optional<std::string> PlaceFault(const ModelConfig& config, const TensorSpec& spec, const io::Tensor& tensor,
                                      const io::Checkpoint& checkpoint);

// The scales of a tensor that PlaceFault has passed; without data where it is not in fp8.
BlockScales ScalesOf(const ModelConfig& config, const io::Tensor& tensor, const io::Checkpoint& checkpoint);

// Their first value that can't be used, as "NAME_scale_inv: expected ..., found ...".
std::optional<std::string> ScaleValueFault(const ModelConfig& config, const io::Tensor& tensor,
                                           const io::Checkpoint& checkpoint);
// For a tensor whose codes hold a NaN.
std::string NanCodeFault(const io::Tensor& tensor);

}  // namespace mla::contract

#endif  // MLA_CONTRACT_FP8_H_
