#include "contract/tensors.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "contract/config_parts.h"
#include "contract/fp8.h"
#include "io/quote.h"

namespace mla::contract {
namespace {

// The tensors of one layer, names without "model.layers.I.".
class LayerTable {
 public:
  explicit LayerTable(const ModelConfig& config) : config_(config) {}

  std::vector<TensorSpec> Layer(bool moe) && {
    Add("input_layernorm.weight", {config_.hidden_size});
    Attention();
    Add("post_attention_layernorm.weight", {config_.hidden_size});
    if (moe) {
      Moe(*config_.moe);
    } else {
      Mlp("mlp.", config_.intermediate_size);
    }
    return std::move(tensors_);
  }

  // A multi-token-prediction layer: what joins the next token's embedding to the hidden state, a layer, a head.
  std::vector<TensorSpec> Mtp(bool moe) && {
    const std::int64_t hidden = config_.hidden_size;
    // Where the two optional ones are missing, the main model's serve.
    Add("embed_tokens.weight", {config_.vocab_size, hidden});
    tensors_.back().required = false;
    Add("enorm.weight", {hidden});
    Add("hnorm.weight", {hidden});
    AddProduct("eh_proj.weight", {hidden, 2 * hidden});
    for (TensorSpec& spec : LayerTable(config_).Layer(moe)) tensors_.push_back(std::move(spec));
    Add("shared_head.norm.weight", {hidden});
    Add("shared_head.head.weight", {config_.vocab_size, hidden});
    tensors_.back().required = false;
    for (TensorSpec& spec : tensors_) spec.active = false;
    return std::move(tensors_);
  }

 private:
  void Add(std::string name, std::vector<std::int64_t> shape, std::int64_t expert = -1) {
    TensorSpec& spec = tensors_.emplace_back();
    spec.name = std::move(name);
    spec.shape = std::move(shape);
    spec.expert = expert;
  }
  void AddProduct(std::string name, std::vector<std::int64_t> shape, std::int64_t expert = -1) {
    Add(std::move(name), std::move(shape), expert);
    tensors_.back().product = true;
  }

  void Attention() {
    const ModelConfig& c = config_;
    const std::int64_t q_rows = c.num_attention_heads * (c.qk_nope_head_dim + c.qk_rope_head_dim);
    if (c.q_lora_rank) {
      AddProduct("self_attn.q_a_proj.weight", {*c.q_lora_rank, c.hidden_size});
      Add("self_attn.q_a_layernorm.weight", {*c.q_lora_rank});
      AddProduct("self_attn.q_b_proj.weight", {q_rows, *c.q_lora_rank});
    } else {
      AddProduct("self_attn.q_proj.weight", {q_rows, c.hidden_size});
    }
    AddProduct("self_attn.kv_a_proj_with_mqa.weight", {c.kv_lora_rank + c.qk_rope_head_dim, c.hidden_size});
    Add("self_attn.kv_a_layernorm.weight", {c.kv_lora_rank});
    AddProduct("self_attn.kv_b_proj.weight",
               {c.num_attention_heads * (c.qk_nope_head_dim + c.v_head_dim), c.kv_lora_rank});
    AddProduct("self_attn.o_proj.weight", {c.hidden_size, c.num_attention_heads * c.v_head_dim});
  }

  void Mlp(const std::string& prefix, std::int64_t intermediate, std::int64_t expert = -1) {
    AddProduct(prefix + "gate_proj.weight", {intermediate, config_.hidden_size}, expert);
    AddProduct(prefix + "up_proj.weight", {intermediate, config_.hidden_size}, expert);
    AddProduct(prefix + "down_proj.weight", {config_.hidden_size, intermediate}, expert);
  }

  void Moe(const MoeConfig& moe) {
    Add("mlp.gate.weight", {moe.n_routed_experts, config_.hidden_size});
    if (moe.topk_method == TopkMethod::kNoauxTc) Add("mlp.gate.e_score_correction_bias", {moe.n_routed_experts});
    for (std::int64_t e = 0; e < moe.n_routed_experts; ++e) {
      Mlp(fmt::format("mlp.experts.{}.", e), moe.moe_intermediate_size, e);
    }
    if (moe.n_shared_experts > 0) Mlp("mlp.shared_experts.", moe.n_shared_experts * moe.moe_intermediate_size);
  }

