// Synthetic checkpoints of tiny shapes: consistent configs, bytes that depend on the seed alone, weights that make a
// model's parts count, and nothing left behind by a run that ends early.
#include "bench/synthetic.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/published_configs.h"
#include "contract/fp8.h"
#include "contract/generation.h"
#include "contract/tensors.h"
#include "mla/tokenizer.h"
#include "reference/reference.h"
#include "testing/models.h"
#include "testing/temp_dir.h"
#include "testing/tiny_checkpoint.h"

namespace mla::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Json = nlohmann::json;
using testing::Need;
using testing::TempDir;
using testing::TinyOptions;

constexpr std::int64_t kOneFile = std::int64_t{1} << 40;

// The options of a synthetic model like a tiny one; its config.json lies in `dir`.
SyntheticOptions Like(const TempDir& dir, TinyOptions tiny = {}) {
  tiny.vocab_size = std::max<std::int64_t>(tiny.vocab_size, 300);
  SyntheticOptions options;
  options.like = dir.Write("like.json", testing::TinyConfigJson(tiny));
  return options;
}

// Heads that straddle blocks, partial edge blocks, everything odd.
TinyOptions Straddling() {
  TinyOptions tiny;
  tiny.hidden_size = 200;
  tiny.num_attention_heads = 3;
  tiny.qk_nope_head_dim = 24;
  tiny.v_head_dim = 40;
  tiny.kv_lora_rank = 136;
  tiny.q_lora_rank.reset();
  return tiny;
}

void Write(const SyntheticPlan& plan, const std::string& out, int threads = 1) {
  const auto pool = MakeThreadPool(threads);
  EXPECT_FALSE(Need(WriteSynthetic(plan, out, *pool, [](std::int64_t, std::int64_t) { return true; })));
}

std::string Bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<std::string> NamesIn(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) names.push_back(entry.path().filename().string());
  return names;
}

// -- Published configs --

struct Published {
  const char* name;
  double softmax_scale;  // families.md's table, five digits
  double billions;       // parameters of the main model, as published
  std::int64_t experts;
};

// Parameters: DeepSeek-V3's weight documentation (671); the cards of V2-Lite (15.7), Moonlight (16), Kimi K2 (1,026.5:
// its weight files), MiniCPM3-4B (4.07), GLM-4.7-Flash (30).
const Published kPublished[] = {{"deepseek-v2-lite", 0.11472, 15.7, 64}, {"deepseek-v3", 0.13523, 671, 256},
                                {"glm-4.7-flash", 0.0625, 29.9, 64},     {"kimi-k2", 0.13086, 1026.4, 384},
                                {"minicpm3", 0.10206, 4.07, 0},          {"moonlight", 0.07217, 16.0, 64}};

TEST(PublishedConfigs, AreWhatIsKnownOfThem) {
  ASSERT_EQ(PublishedConfigs().size(), std::size(kPublished));
  for (std::size_t i = 0; i < std::size(kPublished); ++i) {
    const Published& known = kPublished[i];
    EXPECT_EQ(PublishedConfigs()[i].name, known.name);
    const contract::ModelConfig c = Need(contract::ParseConfig(PublishedConfigs()[i].json, known.name));
    EXPECT_NEAR(contract::SoftmaxScale(c), known.softmax_scale, 5e-6) << known.name;
    EXPECT_NEAR(static_cast<double>(contract::CountParameters(c).total) / 1e9, known.billions, 0.005 * known.billions)
        << known.name;
    EXPECT_EQ(c.moe ? c.moe->n_routed_experts : 0, known.experts);
  }
}

