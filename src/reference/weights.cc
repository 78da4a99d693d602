#include "reference/weights.h"

#include <cmath>
#include <new>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/cpu_info.h"
#include "contract/fp8.h"
#include "mla/dtypes.h"
#include "reference/tensor_reader.h"

namespace mla::reference {
namespace {

// Fp8 that holds no number is refused, not computed with. Returns the first fault.
std::optional<std::string> Fp8Fault(const contract::ModelConfig& config, const io::Checkpoint& checkpoint) {
  for (const io::Tensor& tensor : checkpoint.tensors()) {
    if (!tensor.known_dtype || tensor.dtype != DType::kF8E4M3) continue;
    if (auto fault = contract::ScaleValueFault(config, tensor, checkpoint)) return fault;
    for (std::int64_t i = 0; i < tensor.bytes; ++i) {
      if (std::isnan(Widen(tensor.dtype, tensor.data, i))) return contract::NanCodeFault(tensor);
    }
    checkpoint.Drop(tensor);
  }
  return std::nullopt;
}

// Puts a layer's tensors together.
class Loader {
 public:
  explicit Loader(const TensorReader& reader) : config_(reader.config()), reader_(reader) {}

  Matrix Weight(const std::string& name, std::int64_t out, std::int64_t in) const {
    return reader_.Weight(name, out, in);
  }
  // Empty where the checkpoint has none.
  Matrix OptionalWeight(const std::string& name, std::int64_t out, std::int64_t in) const {
    return reader_.Has(name) ? Weight(name, out, in) : Matrix{};
  }
  std::vector<double> Norm(const std::string& name, std::int64_t n) const {
    return reader_.Vector(name + ".weight", n);
  }

  ModelWeights Model() const;
  LayerWeights Layer(std::int64_t index, bool with_experts) const;
  MlpWeights Mlp(const std::string& at, std::int64_t inner) const;

 private:
  AttentionWeights Attention(const std::string& at) const;
  MoeWeights Moe(const std::string& at, bool with_experts) const;
  MtpWeights Mtp() const;

