#include "reference/reference.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "reference/layer.h"
#include "reference/rope.h"
#include "reference/vector_math.h"
#include "reference/weights.h"

namespace mla::reference {

struct ReferenceModel::Impl {
  contract::ModelConfig config;
  ModelWeights weights;
  std::vector<double> frequencies;  // [P/2]

  const Matrix& head() const { return weights.lm_head.empty() ? weights.embed_tokens : weights.lm_head; }

  std::vector<RopeAngles> Angles(std::int64_t first, std::int64_t count) const {
    std::vector<RopeAngles> angles;
    for (std::int64_t t = first; t < first + count; ++t) angles.push_back(AnglesAt(config.rope, frequencies, t));
    return angles;
  }

  Matrix Logits(const Matrix& x, const Matrix& table) const {
    Matrix logits = Product(x, table);
    for (double& logit : logits.values) logit *= config.logit_scale;
    return logits;
  }

  Matrix Embed(const Matrix& table, std::span<const std::int32_t> ids) const {
    Matrix x = Zeros(static_cast<std::int64_t>(ids.size()), config.hidden_size);
    for (std::size_t t = 0; t < ids.size(); ++t) {
      MLA_CHECK_GE(ids[t], 0);
      MLA_CHECK_LT(ids[t], config.vocab_size);
      AddScaled(config.embedding_scale, table.row(ids[t]), x.row(static_cast<std::int64_t>(t)), x.cols);
    }
    return x;
  }
};

struct ReferenceModel::State::Impl {
  std::int64_t length = 0;
  std::vector<LayerCache> layers;
  bool stopped = false;  // a call ended early: some layers are ahead of others
};

ReferenceModel::State::State(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ReferenceModel::State::State(State&&) noexcept = default;
ReferenceModel::State& ReferenceModel::State::operator=(State&&) noexcept = default;
ReferenceModel::State::~State() = default;
std::int64_t ReferenceModel::State::length() const { return impl_->length; }

ReferenceModel::ReferenceModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ReferenceModel::ReferenceModel(ReferenceModel&&) noexcept = default;
ReferenceModel& ReferenceModel::operator=(ReferenceModel&&) noexcept = default;
ReferenceModel::~ReferenceModel() = default;
const contract::ModelConfig& ReferenceModel::config() const { return impl_->config; }

Result<ReferenceModel> ReferenceModel::Load(const contract::ModelConfig& config, const io::Checkpoint& checkpoint,
                                            std::int64_t context) {
  MLA_CHECK_EQ(config.rope.dim, config.qk_rope_head_dim);
  auto impl = std::make_unique<Impl>();
  impl->config = config;
  MLA_ASSIGN_OR_RETURN(impl->weights, LoadWeights(config, checkpoint));
  impl->frequencies = RopeFrequencies(config.rope, context);
  return ReferenceModel(std::move(impl));
}

ReferenceModel::State ReferenceModel::NewState() const {
  auto impl = std::make_unique<State::Impl>();
  impl->layers.assign(static_cast<std::size_t>(config().num_hidden_layers), EmptyCache(config()));
  return State(std::move(impl));
}

std::vector<double> ReferenceModel::Append(State& state, std::span<const std::int32_t> ids, std::vector<double>* hidden,
                                           const std::function<bool()>& stop) const {
  MLA_CHECK(!ids.empty());
  State::Impl& past = *state.impl_;
  MLA_CHECK(!past.stopped);
  const ModelWeights& w = impl_->weights;
  const auto count = static_cast<std::int64_t>(ids.size());
  const std::vector<RopeAngles> angles = impl_->Angles(past.length, count);

  Matrix x = impl_->Embed(w.embed_tokens, ids);
  for (std::size_t i = 0; i < w.layers.size(); ++i) {
    if (stop && stop()) {
      past.stopped = true;
      return {};
    }
    x = LayerForward(config(), w.layers[i], angles, x, past.layers[i]);
  }
  past.length += count;
  x = RmsNormRows(x, w.norm, config().rms_norm_eps);
  Matrix logits = impl_->Logits(x, impl_->head());
  if (hidden != nullptr) *hidden = std::move(x.values);
  return std::move(logits.values);
}

std::vector<double> ReferenceModel::Draft(std::span<const std::int32_t> ids, std::span<const double> hidden) const {
  MLA_CHECK(impl_->weights.mtp.has_value());
  MLA_CHECK(!ids.empty());
  const MtpWeights& w = *impl_->weights.mtp;
  const std::int64_t width = config().hidden_size;
  const auto rows = static_cast<std::int64_t>(ids.size()) - 1;
  MLA_CHECK_EQ(static_cast<std::int64_t>(hidden.size()), (rows + 1) * width);

  // DeepSeek-V3 equation 21. The paper writes the hidden state first; DeepSeek's checkpoints have the columns of M_1 in
  // the other order: embedding, then hidden state.
  const Matrix next =
      impl_->Embed(w.embed_tokens.empty() ? impl_->weights.embed_tokens : w.embed_tokens, ids.subspan(1));
  Matrix pair = Zeros(rows, 2 * width);
  for (std::int64_t t = 0; t < rows; ++t) {
    RmsNorm(next.row(t), w.enorm, config().rms_norm_eps, pair.row(t));
    RmsNorm(hidden.data() + t * width, w.hnorm, config().rms_norm_eps, pair.row(t) + width);
  }
  // Equation 22: the layer's own, causal pass over the rows.
  LayerCache cache = EmptyCache(config());
  const Matrix x = LayerForward(config(), w.layer, impl_->Angles(0, rows), Product(pair, w.eh_proj), cache);
  // Equation 23, with the head's own norm.
  const Matrix normed = RmsNormRows(x, w.norm, config().rms_norm_eps);
  Matrix logits = impl_->Logits(normed, w.head.empty() ? impl_->head() : w.head);
  return std::move(logits.values);
}

}  // namespace mla::reference