// Four layers and a small vocabulary of each, in each type: the contract takes the config back, and the plan has every
// tensor that it asks for.
TEST(PublishedConfigs, CanBeCut) {
  for (const Published& known : kPublished) {
    for (const SyntheticDType dtype : {SyntheticDType::kBF16, SyntheticDType::kFP8, SyntheticDType::kF32}) {
      SyntheticOptions options;
      options.like = known.name;
      options.layers = 4;
      options.vocab = 1000;
      options.dtype = dtype;
      const SyntheticPlan plan = Need(PlanSynthetic(options, kOneFile));
      const contract::ModelConfig& c = plan.config.config;
      EXPECT_EQ(c.num_hidden_layers, 4);
      EXPECT_EQ(c.fp8.has_value(), dtype == SyntheticDType::kFP8);
      if (c.moe) {
        EXPECT_TRUE(!c.IsMoeLayer(0) && c.IsMoeLayer(3)) << known.name;
      }
      for (const std::int64_t id : c.eos_token_ids) EXPECT_LT(id, 1000);
      std::size_t products = 0;
      for (const contract::TensorSpec& spec : contract::ExpectedTensors(c)) products += spec.product ? 1 : 0;
      const auto codes = std::count_if(plan.tensors.begin(), plan.tensors.end(), [](const SyntheticTensor& t) {
        return t.kind == SyntheticTensor::Kind::kCodes;
      });
      EXPECT_EQ(static_cast<std::size_t>(codes), dtype == SyntheticDType::kFP8 ? products : 0) << known.name;
    }
  }
}

// -- Configs --

Json ConfigOf(const SyntheticOptions& options) { return Json::parse(Need(MakeSyntheticConfig(options)).config_json); }

TEST(SyntheticConfig, FewerLayersKeepBothKinds) {
  const TempDir dir;
  TinyOptions tiny;
  tiny.num_hidden_layers = 9;
  tiny.first_k_dense_replace = 3;
  SyntheticOptions options = Like(dir, tiny);
  const std::pair<std::int64_t, std::int64_t> expected[] = {{1, 1}, {2, 1}, {3, 2}, {4, 3}, {12, 3}};
  for (const auto& [layers, dense] : expected) {
    options.layers = layers;
    const Json json = ConfigOf(options);
    EXPECT_EQ(json["num_hidden_layers"], layers);
    EXPECT_EQ(json["first_k_dense_replace"], dense) << layers;
  }
}

TEST(SyntheticConfig, LayerTypesAreCutAndContinued) {
  const TempDir dir;
  for (const PublishedConfig& published : PublishedConfigs()) {
    if (published.name != "glm-4.7-flash") continue;
    SyntheticOptions options;
    options.like = published.name;
    for (const std::int64_t layers : {1, 2, 5, 60}) {
      options.layers = layers;
      const Json types = ConfigOf(options)["mlp_layer_types"];
      ASSERT_EQ(types.size(), static_cast<std::size_t>(layers));
      EXPECT_EQ(types[0], "dense");
      if (layers > 1) {
        EXPECT_EQ(types.back(), "sparse");
      }
    }
  }
}

TEST(SyntheticConfig, FewerExpertsStayConsistent) {
  const TempDir dir;
  SyntheticOptions options = Like(dir);  // 8 experts, 2 a token, 4 groups of which 2
  const std::array<std::int64_t, 4> expected[] = {
      {16, 2, 4, 2}, {8, 2, 4, 2}, {6, 2, 1, 1}, {4, 2, 1, 1}, {1, 1, 1, 1}};
  for (const auto& [experts, chosen, groups, best] : expected) {
    options.experts = experts;
    const Json json = ConfigOf(options);
    EXPECT_EQ(json["n_routed_experts"], experts);
    EXPECT_EQ(json["num_experts_per_tok"], chosen) << experts;
    EXPECT_EQ(json["n_group"], groups) << experts;
    EXPECT_EQ(json["topk_group"], best) << experts;
    EXPECT_EQ(json["norm_topk_prob"], chosen > 1) << experts;
  }
  TinyOptions dense;
  dense.n_routed_experts.reset();
  options.like = Like(dir, dense).like;
  options.experts = 4;
  EXPECT_THAT(MakeSyntheticConfig(options).error().message, HasSubstr("--experts"));
}

