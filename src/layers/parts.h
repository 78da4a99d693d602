// What a transformer is made of, each part replaceable: a path under test gets one part of its own, and the proofs
// (src/verify) watch the stages of the very path that production runs.
#ifndef MLA_LAYERS_PARTS_H_
#define MLA_LAYERS_PARTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "layers/step.h"
#include "mla/attention.h"
#include "mla/executor.h"
#include "ops/kernels.h"
#include "ops/routing.h"

namespace mla::layers {

// As MlaAttention::Run.
using AttendFn = std::function<void(const CacheLayerView& cache, const KvBWeights& weights,
                                    std::span<const AttentionSequence> sequences, const float* q, float* out,
                                    float* lse, Executor& executor)>;

// One token's routing: as ops::RouteToken, and where the token stands.
struct RouteCall {
  std::int64_t layer;
  std::int64_t position;
  const ops::RouterSpec& spec;
  const float* logits;  // [experts]
  const float* bias;    // [experts], or null
  float* scratch;       // ops::RouteScratch floats
  std::int32_t* index;  // [top_k]
  float* weight;        // [top_k]
};
// Called by several threads at a time.
using RouteFn = std::function<void(const RouteCall& call)>;
// Production's own.
inline void RouteByOps(const RouteCall& c) { ops::RouteToken(c.spec, c.logits, c.bias, c.scratch, c.index, c.weight); }

// Points of a layer at which the workspace is worth a look.
enum class Stage : std::uint8_t {
  kEntered,         // x is the layer's input
  kProjected,       // normed, q_a_kv_a (normed and rotated), q; the rows are in the cache
  kAttended,        // attended
  kAttentionAdded,  // x after o_proj
  kDone,            // x after the feed-forward; normed, router_logits, expert, expert_weight are its own
};
using ObserveFn = std::function<void(Stage stage, std::int64_t layer, const Workspace& ws, const Batch& batch)>;

// A part that is empty is production's own.
struct Parts {
  const ops::OpKernels* kernels = nullptr;
  std::shared_ptr<const RopeTable> rope;  // of every position that a batch will have
  AttendFn attend;
  RouteFn route;
  ObserveFn observe;  // empty: nobody looks
};

}  // namespace mla::layers

#endif  // MLA_LAYERS_PARTS_H_
