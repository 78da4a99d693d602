// The production transformer against the float64 reference, over families of tiny random models.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/tensors.h"
#include "io/checkpoint.h"
#include "reference/reference.h"
#include "testing/forward.h"
#include "testing/models.h"

namespace mla::testing {
namespace {

// A model is fp32 sums of some hundred products in each of a dozen places: errors of 1e-6 or so. A wrong term is 1e-2
// and more. Where a router's choice hangs on less than fp32 can tell, the row is another model's; no seed here meets
// that.
constexpr double kTolerance = 1e-5;

struct Loaded {
  Model model;
  reference::ReferenceModel reference;
};

Loaded Load(const TinyOptions& options, std::uint64_t seed, DType source, int shards = 1) {
  const TempDir dir;
  WriteTinyCheckpoint(dir.path(), TinyConfigJson(options), seed, source, shards);
  const auto config = Need(contract::LoadConfig(dir.path()));
  const auto checkpoint = Need(io::Checkpoint::Open(dir.path()));
  Need(contract::RequireTensors(config, checkpoint));
  return {LoadModel(dir.path(), WeightDType::kF32),
          Need(reference::ReferenceModel::Load(config, checkpoint, config.max_position_embeddings))};
}

// |production - reference| / |reference| of each row, the worst of them.
void ExpectNear(const Loaded& loaded, std::span<const std::int32_t> ids, Form form, std::int64_t chunk) {
  auto state = loaded.reference.NewState();
  const std::vector<double> exact = loaded.reference.Append(state, ids);
  ForwardOptions options;
  options.forms = {{static_cast<std::int64_t>(ids.size()), form}};
  options.chunk = chunk;
  options.page_tokens = 5;
  const auto pool = MakeThreadPool(1);
  const std::vector<float> found = ForwardLogits(loaded.model, ids, options, *pool);
  ASSERT_EQ(found.size(), exact.size());
  const std::size_t vocab = found.size() / ids.size();
  for (std::size_t row = 0; row < ids.size(); ++row) {
    double difference = 0;
    double norm = 0;
    for (std::size_t i = row * vocab; i < (row + 1) * vocab; ++i) {
      difference += (exact[i] - static_cast<double>(found[i])) * (exact[i] - static_cast<double>(found[i]));
      norm += exact[i] * exact[i];
    }
    ASSERT_GT(norm, 0);
    ASSERT_LE(std::sqrt(difference / norm), kTolerance) << FormName(form) << ", row " << row;
  }
}

void ExpectNearInBothForms(const TinyOptions& options, std::uint64_t seed, DType source = DType::kF32) {
  const Loaded loaded = Load(options, seed, source);
  const auto ids = RandomIds(75, options.vocab_size, seed);
  for (const Form form : {Form::kAbsorbed, Form::kMha}) {
    ASSERT_NO_FATAL_FAILURE(ExpectNear(loaded, ids, form, 75));
    ASSERT_NO_FATAL_FAILURE(ExpectNear(loaded, ids, form, 13));
  }
}

TEST(Transformer, OfTheUsualShape) { ExpectNearInBothForms({}, 1); }
TEST(Transformer, OfOddShape) { ExpectNearInBothForms(OddOptions(), 2); }
TEST(Transformer, OfHalfSplitRope) { ExpectNearInBothForms(HalfSplitOptions(), 3); }
TEST(Transformer, FromBf16AndF16) {
  ExpectNearInBothForms({}, 4, DType::kBF16);
  ExpectNearInBothForms(HalfSplitOptions(), 4, DType::kF16);
}

TEST(Transformer, ScalesOfYarnApart) {
  TinyOptions o;
  o.rope_factor = 40;
  o.original_max_position_embeddings = 32;  // positions beyond it, too
  o.mscale = 0.707;
  o.mscale_all_dim = 1.3;
  ExpectNearInBothForms(o, 5);
}

TEST(Transformer, ExpertsInEveryOtherLayerAndTwoShared) {
  TinyOptions o;
  o.num_hidden_layers = 4;
  o.moe_layer_freq = 2;
  o.first_k_dense_replace = 0;
  o.n_shared_experts = 2;
  o.n_routed_experts = 12;
  o.n_group = 3;
  o.topk_group = 1;
  o.num_experts_per_tok = 4;
  ExpectNearInBothForms(o, 6);
}

TEST(Transformer, AnMtpLayerChangesNothing) {
  TinyOptions o;
  o.num_nextn_predict_layers = 1;
  ExpectNearInBothForms(o, 7);
}

// Shapes at random, each part on or off by the seed. Whatever is normed has 16 channels or more, and rows of logits as
// many: of a handful, all may happen to be near zero, and the norm then multiplies their rounding.
TinyOptions AtRandom(std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  const auto upto = [&](std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(most - least + 1));
  };
  TinyOptions o;
  o.vocab_size = upto(17, 150);
  o.hidden_size = upto(17, 90);
  o.intermediate_size = upto(1, 70);
  o.num_hidden_layers = upto(1, 4);
  o.num_attention_heads = upto(1, 9);
  o.q_lora_rank.reset();
  if (rng() % 2 == 0) o.q_lora_rank = upto(17, 50);
  o.kv_lora_rank = upto(17, 70);
  o.qk_nope_head_dim = upto(1, 40);
  o.qk_rope_head_dim = 2 * upto(0, 12);
  o.v_head_dim = upto(1, 40);
  o.tie_word_embeddings = rng() % 2 == 0;
  o.rope_interleave = rng() % 2 == 0;
  o.rope_scaling = rng() % 2 == 0 ? RopeScaling::kYarn : RopeScaling::kNone;
  o.original_max_position_embeddings = upto(16, 100);
  o.mscale = 0.1 * static_cast<double>(upto(1, 20));
  o.mscale_all_dim = 0.1 * static_cast<double>(upto(1, 20));
  if (rng() % 3 == 0) o.n_routed_experts.reset();
  if (o.n_routed_experts) {
    o.n_group = upto(1, 4);
    o.n_routed_experts = o.n_group * upto(2, 5);
    o.topk_group = upto(1, o.n_group);
    o.num_experts_per_tok = upto(1, std::min<std::int64_t>(4, o.topk_group * (*o.n_routed_experts / o.n_group)));
    o.n_shared_experts = upto(0, 2);
    o.moe_intermediate_size = upto(1, 40);
    o.norm_topk_prob = rng() % 2 == 0 && o.num_experts_per_tok > 1;
    o.first_k_dense_replace = upto(0, o.num_hidden_layers);
    o.moe_layer_freq = upto(1, 2);
  }
  return o;
}

class AtRandomShapes : public ::testing::TestWithParam<int> {};

TEST_P(AtRandomShapes, AreTheReference) {
  for (std::uint64_t i = 0; i < 8; ++i) {
    const std::uint64_t seed = 100 + 8 * static_cast<std::uint64_t>(GetParam()) + i;
    SCOPED_TRACE(TinyConfigJson(AtRandom(seed)));
    ASSERT_NO_FATAL_FAILURE(ExpectNearInBothForms(AtRandom(seed), seed));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, AtRandomShapes, ::testing::Range(0, 8));

}  // namespace
}  // namespace mla::testing
