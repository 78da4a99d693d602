// The attention block: x += o_proj(attention(norm(x))), its keys written to the cache on the way.
#ifndef MLA_LAYERS_MLA_LAYER_H_
#define MLA_LAYERS_MLA_LAYER_H_

#include "contract/config.h"
#include "layers/step.h"
#include "mla/attention.h"
#include "mla/executor.h"
#include "ops/gemm.h"
#include "weights/weights.h"

namespace mla::layers {

struct MlaContext {
  const contract::ModelConfig& config;
  const ops::OpKernels& kernels;
  const RopeTable& rope;
  MlaAttention& attention;
  Executor& executor;
  const Workspace& ws;
};

// In place on ws.x [rows, hidden].
void RunMlaLayer(const MlaContext& context, const weights::Layer& layer, const CacheLayerView& cache,
                 const Batch& batch);

}  // namespace mla::layers

#endif  // MLA_LAYERS_MLA_LAYER_H_
