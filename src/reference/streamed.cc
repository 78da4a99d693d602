#include "reference/streamed.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/check.h"
#include "contract/tensors.h"
#include "mla/dtypes.h"
#include "reference/rope.h"
#include "reference/tasks.h"
#include "reference/tensor_reader.h"
#include "reference/weights.h"

namespace mla::reference {
namespace {

// Rows of the head's table that are widened at a time.
constexpr std::int64_t kVocabBlock = 1024;

const char* HeadName(const contract::ModelConfig& config) {
  return config.tie_word_embeddings ? "model.embed_tokens" : "lm_head";
}

// Whether keeping products in bf16 rounds nothing. Matrices that are never rounded may say no: that costs time alone.
bool AllBf16(const io::Checkpoint& checkpoint) {
  return std::all_of(checkpoint.tensors().begin(), checkpoint.tensors().end(), [](const io::Tensor& tensor) {
    return tensor.shape.size() < 2 || (tensor.known_dtype && tensor.dtype == DType::kBF16);
  });
}

// One run: its roundings, if any, and its residual stream.
struct Run {
  std::optional<Rounding> rounding;
  Matrix x;                      // [T, hidden]
  std::vector<double> distance;  // [rows] squares, of rounded runs

  Rounding* roundings() { return rounding ? &*rounding : nullptr; }
};

class Streamer {
 public:
  Streamer(const contract::ModelConfig& config, const io::Checkpoint& checkpoint, std::span<const std::int32_t> ids,
           const StreamedOptions& options)
      : config_(config), checkpoint_(checkpoint), ids_(ids), options_(options) {
    const std::vector<double> frequencies = RopeFrequencies(config.rope, options.context);
    for (std::int64_t t = 0; t < std::ssize(ids); ++t) angles_.push_back(AnglesAt(config.rope, frequencies, t));
    runs_.resize(static_cast<std::size_t>(options.rounded_runs) + 1);
    same_weights_ = !options.bf16.weights || AllBf16(checkpoint);
    for (std::size_t r = 1; r < runs_.size(); ++r) {
      runs_[r].rounding.emplace(r, options.bf16);
    }
  }

  // Work on every run from `first` on.
  template <class Work>
  void ForRuns(std::size_t first, Executor& executor, const Work& work) {
    ForTasks(executor, static_cast<std::int64_t>(runs_.size() - first),
             [&](std::int64_t i) { work(runs_[first + static_cast<std::size_t>(i)]); });
  }

  void Embed(Run& run) {
    const TensorReader reader(config_, checkpoint_, run.roundings());
    run.x = Zeros(std::ssize(ids_), config_.hidden_size);
    for (std::int64_t t = 0; t < run.x.rows; ++t) {
      const std::int32_t id = ids_[static_cast<std::size_t>(t)];
      const Matrix row = reader.Rows("model.embed_tokens", config_.vocab_size, config_.hidden_size, id, 1);
      AddScaled(config_.embedding_scale, row.row(0), run.x.row(t), run.x.cols);
    }
  }

  // `shared`: the layer's weights, where the run's roundings change none of them; null: it reads its own.
  void Layer(Run& run, std::int64_t layer, const LayerWeights* shared, const Choice* forced, Choice* chosen) {
    const TensorReader reader(config_, checkpoint_, run.roundings());
    LayerWeights own;
    if (shared == nullptr) own = LoadLayer(reader, layer);
    MlpWeights expert;
    LayerOptions options{run.roundings(), forced, chosen, [&](std::int64_t e) -> const MlpWeights& {
                           expert = LoadExpert(reader, layer, e);
                           return expert;
                         }};
    LayerCache cache = EmptyCache(config_);
    run.x = LayerForward(config_, shared != nullptr ? *shared : own, angles_, run.x, cache, options);
  }

  void FinalNorm(Run& run) {
    const TensorReader reader(config_, checkpoint_);
    Matrix rows = Zeros(run.x.rows - options_.first_logits, run.x.cols);
    std::copy_n(run.x.row(options_.first_logits), rows.values.size(), rows.values.data());
    const std::vector<double> weight = reader.Vector("model.norm.weight", config_.hidden_size);
    run.x = Inputs(NormRows(rows, weight, config_.rms_norm_eps, run.roundings()), run.roundings());
    run.distance.assign(static_cast<std::size_t>(rows.rows), 0.0);
  }

  Matrix Table(Run& run, std::int64_t first, std::int64_t count) {
    const TensorReader reader(config_, checkpoint_, run.roundings());
    return reader.Rows(HeadName(config_), config_.vocab_size, config_.hidden_size, first, count);
  }

  Matrix LogitsOf(Run& run, const Matrix& table) {
    Matrix logits = Product(run.x, table, run.roundings());
    for (double& logit : logits.values) logit *= config_.logit_scale;
    return logits;
  }

