// What must hold whatever the weights are, on small random models and on the demo: each is an oracle of its own for
// shapes of the architecture that the golden values don't reach.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "reference/demo.h"
#include "reference/reference.h"
#include "reference/tensor_set.h"

namespace mla::reference {
namespace {

using contract::ModelConfig;
using testing::EditableTensor;
using testing::TensorSet;

const std::vector<std::int32_t> kIds = {3, 17, 5, 5, 11, 0, 22, 9, 2, 14, 1};

ModelConfig Tiny() {
  ModelConfig config;
  config.model_type = "deepseek_v3";
  config.vocab_size = 23;
  config.hidden_size = 20;
  config.intermediate_size = 28;
  config.num_hidden_layers = 3;
  config.num_nextn_predict_layers = 1;
  config.num_attention_heads = 3;
  config.q_lora_rank = 12;
  config.kv_lora_rank = 10;
  config.qk_nope_head_dim = 6;
  config.qk_rope_head_dim = 8;
  config.v_head_dim = 5;
  config.max_position_embeddings = 64;
  config.rope.scaling = RopeScaling::kYarn;
  config.rope.dim = 8;
  config.rope.theta = 1000;
  config.rope.factor = 8;
  config.rope.original_max_position_embeddings = 8;
  config.rope.beta_fast = 4;
  config.rope.mscale = 1.0;
  config.rope.mscale_all_dim = 0.5;
  config.moe.emplace();
  config.moe->n_routed_experts = 6;
  config.moe->num_experts_per_tok = 2;
  config.moe->n_shared_experts = 2;
  config.moe->moe_intermediate_size = 9;
  config.moe->n_group = 3;
  config.moe->topk_group = 2;
  config.moe->routed_scaling_factor = 1.5;
  config.moe->norm_topk_prob = true;
  config.first_k_dense_replace = 1;
  return config;
}

std::vector<double> LogitsOver(const ReferenceModel& model, std::span<const std::int32_t> ids = kIds) {
  auto state = model.NewState();
  return model.Append(state, ids);
}

std::vector<double> Drafts(const ReferenceModel& model) {
  auto state = model.NewState();
  std::vector<double> hidden;
  model.Append(state, kIds, &hidden);
  return model.Draft(kIds, hidden);
}

double MaxDifference(const std::vector<double>& a, const std::vector<double>& b) {
  MLA_CHECK_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// Same numbers in another order of additions. The longest sum here has some 30 terms and a value passes some 40 sums:
// 1e3 roundings of 1e-16, on logits of size 1 to 10.
constexpr double kReordered = 1e-12;

bool SameBits(std::span<const double> a, std::span<const double> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

void ExpectCutsDoNotMatter(const ReferenceModel& model, std::span<const std::int32_t> ids) {
  auto whole_state = model.NewState();
  std::vector<double> whole_hidden;
  const std::vector<double> whole = model.Append(whole_state, ids, &whole_hidden);
  for (const std::size_t cut : {1U, 7U, 64U}) {
    auto state = model.NewState();
    std::vector<double> logits;
    std::vector<double> hidden;
    for (std::size_t at = 0; at < ids.size(); at += cut) {
      std::vector<double> part;
      const auto rows = model.Append(state, ids.subspan(at, std::min(cut, ids.size() - at)), &part);
      logits.insert(logits.end(), rows.begin(), rows.end());
      hidden.insert(hidden.end(), part.begin(), part.end());
    }
    EXPECT_EQ(state.length(), static_cast<std::int64_t>(ids.size()));
    EXPECT_TRUE(SameBits(logits, whole)) << "cut " << cut;
    EXPECT_TRUE(SameBits(hidden, whole_hidden)) << "cut " << cut;
  }
}

TEST(Cuts, OfTheDemo) {
  ExpectCutsDoNotMatter(testing::DemoModel(testing::DemoConfig()), testing::GoldenIds("tokens_128"));
}

TEST(Cuts, OfATinyModel) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 200; ++i) ids.push_back(i * i % 23);
  ExpectCutsDoNotMatter(TensorSet::Random(Tiny(), 1).Model(Tiny()), ids);
}

TEST(States, AreIndependent) {
  const ReferenceModel model = TensorSet::Random(Tiny(), 2).Model(Tiny());
  const auto alone = LogitsOver(model);
  auto a = model.NewState();
  auto b = model.NewState();
  const std::span<const std::int32_t> ids(kIds);
  model.Append(a, ids.first(4));
  model.Append(b, ids.last(6));
  const auto rest = model.Append(a, ids.subspan(4));
  EXPECT_TRUE(SameBits(rest, std::span(alone).last(rest.size())));
}

// Reorders the P rotated rows that start at each of `begins` from (2i, 2i+1) pairs to (i, i + P/2).
void ToHalfSplit(EditableTensor& tensor, const std::vector<std::int64_t>& begins, std::int64_t p) {
  const EditableTensor old = tensor;
  EditableTensor source = old;
  for (const std::int64_t begin : begins) {
    for (std::int64_t i = 0; i < p; ++i) {
      const std::int64_t target = i % 2 * (p / 2) + i / 2;
      std::copy_n(source.row(begin + i), old.shape[1], tensor.row(begin + target));
    }
  }
}

void ExpectHalfSplitIsAPermutation(ModelConfig config) {
  TensorSet tensors = TensorSet::Random(config, 3);
  const auto interleaved = LogitsOver(tensors.Model(config));
  const auto drafts = Drafts(tensors.Model(config));
  const std::int64_t n = config.qk_nope_head_dim;
  const std::int64_t p = config.qk_rope_head_dim;
  std::vector<std::int64_t> heads;
  for (std::int64_t h = 0; h < config.num_attention_heads; ++h) heads.push_back(h * (n + p) + n);
  for (auto& [name, tensor] : tensors.all()) {
    if (name.ends_with("q_b_proj.weight") || name.ends_with("q_proj.weight")) ToHalfSplit(tensor, heads, p);
    if (name.ends_with("kv_a_proj_with_mqa.weight")) ToHalfSplit(tensor, {config.kv_lora_rank}, p);
  }
  // Unless the layout changes too, the model is another one.
  EXPECT_GT(MaxDifference(LogitsOver(tensors.Model(config)), interleaved), 1e-3);
  config.rope.layout = RopeLayout::kHalfSplit;
  EXPECT_LT(MaxDifference(LogitsOver(tensors.Model(config)), interleaved), kReordered);
  EXPECT_LT(MaxDifference(Drafts(tensors.Model(config)), drafts), kReordered);
}

TEST(HalfSplit, IsAPermutationOfInterleaved) { ExpectHalfSplitIsAPermutation(Tiny()); }

TEST(HalfSplit, IsAPermutationOfInterleavedWithoutQLora) {
  ModelConfig config = Tiny();
  config.q_lora_rank.reset();
  ExpectHalfSplitIsAPermutation(config);
}

// With an identity as q_a_proj and norms of ones (their input has a mean square of 1 already), the two forms of the
// query projection are the same function.
TEST(QueryProjection, WithoutLoraEqualsAnIdentityLora) {
  ModelConfig direct = Tiny();
  direct.q_lora_rank.reset();
  direct.rms_norm_eps = direct.latent_norm_eps = 1e-200;
  ModelConfig low_rank = direct;
  low_rank.q_lora_rank = low_rank.hidden_size;
  TensorSet tensors = TensorSet::Random(direct, 4);
  for (auto& [name, tensor] : tensors.all()) {
    if (name.ends_with("input_layernorm.weight")) std::fill(tensor.values.begin(), tensor.values.end(), 1.0F);
  }
  const auto expected = LogitsOver(tensors.Model(direct));
  for (std::int64_t layer = 0; layer <= direct.num_hidden_layers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".self_attn.";
    tensors[at + "q_b_proj.weight"] = tensors.At(at + "q_proj.weight");
    tensors.Erase(at + "q_proj.weight");
    EditableTensor& identity = tensors[at + "q_a_proj.weight"];
    identity.shape = {direct.hidden_size, direct.hidden_size};
    identity.values.assign(static_cast<std::size_t>(direct.hidden_size * direct.hidden_size), 0.0F);
    for (std::int64_t i = 0; i < direct.hidden_size; ++i) identity.row(i)[i] = 1.0F;
    tensors[at + "q_a_layernorm.weight"] = {{direct.hidden_size},
                                            std::vector<float>(static_cast<std::size_t>(direct.hidden_size), 1.0F)};
  }
  EXPECT_LT(MaxDifference(LogitsOver(tensors.Model(low_rank)), expected), kReordered);
}

void Scale(TensorSet& tensors, const std::string& suffix, float factor) {
  for (auto& [name, tensor] : tensors.all()) {
    if (!name.ends_with(suffix)) continue;
    for (float& value : tensor.values) value *= factor;
  }
}

// latent_norm_eps, not rms_norm_eps, is the latent's: a huge one leaves nothing of keys and values.
TEST(LatentEpsilon, IsThatOfTheKeyValueLatent) {
  ModelConfig config = Tiny();
  config.q_lora_rank.reset();
  TensorSet tensors = TensorSet::Random(config, 15);
  config.latent_norm_eps = 1e200;
  const auto without_latent = LogitsOver(tensors.Model(config));
  Scale(tensors, "o_proj.weight", 0);
  EXPECT_LT(MaxDifference(without_latent, LogitsOver(tensors.Model(config))), kReordered);
}

// And the query's: 2^60 divides both latents by 2^30. kv_b_proj makes up for its own, queries all but vanish.
TEST(LatentEpsilon, IsThatOfTheQueryLatent) {
  ModelConfig config = Tiny();
  config.latent_norm_eps = 0x1p60;
  TensorSet tensors = TensorSet::Random(config, 16);
  Scale(tensors, "kv_b_proj.weight", 0x1p30F);
  const auto small_queries = LogitsOver(tensors.Model(config));
  Scale(tensors, "q_b_proj.weight", 0);
  EXPECT_LT(MaxDifference(small_queries, LogitsOver(tensors.Model(config))), 1e-6);  // 2^-30 of some 1e2
}

// Without rotated channels a model is one whose rotated channels are all zero, but for the softmax scale:
// (N + P)^-1/2 is a half of N^-1/2 here, made up for by twice the query.
TEST(NoRopeChannels, EqualZeroedOnes) {
  ModelConfig none = Tiny();
  none.qk_rope_head_dim = 0;
  none.rope = RopeSpec{};
  none.rope.layout = RopeLayout::kNone;
  none.qk_nope_head_dim = 4;
  ModelConfig zeroed = none;
  zeroed.qk_rope_head_dim = zeroed.rope.dim = 12;
  zeroed.rope.layout = RopeLayout::kInterleaved;
  TensorSet tensors = TensorSet::Random(none, 5);
  const auto expected = LogitsOver(tensors.Model(none));
  for (auto& [name, tensor] : tensors.all()) {
    if (name.ends_with("q_b_proj.weight")) {
      EditableTensor old = tensor;
      tensor.shape[0] = none.num_attention_heads * (4 + 12);
      tensor.values.assign(static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]), 0.0F);
      for (std::int64_t row = 0; row < old.shape[0]; ++row) {
        for (std::int64_t i = 0; i < old.shape[1]; ++i) tensor.row(row / 4 * 16 + row % 4)[i] = 2 * old.row(row)[i];
      }
    }
    if (name.ends_with("kv_a_proj_with_mqa.weight")) {
      tensor.shape[0] += 12;
      tensor.values.resize(static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]), 0.0F);
    }
  }
  EXPECT_LT(MaxDifference(LogitsOver(tensors.Model(zeroed)), expected), kReordered);
}

