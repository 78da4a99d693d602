// The made-up checkpoints that other tests stand on.
#include "testing/tiny_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/config.h"
#include "contract/tensors.h"
#include "io/checkpoint.h"
#include "testing/temp_dir.h"

namespace mla::testing {
namespace {

std::vector<float> Floats(const io::Tensor& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.elements()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (tensor.dtype == DType::kF32) {
      std::memcpy(&out[i], tensor.data + 4 * i, 4);
      continue;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, tensor.data + 2 * i, 2);
    out[i] = tensor.dtype == DType::kBF16 ? FloatFromBf16(bits) : FloatFromF16(bits);
  }
  return out;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
};

Moments MomentsOf(const std::vector<float>& values) {
  Moments m;
  for (const float v : values) m.mean += v;
  m.mean /= static_cast<double>(values.size());
  for (const float v : values) m.deviation += (v - m.mean) * (v - m.mean);
  m.deviation = std::sqrt(m.deviation / static_cast<double>(values.size()));
  return m;
}

TEST(TinyCheckpoint, FitsEveryKindOfConfig) {
  for (int kind = 0; kind < 7; ++kind) {
    TinyOptions o;
    if (kind == 1) o.q_lora_rank.reset(), o.rope_scaling = RopeScaling::kNone;
    if (kind == 2) o.n_routed_experts.reset();
    if (kind == 3) o.tie_word_embeddings = true, o.qk_rope_head_dim = 0;
    if (kind == 4) o.num_nextn_predict_layers = 2, o.moe_layer_freq = 2;
    if (kind == 5) o.rope_interleave = false, o.mscale = 0.7, o.mscale_all_dim = 0;
    if (kind == 6) o.n_shared_experts = 0, o.n_group = 1, o.topk_group = 1, o.first_k_dense_replace = 0;
    const TempDir dir;
    const int shards = 1 + kind % 4;
    WriteTinyCheckpoint(dir.File("model"), TinyConfigJson(o), 7, DType::kBF16, shards);
    const Result<contract::ModelConfig> config = contract::LoadConfig(dir.File("model"));
    ASSERT_TRUE(config.ok()) << config.error().message;
    const Result<io::Checkpoint> checkpoint = io::Checkpoint::Open(dir.File("model"));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    const Status fits = contract::RequireTensors(*config, *checkpoint);
    EXPECT_TRUE(fits.ok()) << fits.error().message;
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(dir.File("model"))) {
      files += entry.path().extension() == ".safetensors" ? 1 : 0;
    }
    EXPECT_EQ(files, shards);
  }
}

TEST(TinyCheckpoint, WeightsDependOnSeedAndNameAlone) {
  const TempDir dir;
  const std::string json = TinyConfigJson();
  WriteTinyCheckpoint(dir.File("a"), json, 1);
  WriteTinyCheckpoint(dir.File("b"), json, 1, DType::kBF16, 3);
  WriteTinyCheckpoint(dir.File("c"), json, 2);
  WriteTinyCheckpoint(dir.File("d"), json, 1, DType::kF32);
  WriteTinyCheckpoint(dir.File("e"), json, 1, DType::kF16);
  std::vector<io::Checkpoint> opened;
  for (const char* name : {"a", "b", "c", "d", "e"}) opened.push_back(io::Checkpoint::Open(dir.File(name)).value());
  std::vector<float> previous;
  for (const io::Tensor& tensor : opened[0].tensors()) {
    const std::vector<float> a = Floats(tensor);
    EXPECT_EQ(a, Floats(*opened[1].Find(tensor.name))) << tensor.name;
    EXPECT_NE(a, Floats(*opened[2].Find(tensor.name))) << tensor.name;
    EXPECT_NE(a, previous) << tensor.name;
    const std::vector<float> exact = Floats(*opened[3].Find(tensor.name));
    const std::vector<float> half = Floats(*opened[4].Find(tensor.name));
    for (std::size_t i = 0; i < exact.size(); ++i) {
      // Half a unit in the last place of 8 and 11 significant bits; f16's subnormals are 2^-24 apart.
      ASSERT_LE(std::fabs(a[i] - exact[i]), std::fabs(exact[i]) * 0x1p-8F) << tensor.name << " " << i;
      ASSERT_LE(std::fabs(half[i] - exact[i]), std::max(std::fabs(exact[i]) * 0x1p-11F, 0x1p-25F)) << tensor.name << i;
    }
    previous = a;
  }
}

TEST(TinyCheckpoint, WeightsHaveTheirScale) {
  TinyOptions o;
  o.hidden_size = 512;
  o.n_routed_experts = 64;
  const TempDir dir;
  WriteTinyCheckpoint(dir.path(), TinyConfigJson(o), 5, DType::kF32);
  const io::Checkpoint checkpoint = io::Checkpoint::Open(dir.path()).value();
  const auto expect = [&](const char* name, double mean, double deviation) {
    const std::vector<float> values = Floats(*checkpoint.Find(name));
    const Moments m = MomentsOf(values);
    // Five standard errors: of a mean d / sqrt(n), of a deviation less than d / sqrt(n).
    const double slack = 5 * deviation / std::sqrt(static_cast<double>(values.size()));
    EXPECT_NEAR(m.mean, mean, slack) << name;
    EXPECT_NEAR(m.deviation, deviation, slack) << name;
  };
  expect("model.embed_tokens.weight", 0, 1);
  expect("model.layers.0.mlp.down_proj.weight", 0, 1 / std::sqrt(96.0));
  expect("lm_head.weight", 0, 1 / std::sqrt(512.0));
  expect("model.norm.weight", 1, 0.1);
  expect("model.layers.1.mlp.gate.e_score_correction_bias", 0, 0.05);
  const std::vector<float> bias = Floats(*checkpoint.Find("model.layers.1.mlp.gate.e_score_correction_bias"));
  EXPECT_LT(*std::min_element(bias.begin(), bias.end()), 0);
  EXPECT_GT(*std::max_element(bias.begin(), bias.end()), 0);
}

}  // namespace
}  // namespace mla::testing
