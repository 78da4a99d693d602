// Logits of fp8 checkpoints: the production transformer against the float64 reference, each with its own reading.
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/tensors.h"
#include "reference/reference.h"
#include "testing/forward.h"
#include "testing/fp8_checkpoint.h"
#include "testing/models.h"

namespace mla::testing {
namespace {

// The bound of the transformer's own test: fp32 sums of some hundred products. Weights that are kept in F32 add the one
// rounding of a product, 2^-24.
constexpr double kFp8Tolerance = 1e-5;

void ExpectNear(const TinyOptions& tiny, const Fp8Options& fp8, Form form) {
  const TempDir dir;
  WriteFp8Checkpoint(dir.File("fp8"), dir.File("wide"), TinyConfigJson(tiny), 21, fp8);
  const auto config = Need(contract::LoadConfig(dir.File("fp8")));
  const auto checkpoint = Need(io::Checkpoint::Open(dir.File("fp8")));
  const auto reference = Need(reference::ReferenceModel::Load(config, checkpoint, config.max_position_embeddings));
  const auto ids = RandomIds(40, tiny.vocab_size, 3);
  auto state = reference.NewState();
  const std::vector<double> exact = reference.Append(state, ids);
  ForwardOptions options;
  options.forms = {{40, form}};
  const auto pool = MakeThreadPool(1);
  const std::vector<float> found = ForwardLogits(LoadModel(dir.File("fp8"), WeightDType::kF32), ids, options, *pool);
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    difference += (exact[i] - static_cast<double>(found[i])) * (exact[i] - static_cast<double>(found[i]));
    norm += exact[i] * exact[i];
  }
  EXPECT_LE(std::sqrt(difference / norm), kFp8Tolerance);
}

TEST(Fp8Logits, AreTheReferences) {
  for (const Form form : {Form::kMha, Form::kAbsorbed}) {
    ExpectNear({}, {}, form);
    ExpectNear({}, {20, 24, DType::kF32, true}, form);
    ExpectNear(OddOptions(), {24, 16, DType::kF8E8M0, false}, form);
    ExpectNear(HalfSplitOptions(), {5, 7, DType::kBF16, false}, form);
  }
}

}  // namespace
}  // namespace mla::testing