// With no rotation and one layer, the last token sees the others as a set; with rotation, as a sequence.
TEST(NoRotation, KeepsTheChannelsAndForgetsTheOrder) {
  ModelConfig config = Tiny();
  config.num_hidden_layers = 1;
  config.rope.layout = RopeLayout::kNone;
  TensorSet tensors = TensorSet::Random(config, 6);
  std::vector<std::int32_t> shuffled = kIds;
  std::reverse(shuffled.begin(), shuffled.end() - 1);
  const auto last = [](std::vector<double> rows) { return std::vector<double>(rows.end() - 23, rows.end()); };
  const auto in_order = last(LogitsOver(tensors.Model(config)));
  EXPECT_LT(MaxDifference(last(LogitsOver(tensors.Model(config), shuffled)), in_order), kReordered);

  ModelConfig rotated = config;
  rotated.rope.layout = RopeLayout::kInterleaved;
  EXPECT_GT(MaxDifference(last(LogitsOver(tensors.Model(rotated), shuffled)), last(LogitsOver(tensors.Model(rotated)))),
            1e-3);

  // The channels count, though not rotated.
  EditableTensor& kv_a = tensors.At("model.layers.0.self_attn.kv_a_proj_with_mqa.weight");
  std::fill(kv_a.row(config.kv_lora_rank), kv_a.row(config.kv_lora_rank) + 8 * config.hidden_size, 0.0F);
  EXPECT_GT(MaxDifference(last(LogitsOver(tensors.Model(config))), in_order), 1e-3);
}

