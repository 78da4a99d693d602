// A whole attention layer as the engine runs it (layers/mla_layer.h), beside its kernels by themselves.
#ifndef MLA_BENCH_LAYER_BENCH_H_
#define MLA_BENCH_LAYER_BENCH_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/cpu_info.h"
#include "bench/case_result.h"
#include "bench/probe.h"
#include "contract/config.h"
#include "layers/step.h"
#include "mla/attention.h"
#include "mla/cache.h"
#include "mla/result.h"
#include "weights/weights.h"

namespace mla::bench {

struct LayerPlan {
  std::string name;
  contract::ModelConfig config;
  std::optional<Form> form;  // empty: the cheaper one, by the shipped table
  DType kv_dtype = DType::kBF16;
  std::int64_t keys = 1;      // S, the new rows included
  std::int64_t max_rows = 1;  // T
  // Bytes of other memory that are read before each run, of the layer and of a kernel, so that rows and weights come
  // from memory as they do in a model of many layers; 0: none.
  std::int64_t working_set = 0;
  bool profile = false;  // tell the runs' phases
};

// FLOPs of the layer's products and of its attention by the pairs that causality leaves, with the projections by
// kv_b_proj; bytes of weights and cache rows, each once. Weights in bf16.
Work LayerWork(const LayerPlan& plan, Form form, std::int64_t rows, Isa isa);

class LayerBench {
 public:
  // Bytes that Create and Run allocate.
  static std::int64_t PlannedBytes(const LayerPlan& plan, int workers);
  // Random rows and weights, in bf16. Fails where memory can't be had.
  static Result<LayerBench> Create(const LayerPlan& plan, Executor& executor);

  // `rows` new tokens, at most the plan's and its keys. Before each run of the layer each kernel is run by itself, its
  // weights and cache rows from memory, inputs and outputs of products from the caches: what the bench of products
  // finds. Precondition: the machine has `isa`, and its kernels pass their self-test; the probe has the same executor.
  CaseResult Run(Probe& probe, Isa isa, std::int64_t rows, const Repeats& repeats);

 private:
  class Case;
  explicit LayerBench(const LayerPlan& plan);
  void Place(int workers, Carver* carver);
  Status Fill(Executor& executor);
  layers::StepLimits Limits(int workers) const;
  Form FormFor(std::int64_t rows) const;
  void EmptyCaches(Probe& probe) const;

  LayerPlan plan_;
  Buffer buffer_;
  weights::Layer layer_;
  std::byte* other_ = nullptr;   // [working_set]
  std::byte* source_ = nullptr;  // of the largest matrix
  float* kv_b_ = nullptr;        // [H (N+V), R], before it is packed
  float* norms_ = nullptr;       // ones, for the longest
  float* x_ = nullptr;           // [max_rows, hidden]
  layers::Workspace ws_;
  std::vector<std::int32_t> pages_;
  std::optional<LatentCache> cache_;
  std::optional<RopeTable> rope_;
};

}  // namespace mla::bench

#endif  // MLA_BENCH_LAYER_BENCH_H_
