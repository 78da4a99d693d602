// The whole model over one step: embeddings, layers, final norm; and logits for the rows asked for.
#ifndef MLA_LAYERS_TRANSFORMER_H_
#define MLA_LAYERS_TRANSFORMER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "contract/config.h"
#include "layers/meter.h"
#include "layers/parts.h"
#include "layers/step.h"
#include "mla/attention.h"
#include "mla/cache.h"
#include "mla/executor.h"
#include "mla/result.h"
#include "weights/weights.h"

namespace mla::layers {

// The attention that a step of these limits runs.
MlaAttention::Options AttentionOptions(const contract::ModelConfig& config, const StepLimits& limits,
                                       const std::string& kernels);

// Not copied, not moved: it refers to config and weights, which outlive it. One call at a time.
class Transformer {
 public:
  struct Memory {
    std::int64_t workspace = 0;  // of a step, attention's included
    std::int64_t tables = 0;     // rope
  };

  // Fails where memory can't be had, or the kernels ("" for the fastest that pass) are not for this machine or fail
  // their self-test. What `parts` holds stands in for production's own, and outlives this.
  static Result<std::unique_ptr<Transformer>> Create(const contract::ModelConfig& config,
                                                     const weights::ModelWeights& weights, const StepLimits& limits,
                                                     const std::string& kernels, const Parts& parts = {});
  // What Create will allocate, without parts.
  static Memory Planned(const contract::ModelConfig& config, const StepLimits& limits);

  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  // Takes the workspace's pages from the system, by all workers. Before the first Forward.
  void FirstTouch(Executor& executor);

  // Runs the batch, writing each row's keys to its slot in every layer. Returns the rows after the final norm, [rows,
  // hidden], valid until the next call. A row's bits depend on its sequence's tokens and forms alone
  // (MlaAttention::Run). Allocates nothing.
  const float* Forward(const Batch& batch, const LatentCache& cache, Executor& executor);

  // logits [rows.size(), vocab] of those rows of the last Forward.
  void Logits(std::span<const std::int32_t> rows, float* logits, Executor& executor) const;

  // Rows of the first MTP layer (DeepSeek-V3 report, equations 21 to 23): row i, from hidden states `from[i]` of what
  // Forward or ForwardMtp returned last and batch.ids[i], the token after the one that it belongs to. Keys go to the
  // batch's slots in the cache's layer num_hidden_layers. Returns the rows after the layer's own norm, as Forward does.
  // Precondition: StepLimits::mtp, and a model with such a layer. `from` is ascending. Allocates nothing.
  const float* ForwardMtp(const Batch& batch, std::span<const std::int32_t> from, const LatentCache& cache,
                          Executor& executor);
  // logits [rows.size(), vocab] of those rows of the last ForwardMtp.
  void MtpLogits(std::span<const std::int32_t> rows, float* logits, Executor& executor) const;

  // As MlaAttention::Forget.
  void Forget(std::uint64_t sequence) { attention_.Forget(sequence); }

  // Of the model's own layers.
  const AttentionCounters& counters() const { return attention_.counters(); }
  // Of the steps since the last reset, but for `steps` and `seconds`. Precondition: StepLimits::profile.
  StepProfile profile() const;
  void ResetProfile();
  const char* kernels() const { return attention_.kernels(); }
  const std::vector<RejectedKernels>& rejected_kernels() const { return attention_.rejected_kernels(); }
  Memory memory() const;

 private:
  Transformer(const contract::ModelConfig& config, const weights::ModelWeights& weights, MlaAttention attention,
              Parts parts, Buffer buffer, const StepLimits& limits);
  // Whom work is given to: the executor, with the meter before it where there is one.
  Executor& Watched(Executor& executor) const;
  void Look(Stage stage, std::int64_t layer, const Batch& batch) const;
  void RunLayer(const weights::Layer& layer, std::int64_t index, const Batch& batch, const LatentCache& cache,
                Executor& executor);
  void Embed(const Batch& batch, Executor& executor) const;
  void NormRows(const float* weight, std::int64_t rows, Executor& executor) const;
  void RunHead(const ops::PackedMatrix& head, std::span<const std::int32_t> rows, float* logits,
               Executor& executor) const;

  const contract::ModelConfig& config_;
  const weights::ModelWeights& weights_;
  MlaAttention attention_;
  Parts parts_;  // every part set but `observe`
  Buffer buffer_;
  Workspace ws_;
  std::unique_ptr<StepMeter> measured_;  // null: nobody measures
};

}  // namespace mla::layers

#endif  // MLA_LAYERS_TRANSFORMER_H_