TEST(TiedEmbeddings, EqualACopyAsHead) {
  ModelConfig tied = Tiny();
  tied.tie_word_embeddings = true;
  TensorSet tensors = TensorSet::Random(tied, 7);
  const auto expected = LogitsOver(tensors.Model(tied));
  const auto drafts = Drafts(tensors.Model(tied));
  ModelConfig untied = tied;
  untied.tie_word_embeddings = false;
  tensors["lm_head.weight"] = tensors.At("model.embed_tokens.weight");
  EXPECT_TRUE(SameBits(LogitsOver(tensors.Model(untied)), expected));
  EXPECT_TRUE(SameBits(Drafts(tensors.Model(untied)), drafts));
}

TEST(Mtp, OwnEmbeddingAndHeadServeWhereTheyAreThere) {
  const ModelConfig config = Tiny();
  TensorSet tensors = TensorSet::Random(config, 8);
  const auto expected = Drafts(tensors.Model(config));
  const std::string at = "model.layers.3.";
  tensors[at + "embed_tokens.weight"] = tensors.At("model.embed_tokens.weight");
  tensors[at + "shared_head.head.weight"] = tensors.At("lm_head.weight");
  EXPECT_TRUE(SameBits(Drafts(tensors.Model(config)), expected));
  EditableTensor& head = tensors.At(at + "shared_head.head.weight");
  for (float& value : head.values) value *= 2;
  auto doubled = Drafts(tensors.Model(config));
  for (double& value : doubled) value /= 2;
  EXPECT_TRUE(SameBits(doubled, expected));
  const auto main_logits = LogitsOver(tensors.Model(config));
  for (float& value : tensors.At(at + "embed_tokens.weight").values) value = -value;
  auto negated = Drafts(tensors.Model(config));
  for (double& value : negated) value /= 2;
  EXPECT_GT(MaxDifference(negated, expected), 1e-3);
  EXPECT_TRUE(SameBits(LogitsOver(tensors.Model(config)), main_logits));
}

