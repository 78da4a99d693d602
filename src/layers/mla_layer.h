// The attention block: x += o_proj(attention(norm(x))), its keys written to the cache on the way. In three stages, so
// that each can be looked at by itself.
#ifndef MLA_LAYERS_MLA_LAYER_H_
#define MLA_LAYERS_MLA_LAYER_H_

#include <cstdint>

#include "contract/config.h"
#include "layers/meter.h"
#include "layers/parts.h"
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
  const AttendFn& attend;
  Executor& executor;
  const Workspace& ws;
  StepMeter* measured = nullptr;  // null: nobody measures

  ops::GemmContext gemm() const { return ws.Gemm(executor, kernels, CountsOf(measured)); }
};

// ws.x [rows, hidden] -> ws.normed, ws.q, and each row's latent and k_pe in its slot of the cache.
void ProjectAndStore(const MlaContext& context, const weights::Layer& layer, const CacheLayerView& cache,
                     const Batch& batch);
// ws.q and the cache -> ws.attended.
void Attend(const MlaContext& context, const weights::Layer& layer, const CacheLayerView& cache, const Batch& batch);
// ws.x += residual_scale * o_proj(ws.attended).
void AddAttention(const MlaContext& context, const weights::Layer& layer, std::int64_t rows);

}  // namespace mla::layers

#endif  // MLA_LAYERS_MLA_LAYER_H_
