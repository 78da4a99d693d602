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
  WeightDType kept = WeightDType::kBF16;  // as asked for
  std::uint64_t fingerprint = 0;          // of config.json's bytes and the weights'
};

namespace model {

// A model's files, opened and checked, nothing packed yet: what planning needs.
struct Opened {
  contract::ModelConfig config;
  io::Checkpoint checkpoint;
  ModelInfo info;
  std::uint64_t config_hash = 0;  // of config.json's bytes
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