  const ModelConfig& config_;
  std::vector<TensorSpec> tensors_;
};

std::vector<TensorSpec> LayerTensors(const ModelConfig& config, std::int64_t layer) {
  const bool moe = config.IsMoeLayer(layer);
  return layer < config.num_hidden_layers ? LayerTable(config).Layer(moe) : LayerTable(config).Mtp(moe);
}

std::vector<TensorSpec> OpeningTensors(const ModelConfig& config) {
  return {{"model.embed_tokens.weight", {config.vocab_size, config.hidden_size}}};
}

std::vector<TensorSpec> ClosingTensors(const ModelConfig& config) {
  std::vector<TensorSpec> tensors = {{"model.norm.weight", {config.hidden_size}},
                                     {"lm_head.weight", {config.vocab_size, config.hidden_size}}};
  if (config.tie_word_embeddings) {
    tensors[1].required = false;
    tensors[1].active = false;
  }
  return tensors;
}

// Sums that say when they leave int64.
class Sum {
 public:
  void Add(std::int64_t value, std::int64_t times = 1) {
    std::int64_t product = 0;
    if (!fits_ || __builtin_mul_overflow(value, times, &product) || __builtin_add_overflow(value_, product, &value_)) {
      fits_ = false;
    }
  }
  void Add(const std::vector<std::int64_t>& shape, std::int64_t times) {
    std::int64_t product = times;
    for (const std::int64_t dim : shape) {
      if (__builtin_mul_overflow(product, dim, &product)) fits_ = false;
    }
    Add(product);
  }
  bool fits() const { return fits_; }
  std::int64_t value() const { return value_; }