TEST(Mtp, OfOneTokenHasNoRows) {
  const ReferenceModel model = TensorSet::Random(Tiny(), 9).Model(Tiny());
  auto state = model.NewState();
  std::vector<double> hidden;
  const std::vector<std::int32_t> one = {4};
  model.Append(state, one, &hidden);
  EXPECT_TRUE(model.Draft(one, hidden).empty());
}

// One expert, always chosen, with weight s / s = 1: a dense layer by another name.
TEST(Experts, ASingleOneIsADenseLayer) {
  ModelConfig dense = Tiny();
  dense.moe.reset();
  TensorSet tensors = TensorSet::Random(dense, 10);
  const auto expected = LogitsOver(tensors.Model(dense));
  const auto drafts = Drafts(tensors.Model(dense));
  ModelConfig single = dense;
  single.moe.emplace();
  single.moe->n_routed_experts = single.moe->num_experts_per_tok = 1;
  single.moe->moe_intermediate_size = dense.intermediate_size;
  single.moe->norm_topk_prob = true;
  single.first_k_dense_replace = 1;
  for (std::int64_t layer = 1; layer <= dense.num_hidden_layers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".mlp.";
    for (const std::string name : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"}) {
      tensors[at + "experts.0." + name] = tensors.At(at + name);
      tensors.Erase(at + name);
    }
    tensors[at + "gate.weight"] = {{1, dense.hidden_size}, std::vector<float>(20, 0.1F)};
    tensors[at + "gate.e_score_correction_bias"] = {{1}, {-5.0F}};
  }
  EXPECT_LT(MaxDifference(LogitsOver(tensors.Model(single)), expected), kReordered);
  EXPECT_LT(MaxDifference(Drafts(tensors.Model(single)), drafts), kReordered);
}