TEST(SyntheticConfig, TheTypeDecidesOnQuantization) {
  const TempDir dir;
  SyntheticOptions options = Like(dir);
  EXPECT_FALSE(ConfigOf(options).contains("quantization_config"));
  options.dtype = SyntheticDType::kFP8;
  EXPECT_EQ(ConfigOf(options)["quantization_config"]["weight_block_size"], Json::parse("[128, 128]"));
  options.like = "deepseek-v3";
  options.dtype.reset();
  EXPECT_EQ(Need(MakeSyntheticConfig(options)).dtype, SyntheticDType::kFP8);
  for (const auto dtype : {SyntheticDType::kBF16, SyntheticDType::kF32}) {
    options.dtype = dtype;
    const Json json = ConfigOf(options);
    EXPECT_FALSE(json.contains("quantization_config"));
    EXPECT_EQ(json["torch_dtype"], dtype == SyntheticDType::kF32 ? "float32" : "bfloat16");
  }
}

TEST(SyntheticConfig, TokenIdsFollowTheVocabulary) {
  SyntheticOptions options;
  options.like = "glm-4.7-flash";
  options.vocab = 300;
  const Json json = ConfigOf(options);
  EXPECT_EQ(json["eos_token_id"], Json::parse("[299, 298, 297]"));
  EXPECT_EQ(json["pad_token_id"], 299);  // the first end token, here as there
  options.like = "deepseek-v3";
  EXPECT_EQ(ConfigOf(options)["eos_token_id"], 1);
}

TEST(SyntheticConfig, ErrorsNameTheCause) {
  const TempDir dir;
  SyntheticOptions options;
  options.like = "deepseek-v9";
  EXPECT_THAT(MakeSyntheticConfig(options).error().message,
              ::testing::AllOf(HasSubstr("deepseek-v2-lite"), HasSubstr("kimi-k2"), HasSubstr("No such file")));
  options.like = dir.Write("bad.json", "[1]");
  EXPECT_THAT(MakeSyntheticConfig(options).error().message, HasSubstr("expected an object"));
  options.like = dir.Write("doubled.json", R"({"vocab_size": 1, "vocab_size": 2})");
  EXPECT_THAT(MakeSyntheticConfig(options).error().message, HasSubstr("vocab_size"));
  options.like = dir.Write("unknown.json", R"({"model_type": "llama"})");
  EXPECT_THAT(MakeSyntheticConfig(options).error().message, HasSubstr("llama"));
  options = Like(dir);
  options.vocab = 257;
  EXPECT_THAT(MakeSyntheticConfig(options).error().message, HasSubstr("at least 258"));
}

// -- Files --

TEST(Synthetic, IsACheckpointThatTheContractTakes) {
  const TempDir dir;
  for (const auto dtype : {SyntheticDType::kBF16, SyntheticDType::kFP8, SyntheticDType::kF32}) {
    TinyOptions tiny = Straddling();
    tiny.num_nextn_predict_layers = 1;
    SyntheticOptions options = Like(dir, tiny);
    options.dtype = dtype;
    const std::string out = dir.File("out" + std::to_string(static_cast<int>(dtype)));
    Write(Need(PlanSynthetic(options, kOneFile)), out);
    const contract::ModelConfig config = Need(contract::LoadConfig(out));
    const io::Checkpoint checkpoint = Need(io::Checkpoint::Open(out));
    const contract::TensorReport report = contract::CheckTensors(config, checkpoint);
    EXPECT_THAT(report.missing, IsEmpty());
    EXPECT_THAT(report.mismatched, IsEmpty());
    EXPECT_THAT(report.extra, IsEmpty());
    EXPECT_EQ(Need(contract::LoadGenerationConfig(out, config.vocab_size)).eos_token_ids, config.eos_token_ids);
    EXPECT_EQ(testing::LoadModel(out, WeightDType::kBF16).info().vocab_size, 300);
    for (const io::Tensor& tensor : checkpoint.tensors()) {
      EXPECT_FALSE(contract::ScaleValueFault(config, tensor, checkpoint).has_value() && tensor.dtype == DType::kF8E4M3);
    }
  }
}