 private:
  std::int64_t value_ = 0;
  bool fits_ = true;
};

struct Totals {
  Sum tensors;
  Sum total;
  Sum active;
  Sum mtp;
};

// Layers of one kind are alike: each kind is listed once, however many there are.
Totals CountAll(const ModelConfig& config) {
  Totals totals;
  const std::int64_t top_k = config.moe ? config.moe->num_experts_per_tok : 0;
  const auto add = [&](const std::vector<TensorSpec>& specs, std::int64_t times, bool mtp) {
    totals.tensors.Add(static_cast<std::int64_t>(specs.size()), times);
    for (const TensorSpec& spec : specs) {
      if (!spec.required) continue;
      (mtp ? totals.mtp : totals.total).Add(spec.shape, times);
      // Routed experts are of one size: which ones are read does not matter.
      if (spec.active && spec.expert < top_k) totals.active.Add(spec.shape, times);
    }
  };
  add(OpeningTensors(config), 1, false);
  // Of the embedding one row is read; where the table is the head too, all of it.
  if (!config.tie_word_embeddings) {
    totals.active.Add(config.hidden_size);
    totals.active.Add({config.vocab_size, config.hidden_size}, -1);
  }
  const std::int64_t layers = config.num_hidden_layers;
  const std::int64_t all_layers = layers + config.num_nextn_predict_layers;
  std::int64_t count[2][2] = {};  // [mtp][moe]
  for (std::int64_t i = 0; i < all_layers; ++i) ++count[i >= layers ? 1 : 0][config.IsMoeLayer(i) ? 1 : 0];
  for (const bool mtp : {false, true}) {
    for (const bool moe : {false, true}) {
      const std::int64_t times = count[mtp ? 1 : 0][moe ? 1 : 0];
      if (times == 0) continue;
      add(mtp ? LayerTable(config).Mtp(moe) : LayerTable(config).Layer(moe), times, mtp);
    }
  }
  add(ClosingTensors(config), 1, false);
  return totals;
}

// Tables that older exports carry and that follow from the config.
bool IsHarmless(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

// "3 missing: a; b; c", the first 20.
std::string List(const std::vector<std::string>& faults, std::string_view kind) {
  constexpr std::size_t kShown = 20;
  const std::size_t shown = std::min(faults.size(), kShown);
  std::string text = fmt::format("{} {}: {}", faults.size(), kind,
                                 fmt::join(faults.begin(), faults.begin() + static_cast<std::ptrdiff_t>(shown), "; "));
  if (shown < faults.size()) text += fmt::format("; and {} more", faults.size() - shown);
  return text;
}

// Published derivatives often leave out the layers for multi-token prediction and keep the config that promises them.
bool OnlyMtpIsMissing(const ModelConfig& config, const TensorReport& report) {
  if (config.num_nextn_predict_layers == 0 || report.missing.empty()) return false;
  std::size_t required = 0;
  for (std::int64_t j = 0; j < config.num_nextn_predict_layers; ++j) {
    for (const TensorSpec& spec : LayerTensors(config, config.num_hidden_layers + j)) required += spec.required ? 1 : 0;
  }
  // Missing ones are listed in the model's order, these layers last.
  return report.missing.size() == required &&
         report.missing.front().starts_with(fmt::format("model.layers.{}.", config.num_hidden_layers));
}

}  // namespace

void CheckTotals(Fields* fields, const ModelConfig& config) {
  // Before anything is listed: the names of one layer's experts alone could fill the memory.
  const std::int64_t layers = config.num_hidden_layers + config.num_nextn_predict_layers;
  const std::int64_t experts = config.moe ? config.moe->n_routed_experts : 0;
  const auto too_many = [&] {
    fields->FailText(
        fmt::format("num_hidden_layers and n_routed_experts: expected a model of at most {} tensors, found "
                    "{} layers of {} experts",
                    kMaxTensors, layers, experts));
  };
  if (layers > kMaxTensors || experts > kMaxTensors / 3) return too_many();
  const Totals totals = CountAll(config);
  if (!totals.tensors.fits() || totals.tensors.value() > kMaxTensors) return too_many();
  for (const Sum* sum : {&totals.total, &totals.mtp}) {
    if (!sum->fits() || sum->value() > kMaxParameters) {
      return fields->FailText(fmt::format("dims: expected at most 2^50 parameters in all, found {}",
                                          sum->fits() ? std::to_string(sum->value()) : "more than 2^63"));
    }
  }
}

std::vector<TensorSpec> ExpectedTensors(const ModelConfig& config) {
  std::vector<TensorSpec> tensors = OpeningTensors(config);
  const auto add_layer = [&](std::int64_t i) {
    const std::string prefix = fmt::format("model.layers.{}.", i);
    for (TensorSpec& spec : LayerTensors(config, i)) {
      spec.name.insert(0, prefix);
      tensors.push_back(std::move(spec));
    }
  };
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) add_layer(i);
  for (TensorSpec& spec : ClosingTensors(config)) tensors.push_back(std::move(spec));
  for (std::int64_t j = 0; j < config.num_nextn_predict_layers; ++j) add_layer(config.num_hidden_layers + j);
  return tensors;
}

TensorReport CheckTensors(const ModelConfig& config, const io::Checkpoint& checkpoint) {
  TensorReport report;
  const std::vector<TensorSpec> expected = ExpectedTensors(config);
  std::vector<std::string_view> names;
  std::vector<std::string_view> products;
  names.reserve(expected.size());
  for (const TensorSpec& spec : expected) {
    names.push_back(spec.name);
    if (spec.product) products.push_back(spec.name);
    const io::Tensor* tensor = checkpoint.Find(spec.name);
    if (tensor != nullptr) {
      if (auto fault = PlaceFault(config, spec, *tensor, checkpoint)) report.mismatched.push_back(std::move(*fault));
    } else if (spec.required) {
      report.missing.push_back(fmt::format("{}: expected {}", spec.name, io::ShapeText(spec.shape)));
    }
  }
  std::sort(names.begin(), names.end());
  std::sort(products.begin(), products.end());
  for (const io::Tensor& tensor : checkpoint.tensors()) {
    if (std::binary_search(names.begin(), names.end(), std::string_view(tensor.name)) || IsHarmless(tensor.name)) {
      continue;
    }
    // Scales were looked at with their product; a product that is not there is what is missing.
    const std::optional<std::string_view> product = ProductOf(tensor.name);
    if (config.fp8 && product && std::binary_search(products.begin(), products.end(), *product)) continue;
    report.extra.push_back(fmt::format("{} {}", io::Printable(tensor.name), io::Describe(tensor)));
  }
  return report;
}

Status RequireTensors(const ModelConfig& config, const io::Checkpoint& checkpoint) {
  const TensorReport report = CheckTensors(config, checkpoint);
  std::vector<std::string> parts;
  if (!report.missing.empty()) parts.push_back(List(report.missing, "missing"));
  if (!report.mismatched.empty()) parts.push_back(List(report.mismatched, "of another shape or type"));
  if (!report.extra.empty()) parts.push_back(List(report.extra, "that the config does not know"));
  if (parts.empty()) return {};
  if (OnlyMtpIsMissing(config, report)) {
    parts.push_back(
        fmt::format("these are all of its multi-token-prediction layers (num_nextn_predict_layers: expected 0 "
                    "for a checkpoint without them, found {})",
                    config.num_nextn_predict_layers));
  }
  return Error{fmt::format("the checkpoint's tensors do not fit its config: {}", fmt::join(parts, "; "))};
}

ParameterCount CountParameters(const ModelConfig& config) {
  const Totals totals = CountAll(config);
  MLA_CHECK(totals.total.fits() && totals.active.fits() && totals.mtp.fits());
  return {totals.total.value(), totals.active.value(), totals.mtp.value()};
}

}  // namespace mla::contract
