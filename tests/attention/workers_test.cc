// Bits do not depend on how many workers share the work; a workspace used again holds nothing of the last call.
#include <gtest/gtest.h>

#include "attention/harness.h"

namespace mla::testing {
namespace {

void ExpectSameOnAnyNumber(const TestWeights& weights, const std::vector<TestSequence>& sequences, std::int64_t chunk,
                           std::int64_t expand_bytes) {
  const TestPaging paging{.dtype = DType::kBF16};
  const auto run = [&](int workers) {
    return RunAttention(weights, sequences, paging, 0.25,
                        {.kernels = "", .workers = workers, .chunk = chunk, .expand_bytes = expand_bytes});
  };
  const TestOutput one = run(1);
  for (const int workers : {2, 3, 8}) {
    const TestOutput many = run(workers);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const std::string label = std::to_string(workers) + " workers, sequence " + std::to_string(i);
      ExpectSameBits(many.out[i], one.out[i], label);
      ExpectSameBits(many.lse[i], one.lse[i], label + " lse");
    }
  }
}

TEST(Workers, AnyNumberGivesTheSameBits) {
  for (const std::int64_t heads : {1, 9}) {
    std::mt19937_64 rng(31);
    const MlaDims dims{heads, 9, 4, 7, 18};
    const TestWeights weights = RandomWeights(dims, WeightDType::kBF16, rng);
    std::vector<TestSequence> sequences;
    for (const Form form : {Form::kAbsorbed, Form::kMha}) {
      sequences.push_back(RandomSequence(dims, 1, 2100, form, rng));
      sequences.push_back(RandomSequence(dims, 20, 1040, form, rng));
      sequences.push_back(RandomSequence(dims, 3, 5, form, rng));
    }
    ExpectSameOnAnyNumber(weights, sequences, 0, std::int64_t{64} << 20);
    ExpectSameOnAnyNumber(weights, sequences, 13, 1 << 18);  // pieces, and the workspace used again
  }
}

}  // namespace
}  // namespace mla::testing
