// A checkpoint put to the proof, with weights of its own that a test may spoil.
#ifndef MLA_TESTS_VERIFY_UNDER_PROOF_H_
#define MLA_TESTS_VERIFY_UNDER_PROOF_H_

#include <memory>
#include <string>
#include <utility>

#include "model/model.h"
#include "testing/models.h"
#include "verify/verify.h"

namespace mla::testing {

struct UnderProof {
  UnderProof(const std::string& dir, WeightDType weight_dtype, DType kv, int threads = 2)
      : opened(Need(model::Open(dir))), pool(MakeThreadPool(threads)), dtype(weight_dtype), kv_dtype(kv) {
    LoadOptions options;
    options.weights = weight_dtype;
    model = std::make_unique<Model>(Need(model::LoadOpened(opened, options, *pool)));
    weights = Need(weights::Load(opened.config, opened.checkpoint, weight_dtype, *pool, {}));
  }

  verify::Subject subject() const {
    verify::Subject s(opened.config, opened.checkpoint, *model, *pool);
    s.weights = &weights;
    s.weight_dtype = dtype;
    s.kv_dtype = kv_dtype;
    return s;
  }

  model::Opened opened;
  std::unique_ptr<Executor> pool;
  std::unique_ptr<Model> model;
  weights::ModelWeights weights;
  WeightDType dtype;
  DType kv_dtype;
};

}  // namespace mla::testing

#endif  // MLA_TESTS_VERIFY_UNDER_PROOF_H_