TEST(Experts, WithoutSharedOnesEqualSharedOnesThatAreZero) {
  ModelConfig shared = Tiny();
  TensorSet tensors = TensorSet::Random(shared, 11);
  const auto with = LogitsOver(tensors.Model(shared));
  for (auto& [name, tensor] : tensors.all()) {
    if (name.ends_with("shared_experts.down_proj.weight")) std::fill(tensor.values.begin(), tensor.values.end(), 0.0F);
  }
  const auto zeroed = LogitsOver(tensors.Model(shared));
  ModelConfig none = shared;
  none.moe->n_shared_experts = 0;
  std::erase_if(tensors.all(), [](const auto& item) { return item.first.find("shared_experts") != std::string::npos; });
  EXPECT_EQ(LogitsOver(tensors.Model(none)), zeroed);
  EXPECT_GT(MaxDifference(with, zeroed), 1e-3);
}

TEST(Load, WidensFloat16) {
  TensorSet tensors = TensorSet::Random(Tiny(), 14);
  tensors.RoundForF16();
  EXPECT_TRUE(SameBits(LogitsOver(tensors.Model(Tiny(), DType::kF16)), LogitsOver(tensors.Model(Tiny()))));
}

// A terabyte that is not there: the file is a hole.
TEST(Load, FailsWhereMemoryCantBeHad) {
  ModelConfig config = Tiny();
  config.tie_word_embeddings = true;
  config.vocab_size = std::int64_t{1} << 30;
  config.hidden_size = 256;
  const testing::TempDir dir;
  std::string header;
  std::int64_t end = 0;
  for (const contract::TensorSpec& spec : contract::ExpectedTensors(config)) {
    if (!spec.required) continue;
    std::int64_t bytes = 4;
    for (const std::int64_t dim : spec.shape) bytes *= dim;
    header += fmt::format(R"({}"{}":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}})", header.empty() ? "{" : ",",
                          spec.name, fmt::join(spec.shape, ","), end, end + bytes);
    end += bytes;
  }
  header += "}";
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> 8 * i & 0xff);
  const std::string path = dir.Write("model.safetensors", length + header);
  std::error_code refused;
  std::filesystem::resize_file(path, 8 + header.size() + static_cast<std::uint64_t>(end), refused);
  if (refused) GTEST_SKIP() << "no file of this length here: " << refused.message();
  const auto checkpoint = testing::Must(io::Checkpoint::Open(path));
  testing::Must(contract::RequireTensors(config, checkpoint));
  const auto model = ReferenceModel::Load(config, checkpoint, config.max_position_embeddings);
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.error().message.find("needs 2199"), std::string::npos) << model.error().message;
  // Refused before any allocation: the message says what there was.
  EXPECT_NE(model.error().message.find("found "), std::string::npos) << model.error().message;
}

TEST(Stop, EndsBetweenLayers) {
  const ReferenceModel model = TensorSet::Random(Tiny(), 12).Model(Tiny());
  auto state = model.NewState();
  int asked = 0;
  EXPECT_TRUE(model.Append(state, kIds, nullptr, [&] { return ++asked == 2; }).empty());
  EXPECT_EQ(asked, 2);
  EXPECT_DEATH(model.Append(state, kIds), "stopped");

  auto other = model.NewState();
  asked = 0;
  const auto logits = model.Append(other, kIds, nullptr, [&] { return ++asked < 0; });
  EXPECT_EQ(asked, 3);
  EXPECT_TRUE(SameBits(logits, LogitsOver(model)));
}

TEST(Append, RefusesIdsOutOfTheVocabulary) {
  const ReferenceModel model = TensorSet::Random(Tiny(), 13).Model(Tiny());
  auto state = model.NewState();
  EXPECT_DEATH(model.Append(state, std::vector<std::int32_t>{23}), "vocab_size");
  EXPECT_DEATH(model.Append(state, std::vector<std::int32_t>{-1}), "ids");
}

}  // namespace
}  // namespace mla::reference