TEST(Synthetic, TheTokenizerKnowsEveryByte) {
  const TempDir dir;
  SyntheticOptions options;
  for (const PublishedConfig& published : PublishedConfigs()) {
    options.like = published.name;
    options.vocab = 400;
    const SyntheticConfig made = Need(MakeSyntheticConfig(options));
    std::ofstream(dir.File("tokenizer.json")) << made.tokenizer_json;
    std::ofstream(dir.File("tokenizer_config.json")) << made.tokenizer_config_json;
    const Tokenizer tokenizer = Need(Tokenizer::Load(dir.path()));
    const std::string text = "Hello, Wörld \n\t 12345 \xf0\x9f\x98\x80 <|begin|>";
    const std::vector<std::int32_t> ids = Need(tokenizer.Encode(text));
    EXPECT_EQ(ids.size(), text.size());
    EXPECT_EQ(tokenizer.Decode(ids), text);
    std::string all;
    for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
    std::string decoded;
    for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      if (!tokenizer.IsSpecial(id)) decoded += tokenizer.TokenBytes(id);
    }
    EXPECT_EQ(decoded, all) << published.name;
    EXPECT_LE(tokenizer.vocab_size(), 400);
    EXPECT_EQ(tokenizer.add_bos(), made.config.bos_token_id.has_value());
    EXPECT_EQ(tokenizer.bos_id().has_value(), made.config.bos_token_id.has_value());
    if (made.config.bos_token_id) {
      EXPECT_EQ(tokenizer.bos_id(), *made.config.bos_token_id);
    }
    EXPECT_EQ(tokenizer.eos_id(), made.config.eos_token_ids.front());
  }
}

TEST(Synthetic, BytesDependOnTheSeedAlone) {
  const TempDir dir;
  TinyOptions tiny;
  tiny.hidden_size = 640;  // tensors of several tasks
  tiny.vocab_size = 1000;
  for (const auto dtype : {SyntheticDType::kBF16, SyntheticDType::kFP8}) {
    SyntheticOptions options = Like(dir, tiny);
    options.dtype = dtype;
    const std::string name = std::to_string(static_cast<int>(dtype));
    Write(Need(PlanSynthetic(options, kOneFile)), dir.File("one" + name), 1);
    Write(Need(PlanSynthetic(options, kOneFile)), dir.File("three" + name), 3);
    options.seed = 1;
    Write(Need(PlanSynthetic(options, kOneFile)), dir.File("other" + name), 1);
    const std::string one = Bytes(dir.File("one" + name) + "/model.safetensors");
    EXPECT_EQ(one, Bytes(dir.File("three" + name) + "/model.safetensors"));
    EXPECT_NE(one, Bytes(dir.File("other" + name) + "/model.safetensors"));
  }
}

