// The feed-forward block: x += mlp(norm(x)), dense or a mixture of experts.
#ifndef MLA_LAYERS_MLP_H_
#define MLA_LAYERS_MLP_H_

#include <cstdint>

#include "contract/config.h"
#include "layers/meter.h"
#include "layers/parts.h"
#include "layers/step.h"
#include "mla/executor.h"
#include "ops/gemm.h"
#include "weights/weights.h"

namespace mla::layers {

struct MlpContext {
  const contract::ModelConfig& config;
  const ops::OpKernels& kernels;
  const RouteFn& route;
  Executor& executor;
  const Workspace& ws;
  StepMeter* measured = nullptr;  // null: nobody measures

  ops::GemmContext gemm() const { return ws.Gemm(executor, kernels, CountsOf(measured)); }
};

// In place on ws.x [rows, hidden]; `index` is the layer's. For experts the order of sums is fixed for each token: the
// residual, the shared experts, then the chosen ones by rank.
void RunMlp(const MlpContext& context, const weights::Layer& layer, std::int64_t index, const Batch& batch);

}  // namespace mla::layers

#endif  // MLA_LAYERS_MLP_H_