  // Logits of ids [first, first + count): the exact ones to `out`, the distances of the others added up.
  void LogitBlock(std::int64_t first, std::int64_t count, Executor& executor, StreamedResult* out) {
    const Matrix table = Table(runs_[0], first, count);
    const Matrix exact = LogitsOf(runs_[0], table);
    for (std::int64_t t = 0; t < exact.rows; ++t) {
      std::copy_n(exact.row(t), count, out->logits.data() + t * config_.vocab_size + first);
    }
    ForRuns(1, executor, [&](Run& run) {
      const Matrix rounded = LogitsOf(run, same_weights_ ? table : Table(run, first, count));
      for (std::int64_t t = 0; t < exact.rows; ++t) {
        for (std::int64_t i = 0; i < count; ++i) {
          run.distance[static_cast<std::size_t>(t)] += std::pow(rounded.row(t)[i] - exact.row(t)[i], 2);
        }
      }
    });
  }

  std::optional<StreamedResult> Go(Executor& executor) {
    StreamedResult out;
    ForRuns(0, executor, [&](Run& run) { Embed(run); });
    for (std::int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
      if (options_.stop && options_.stop()) return std::nullopt;
      const bool moe = config_.IsMoeLayer(layer);
      Choice& choice = out.choices.emplace_back();
      const TensorReader reader(config_, checkpoint_);
      const LayerWeights weights = LoadLayer(reader, layer);
      Layer(runs_[0], layer, &weights, nullptr, &choice);
      ForRuns(1, executor, [&](Run& run) {
        Layer(run, layer, same_weights_ ? &weights : nullptr, moe ? &choice : nullptr, nullptr);
      });
    }
    ForRuns(0, executor, [&](Run& run) { FinalNorm(run); });
    out.logits.resize(static_cast<std::size_t>(runs_[0].x.rows * config_.vocab_size));
    for (std::int64_t first = 0; first < config_.vocab_size; first += kVocabBlock) {
      if (options_.stop && options_.stop()) return std::nullopt;
      LogitBlock(first, std::min(kVocabBlock, config_.vocab_size - first), executor, &out);
    }
    for (std::size_t t = 0; t < runs_[0].distance.size(); ++t) {
      double squares = 0;
      for (std::size_t r = 1; r < runs_.size(); ++r) squares += runs_[r].distance[t];
      out.spread.push_back(std::sqrt(squares / std::max(1, options_.rounded_runs)));
    }
    return out;
  }

 private:
  const contract::ModelConfig& config_;
  const io::Checkpoint& checkpoint_;
  std::span<const std::int32_t> ids_;
  const StreamedOptions& options_;
  std::vector<RopeAngles> angles_;
  std::vector<Run> runs_;      // the first is exact
  bool same_weights_ = false;  // of all runs
};

}  // namespace

std::optional<StreamedResult> RunStreamed(const contract::ModelConfig& config, const io::Checkpoint& checkpoint,
                                          std::span<const std::int32_t> ids, const StreamedOptions& options,
                                          Executor& executor) {
  MLA_CHECK(!ids.empty());
  MLA_CHECK(options.first_logits >= 0 && options.first_logits < std::ssize(ids));
  return Streamer(config, checkpoint, ids, options).Go(executor);
}

double StreamedWork(const contract::ModelConfig& config, std::int64_t tokens, std::int64_t logit_rows) {
  const auto active = static_cast<double>(contract::CountParameters(config).active);
  const auto head = static_cast<double>(config.vocab_size) * static_cast<double>(config.hidden_size);
  return static_cast<double>(tokens) * std::max(active - head, 0.0) + static_cast<double>(logit_rows) * head;
}

std::int64_t StreamedBytes(const contract::ModelConfig& config, std::int64_t tokens, std::int64_t logit_rows,
                           int workers) {
  std::int64_t largest = 0;  // a layer's parameters without its routed experts, one of those beside them
  std::int64_t expert = 0;
  std::int64_t layer = 0;
  std::string at;
  for (const contract::TensorSpec& spec : contract::ExpectedTensors(config)) {
    std::int64_t elements = 1;
    for (const std::int64_t dim : spec.shape) elements *= dim;
    if (spec.name.rfind("model.layers.", 0) != 0) continue;
    const std::string prefix = spec.name.substr(0, spec.name.find('.', 13));
    if (prefix != at) layer = expert = 0;
    at = prefix;
    if (spec.expert == 0) expert += elements;
    if (spec.expert < 0) layer += elements;
    largest = std::max(largest, layer + expert);
  }
  const std::int64_t rows = tokens * (4 * config.hidden_size + 4 * config.intermediate_size +
                                      3 * config.num_attention_heads *
                                          (config.qk_nope_head_dim + config.qk_rope_head_dim + config.v_head_dim));
  const std::int64_t block = 2 * kVocabBlock * (config.hidden_size + logit_rows);
  // The exact run's weights stand beside those of the others at work.
  return 8 *
         ((largest + rows + block) * (workers + 1) + tokens * config.hidden_size * 9 + logit_rows * config.vocab_size);
}

}  // namespace mla::reference
