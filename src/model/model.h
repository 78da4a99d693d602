// The parts of a loaded model, for the folders above.
#ifndef MLA_MODEL_MODEL_H_
#define MLA_MODEL_MODEL_H_

#include "contract/config.h"
#include "contract/generation.h"
#include "layers/transformer.h"  // engines make transformers over a model: they include this header for it
#include "mla/model.h"
#include "weights/weights.h"

namespace mla {

struct Model::Impl {
  contract::ModelConfig config;
  weights::ModelWeights weights;
  ModelInfo info;
};

namespace model {

// A model's files, opened and checked, nothing packed yet: what planning needs.
struct Opened {
  contract::ModelConfig config;
  io::Checkpoint checkpoint;
  ModelInfo info;
};

// Fails as Model::Load does.
Result<Opened> Open(const std::string& dir);

// Weights' bytes once loaded.
std::int64_t PlannedWeightBytes(const Opened& opened, WeightDType keep);

// Packs what Open has checked. `opened` may go afterwards.
Result<Model> LoadOpened(const Opened& opened, const LoadOptions& options, Executor& executor);

}  // namespace model

}  // namespace mla

#endif  // MLA_MODEL_MODEL_H_