TEST(Synthetic, ShardsHoldTheSameTensors) {
  const TempDir dir;
  const SyntheticOptions options = Like(dir);
  const SyntheticPlan whole = Need(PlanSynthetic(options, kOneFile));
  const SyntheticPlan parts = Need(PlanSynthetic(options, whole.bytes / 3));
  EXPECT_GE(parts.shards.size(), 3U);
  EXPECT_EQ(Need(PlanSynthetic(options, 1)).shards.size(), whole.tensors.size());
  Write(whole, dir.File("whole"));
  Write(parts, dir.File("parts"));
  const io::Checkpoint a = Need(io::Checkpoint::Open(dir.File("whole")));
  const io::Checkpoint b = Need(io::Checkpoint::Open(dir.File("parts")));
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (const io::Tensor& tensor : a.tensors()) {
    const io::Tensor* other = b.Find(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    ASSERT_EQ(tensor.bytes, other->bytes);
    EXPECT_EQ(std::memcmp(tensor.data, other->data, static_cast<std::size_t>(tensor.bytes)), 0) << tensor.name;
  }
  const Json index = Json::parse(Bytes(dir.File("parts") + "/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], whole.bytes);
}

// -- Ends --

TEST(Synthetic, AStoppedRunLeavesNothing) {
  const TempDir dir;
  const SyntheticPlan plan = Need(PlanSynthetic(Like(dir), kOneFile));
  const auto pool = MakeThreadPool(1);
  for (const std::int64_t share : {0, 2, 4}) {  // at once, half way, after the last byte
    const auto go_on = [&](std::int64_t done, std::int64_t total) { return done * 4 < total * share; };
    EXPECT_TRUE(Need(WriteSynthetic(plan, dir.File("out"), *pool, go_on)));
    EXPECT_THAT(NamesIn(dir.path()), UnorderedElementsAre("like.json"));
  }
}

TEST(Synthetic, AFailedRunLeavesNothing) {
  const TempDir dir;
  SyntheticPlan plan = Need(PlanSynthetic(Like(dir), kOneFile));
  const auto pool = MakeThreadPool(1);
  const auto error = [&](const std::string& out) {
    const auto result = WriteSynthetic(plan, out, *pool, [](std::int64_t, std::int64_t) { return true; });
    EXPECT_FALSE(result.ok());
    return result.ok() ? std::string() : result.error().message;
  };
  EXPECT_THAT(error(dir.File("like.json")), HasSubstr("expected no such file or folder"));
  EXPECT_THAT(error(dir.path() + "/"), HasSubstr("expected no such file or folder"));
  EXPECT_THAT(error(dir.File("none/out")), HasSubstr("No such file"));
  EXPECT_THAT(error(dir.File("like.json/out")), HasSubstr("Not a directory"));
  plan.bytes = std::int64_t{1} << 60;
  EXPECT_THAT(error(dir.File("out")), HasSubstr("free bytes"));
  EXPECT_THAT(NamesIn(dir.path()), UnorderedElementsAre("like.json"));
}

// -- Weights --

std::vector<double> ValuesOf(const io::Checkpoint& checkpoint, const std::string& name) {
  const io::Tensor* tensor = checkpoint.Find(name);
  EXPECT_NE(tensor, nullptr) << name;
  std::vector<double> values(static_cast<std::size_t>(tensor->elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    float value = 0;
    std::memcpy(&value, tensor->data + 4 * i, 4);
    values[i] = value;
  }
  return values;
}

std::vector<double> Product(const std::vector<double>& w, const std::vector<double>& x) {
  std::vector<double> y(w.size() / x.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] = std::inner_product(x.begin(), x.end(), w.begin() + static_cast<std::ptrdiff_t>(i * x.size()), 0.0);
  }
  return y;
}

std::vector<double> Norm(std::vector<double> x, const std::vector<double>& weight) {
  const double mean = std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / static_cast<double>(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= weight[i] / std::sqrt(mean);
  return x;
}

constexpr std::size_t kQueries = 8;

// Mean entropy of the first layer's attention, over heads and kQueries tokens that see all keys, computed from the
// tensors alone. Rotation is left out: it turns queries and keys that have no direction.
double FirstLayerEntropy(const std::string& dir, std::size_t keys) {
  const contract::ModelConfig c = Need(contract::LoadConfig(dir));
  const io::Checkpoint checkpoint = Need(io::Checkpoint::Open(dir));
  const std::string attention = "model.layers.0.self_attn.";
  const auto weight = [&](const std::string& name) { return ValuesOf(checkpoint, attention + name + ".weight"); };
  const auto embeddings = ValuesOf(checkpoint, "model.embed_tokens.weight");
  const auto input_norm = ValuesOf(checkpoint, "model.layers.0.input_layernorm.weight");
  const auto hidden = static_cast<std::ptrdiff_t>(c.hidden_size);
  const auto latent = static_cast<std::ptrdiff_t>(c.kv_lora_rank);
  const auto nope = static_cast<std::size_t>(c.qk_nope_head_dim);
  const auto rope = static_cast<std::size_t>(c.qk_rope_head_dim);
  const auto heads = static_cast<std::size_t>(c.num_attention_heads);
  const auto value = static_cast<std::size_t>(c.v_head_dim);
  std::vector<std::vector<double>> expanded;  // [keys][H * (N + V)]
  std::vector<std::vector<double>> k_pe;
  std::vector<std::vector<double>> q;
  for (std::size_t i = 0; i < keys; ++i) {
    const auto row = embeddings.begin() + static_cast<std::ptrdiff_t>(i) * hidden;
    const std::vector<double> x = Norm({row, row + hidden}, input_norm);
    const std::vector<double> kv = Product(weight("kv_a_proj_with_mqa"), x);
    expanded.push_back(Product(weight("kv_b_proj"), Norm({kv.begin(), kv.begin() + latent}, weight("kv_a_layernorm"))));
    k_pe.emplace_back(kv.begin() + latent, kv.end());
    if (i >= kQueries) continue;
    q.push_back(c.q_lora_rank
                    ? Product(weight("q_b_proj"), Norm(Product(weight("q_a_proj"), x), weight("q_a_layernorm")))
                    : Product(weight("q_proj"), x));
  }
  double entropy = 0;
  for (std::size_t item = 0; item < heads * kQueries; ++item) {
    const std::size_t h = item / kQueries;
    std::vector<double> p(keys);
    const double* query = q[item % kQueries].data() + h * (nope + rope);
    for (std::size_t i = 0; i < keys; ++i) {
      const double* key = expanded[i].data() + h * (nope + value);
      p[i] =
          std::exp(contract::SoftmaxScale(c) * (std::inner_product(query, query + nope, key, 0.0) +
                                                std::inner_product(k_pe[i].begin(), k_pe[i].end(), query + nope, 0.0)));
    }
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (const double x : p) entropy -= x / sum * std::log(x / sum) / static_cast<double>(heads * kQueries);
  }
  return entropy;
}

TEST(Synthetic, AttentionIsNotFlat) {
  const TempDir dir;
  int number = 0;
  TinyOptions yarn;
  yarn.num_attention_heads = 8;
  yarn.rope_factor = 40;
  TinyOptions plain = Straddling();
  plain.num_attention_heads = 8;
  plain.rope_scaling = RopeScaling::kNone;
  for (const TinyOptions& tiny : {yarn, plain}) {
    SyntheticOptions options = Like(dir, tiny);
    options.dtype = SyntheticDType::kF32;
    const std::string out = dir.File(std::to_string(number++));
    Write(Need(PlanSynthetic(options, kOneFile)), out);
    // Normal scores of deviation 4 over 64 keys: 1.31 on average, with a deviation of 0.64 a query and head.
    const double entropy = FirstLayerEntropy(out, 64);
    EXPECT_LT(entropy, std::log(64.0) / 2);
    EXPECT_GT(entropy, std::log(64.0) / 10);  // nor does one key take all
  }
}

// In float64: logits are finite and differ in size as asked, the last of them knows the first token, and no two experts
// are all but equal.
TEST(Synthetic, EveryTokenCounts) {
  const TempDir dir;
  TinyOptions tiny;
  tiny.num_hidden_layers = 6;
  for (const auto dtype : {SyntheticDType::kF32, SyntheticDType::kFP8}) {
    SyntheticOptions options = Like(dir, tiny);
    options.dtype = dtype;
    const std::string out = dir.File("out" + std::to_string(static_cast<int>(dtype)));
    Write(Need(PlanSynthetic(options, kOneFile)), out);
    const auto model =
        Need(reference::ReferenceModel::Load(Need(contract::LoadConfig(out)), Need(io::Checkpoint::Open(out)), 48));
    std::vector<std::int32_t> ids(48);
    std::iota(ids.begin(), ids.end(), 10);
    const auto last = [&] {
      auto state = model.NewState();
      const std::vector<double> logits = model.Append(state, ids);
      return std::vector<double>(logits.end() - 300, logits.end());
    };
    const std::vector<double> before = last();
    ids.front() = 200;
    const std::vector<double> after = last();
    double moved = 0;
    double size = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      ASSERT_TRUE(std::isfinite(before[i]));
      moved += (before[i] - after[i]) * (before[i] - after[i]);
      size += before[i] * before[i];
    }
    EXPECT_GT(std::sqrt(moved / size), 0.02);
    EXPECT_NEAR(std::sqrt(size / 300), 4, 1);
  }
}

}  // namespace
}  // namespace mla::bench