  const contract::ModelConfig& config_;
  const TensorReader& reader_;
};

AttentionWeights Loader::Attention(const std::string& at) const {
  const auto& c = config_;
  const std::int64_t q_rows = c.num_attention_heads * (c.qk_nope_head_dim + c.qk_rope_head_dim);
  AttentionWeights w;
  if (c.q_lora_rank.has_value()) {
    w.q_a_proj = Weight(at + "q_a_proj", *c.q_lora_rank, c.hidden_size);
    w.q_a_layernorm = Norm(at + "q_a_layernorm", *c.q_lora_rank);
    w.q_b_proj = Weight(at + "q_b_proj", q_rows, *c.q_lora_rank);
  } else {
    w.q_proj = Weight(at + "q_proj", q_rows, c.hidden_size);
  }
  w.kv_a_proj_with_mqa = Weight(at + "kv_a_proj_with_mqa", c.kv_lora_rank + c.qk_rope_head_dim, c.hidden_size);
  w.kv_a_layernorm = Norm(at + "kv_a_layernorm", c.kv_lora_rank);
  w.kv_b_proj = Weight(at + "kv_b_proj", c.num_attention_heads * (c.qk_nope_head_dim + c.v_head_dim), c.kv_lora_rank);
  w.o_proj = Weight(at + "o_proj", c.hidden_size, c.num_attention_heads * c.v_head_dim);
  return w;
}

MlpWeights Loader::Mlp(const std::string& at, std::int64_t inner) const {
  return {Weight(at + "gate_proj", inner, config_.hidden_size), Weight(at + "up_proj", inner, config_.hidden_size),
          Weight(at + "down_proj", config_.hidden_size, inner)};
}

std::string ExpertPrefix(const std::string& mlp, std::int64_t expert) {
  return fmt::format("{}experts.{}.", mlp, expert);
}

MoeWeights Loader::Moe(const std::string& at, bool with_experts) const {
  const contract::MoeConfig& moe = *config_.moe;
  MoeWeights w;
  w.gate = reader_.ExactWeight(at + "gate", moe.n_routed_experts, config_.hidden_size);
  if (moe.topk_method == contract::TopkMethod::kNoauxTc) {
    w.e_score_correction_bias = reader_.Vector(at + "gate.e_score_correction_bias", moe.n_routed_experts);
  }
  for (std::int64_t e = 0; with_experts && e < moe.n_routed_experts; ++e) {
    w.experts.push_back(Mlp(ExpertPrefix(at, e), moe.moe_intermediate_size));
  }
  if (moe.n_shared_experts > 0) {
    w.shared_experts = Mlp(at + "shared_experts.", moe.moe_intermediate_size * moe.n_shared_experts);
  }
  return w;
}

LayerWeights Loader::Layer(std::int64_t index, bool with_experts) const {
  const std::string at = fmt::format("model.layers.{}.", index);
  LayerWeights w;
  w.input_layernorm = Norm(at + "input_layernorm", config_.hidden_size);
  w.self_attn = Attention(at + "self_attn.");
  w.post_attention_layernorm = Norm(at + "post_attention_layernorm", config_.hidden_size);
  if (config_.IsMoeLayer(index)) {
    w.moe = Moe(at + "mlp.", with_experts);
  } else {
    w.mlp = Mlp(at + "mlp.", config_.intermediate_size);
  }
  return w;
}

MtpWeights Loader::Mtp() const {
  const std::int64_t index = config_.num_hidden_layers;
  const std::int64_t hidden = config_.hidden_size;
  const std::string at = fmt::format("model.layers.{}.", index);
  MtpWeights w;
  w.embed_tokens = OptionalWeight(at + "embed_tokens", config_.vocab_size, hidden);
  w.enorm = Norm(at + "enorm", hidden);
  w.hnorm = Norm(at + "hnorm", hidden);
  w.eh_proj = Weight(at + "eh_proj", hidden, 2 * hidden);
  w.layer = Layer(index, true);
  w.norm = Norm(at + "shared_head.norm", hidden);
  w.head = OptionalWeight(at + "shared_head.head", config_.vocab_size, hidden);
  return w;
}

ModelWeights Loader::Model() const {
  ModelWeights w;
  w.embed_tokens = Weight("model.embed_tokens", config_.vocab_size, config_.hidden_size);
  for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i) w.layers.push_back(Layer(i, true));
  w.norm = Norm("model.norm", config_.hidden_size);
  if (!config_.tie_word_embeddings) w.lm_head = Weight("lm_head", config_.vocab_size, config_.hidden_size);
  if (config_.num_nextn_predict_layers > 0) w.mtp = Mtp();
  return w;
}

Error NotEnough(const contract::ModelConfig& config, std::int64_t needed, std::int64_t available) {
  return Error{fmt::format("float64 reference of {}: needs {:.1f} GB of memory (8 bytes a parameter), {}",
                           config.model_type, static_cast<double>(needed) / 1e9,
                           available >= 0 ? fmt::format("found {:.1f} GB", static_cast<double>(available) / 1e9)
                                          : std::string("which can't be had"))};
}

}  // namespace

Result<ModelWeights> LoadWeights(const contract::ModelConfig& config, const io::Checkpoint& checkpoint) {
  std::int64_t needed = 0;
  for (const io::Tensor& tensor : checkpoint.tensors()) needed += 8 * tensor.elements();
  // Linux grants memory that it does not have and ends the process later: an allocation alone would not tell.
  const std::int64_t available = UsableMemory();
  if (needed > available) return NotEnough(config, needed, available);
  if (const auto fault = Fp8Fault(config, checkpoint)) return Error{*fault};
  try {
    return Loader(TensorReader(config, checkpoint)).Model();
  } catch (const std::bad_alloc&) {
    return NotEnough(config, needed, -1);
  }
}

LayerWeights LoadLayer(const TensorReader& reader, std::int64_t layer) { return Loader(reader).Layer(layer, false); }

MlpWeights LoadExpert(const TensorReader& reader, std::int64_t layer, std::int64_t expert) {
  return Loader(reader).Mlp(ExpertPrefix(fmt::format("model.layers.{}.mlp.", layer), expert),
                            reader.config().moe->moe_intermediate_size);
}

}  // namespace mla::reference
