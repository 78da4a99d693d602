#include "contract/tensors.h"

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/config.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "testing/temp_dir.h"
#include "testing/tiny_checkpoint.h"

namespace mla::contract {
namespace {

using testing::DemoDir;
using testing::TempDir;
using testing::TinyConfigJson;
using testing::TinyOptions;
using testing::WriteTinyCheckpoint;

ModelConfig Parsed(const std::string& json) {
  Result<ModelConfig> config = ParseConfig(json, "test");
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.ok() ? *config : ModelConfig();
}

ModelConfig DeepSeekV3() {
  TinyOptions o;
  o.vocab_size = 129280;
  o.hidden_size = 7168;
  o.intermediate_size = 18432;
  o.num_hidden_layers = 61;
  o.num_nextn_predict_layers = 1;
  o.num_attention_heads = 128;
  o.q_lora_rank = 1536;
  o.kv_lora_rank = 512;
  o.qk_nope_head_dim = 128;
  o.qk_rope_head_dim = 64;
  o.v_head_dim = 128;
  o.n_routed_experts = 256;
  o.num_experts_per_tok = 8;
  o.moe_intermediate_size = 2048;
  o.n_group = 8;
  o.topk_group = 4;
  o.first_k_dense_replace = 3;
  return Parsed(TinyConfigJson(o));
}

// A checkpoint file of these tensors, all zero.
void WriteZeros(const std::string& path, std::vector<io::SafetensorsSpec> specs) {
  std::int64_t bytes = 0;
  for (const io::SafetensorsSpec& spec : specs) {
    std::int64_t elements = 1;
    for (const std::int64_t dim : spec.shape) elements *= dim;
    bytes += elements * static_cast<std::int64_t>(DTypeBytes(spec.dtype));
  }
  Result<io::SafetensorsWriter> writer = io::SafetensorsWriter::Create(path, std::move(specs));
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  ASSERT_TRUE(writer->Append(std::vector<std::byte>(static_cast<std::size_t>(bytes))).ok());
  ASSERT_TRUE(writer->Finish().ok());
}

std::vector<io::SafetensorsSpec> SpecsOf(const ModelConfig& config) {
  std::vector<io::SafetensorsSpec> specs;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    if (spec.required) specs.push_back({spec.name, DType::kBF16, spec.shape});
  }
  return specs;
}

TEST(Tensors, DemoFitsItsConfig) {
  const Result<ModelConfig> config = LoadConfig(DemoDir());
  ASSERT_TRUE(config.ok()) << config.error().message;
  const Result<io::Checkpoint> checkpoint = io::Checkpoint::Open(DemoDir());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const Status fits = RequireTensors(*config, *checkpoint);
  EXPECT_TRUE(fits.ok()) << fits.error().message;
  const ParameterCount count = CountParameters(*config);
  std::int64_t elements = 0;
  for (const io::Tensor& tensor : checkpoint->tensors()) elements += tensor.elements();
  EXPECT_EQ(count.total + count.mtp, elements);
}

// The dims written out by hand; the published figures are 671B in all and 36.6B active.
TEST(Tensors, ParametersOfDeepSeekV3) {
  const std::int64_t hidden = 7168;
  const std::int64_t embedding = 129280 * hidden;
  const std::int64_t attention =
      1536 * hidden + 1536 + 128 * 192 * 1536 + 576 * hidden + 512 + 128 * 256 * 512 + hidden * 128 * 128 + 2 * hidden;
  const std::int64_t expert = 3 * 2048 * hidden;
  const std::int64_t router = 256 * hidden + 256;
  const std::int64_t dense = 3 * 18432 * hidden;
  const std::int64_t moe_layer = attention + router + 257 * expert;
  const ParameterCount count = CountParameters(DeepSeekV3());
  EXPECT_EQ(count.total, 2 * embedding + hidden + 3 * (attention + dense) + 58 * moe_layer);
  EXPECT_EQ(count.total, 671026419200);
  EXPECT_EQ(count.active, hidden + embedding + hidden + 61 * attention + 3 * dense + 58 * (router + 9 * expert));
  EXPECT_NEAR(static_cast<double>(count.active), 36.6e9, 0.05e9);
  EXPECT_EQ(count.mtp, moe_layer + 3 * hidden + 2 * hidden * hidden);
}

// The closed form against a sum over the table, for many kinds of model.
TEST(Tensors, ParametersAreThoseOfTheTable) {
  for (int kind = 0; kind < 5; ++kind) {
    TinyOptions o;
    if (kind == 1) o.q_lora_rank.reset();
    if (kind == 2) o.n_routed_experts.reset();
    if (kind == 3) o.tie_word_embeddings = true;
    if (kind == 4)
      o.num_nextn_predict_layers = 2, o.moe_layer_freq = 2, o.n_shared_experts = 0, o.num_hidden_layers = 5;
    const ModelConfig config = Parsed(TinyConfigJson(o));
    ParameterCount expected;
    expected.active = o.tie_word_embeddings ? 0 : o.hidden_size;
    for (const TensorSpec& spec : ExpectedTensors(config)) {
      std::int64_t elements = 1;
      for (const std::int64_t dim : spec.shape) elements *= dim;
      const bool mtp =
          spec.name.rfind("model.layers.", 0) == 0 && std::stoll(spec.name.substr(13)) >= o.num_hidden_layers;
      if (spec.required) (mtp ? expected.mtp : expected.total) += elements;
      EXPECT_EQ(spec.active, !mtp && spec.required) << spec.name;
      const bool is_embedding = spec.name == "model.embed_tokens.weight";
      const bool read = spec.expert < 0 || spec.expert < o.num_experts_per_tok;
      if (spec.active && read && (!is_embedding || o.tie_word_embeddings)) expected.active += elements;
    }
    const ParameterCount count = CountParameters(config);
    EXPECT_EQ(count.total, expected.total) << kind;
    EXPECT_EQ(count.active, expected.active) << kind;
    EXPECT_EQ(count.mtp, expected.mtp) << kind;
  }
}

TEST(Tensors, OrderAndPlaceOfExperts) {
  TinyOptions o;
  o.num_nextn_predict_layers = 1;
  o.num_hidden_layers = 4;
  o.moe_layer_freq = 2;
  const std::vector<TensorSpec> specs = ExpectedTensors(Parsed(TinyConfigJson(o)));
  EXPECT_EQ(specs.front().name, "model.embed_tokens.weight");
  std::set<std::string> names;
  std::set<std::string> moe_layers;
  for (const TensorSpec& spec : specs) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name << " twice";
    const std::size_t experts = spec.name.find(".mlp.experts.");
    if (experts != std::string::npos) {
      EXPECT_EQ(spec.expert, std::stoll(spec.name.substr(experts + 13))) << spec.name;
      moe_layers.insert(spec.name.substr(0, experts));
    } else {
      EXPECT_EQ(spec.expert, -1) << spec.name;
    }
  }
  EXPECT_EQ(moe_layers, (std::set<std::string>{"model.layers.2", "model.layers.4"}));
  EXPECT_EQ(names.count("model.layers.4.eh_proj.weight"), 1U);
  EXPECT_EQ(names.count("model.layers.1.mlp.gate_proj.weight"), 1U);
}

TEST(Tensors, EveryKindOfFaultIsNamed) {
  const TempDir dir;
  const ModelConfig config = Parsed(TinyConfigJson());
  std::vector<io::SafetensorsSpec> specs = SpecsOf(config);
  std::erase_if(specs, [](const auto& spec) { return spec.name == "model.layers.2.self_attn.kv_b_proj.weight"; });
  for (io::SafetensorsSpec& spec : specs) {
    if (spec.name == "model.layers.0.self_attn.o_proj.weight") spec.shape = {32, 128};
  }
  specs.push_back({"model.layers.0.self_attn.kv_b_proj.weight_scale_inv", DType::kF32, {1, 1}});
  specs.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {4}});
  WriteZeros(dir.File("model.safetensors"), specs);
  const Result<io::Checkpoint> checkpoint = io::Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const TensorReport report = CheckTensors(config, *checkpoint);
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(report.missing, std::vector<std::string>{"model.layers.2.self_attn.kv_b_proj.weight: expected [128, 32]"});
  EXPECT_EQ(report.mismatched,
            std::vector<std::string>{"model.layers.0.self_attn.o_proj.weight: expected [64, 64] of F32, F16 or BF16, "
                                     "found [32, 128] of BF16 in model.safetensors"});
  EXPECT_EQ(report.extra,
            std::vector<std::string>{"model.layers.0.self_attn.kv_b_proj.weight_scale_inv [1, 1] of F32 in "
                                     "model.safetensors"});
  const Status status = RequireTensors(config, *checkpoint);
  ASSERT_FALSE(status.ok());
  for (const auto* faults : {&report.missing, &report.mismatched, &report.extra}) {
    EXPECT_NE(status.error().message.find(faults->front()), std::string::npos) << status.error().message;
  }
  EXPECT_EQ(status.error().message.find('\n'), std::string::npos);
}

TEST(Tensors, TypesThatAreNotReadAreAMismatch) {
  const TempDir dir;
  const std::string name = "model.norm.weight";
  const std::string header = R"({")" + name + R"(":{"dtype":"F8_E4M3","shape":[64],"data_offsets":[0,64]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  dir.Write("model.safetensors", file + header + std::string(64, '\0'));
  const Result<io::Checkpoint> checkpoint = io::Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const TensorReport report = CheckTensors(Parsed(TinyConfigJson()), *checkpoint);
  EXPECT_EQ(report.mismatched,
            std::vector<std::string>{"model.norm.weight: expected [64] of F32, F16 or BF16, found [64] "
                                     "of F8_E4M3 in model.safetensors"});
}

TEST(Tensors, OnlyTheFirstTwentyAreListed) {
  const TempDir dir;
  WriteZeros(dir.File("model.safetensors"), {{"model.norm.weight", DType::kF32, {64}}});
  const Result<io::Checkpoint> checkpoint = io::Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok());
  const ModelConfig config = Parsed(TinyConfigJson());
  const std::size_t missing = CheckTensors(config, *checkpoint).missing.size();
  EXPECT_EQ(missing, SpecsOf(config).size() - 1);
  const std::string message = RequireTensors(config, *checkpoint).error().message;
  EXPECT_NE(message.find("and " + std::to_string(missing - 20) + " more"), std::string::npos) << message;
  std::size_t listed = 0;
  for (std::size_t at = message.find(": expected ["); at != std::string::npos;
       at = message.find(": expected [", at + 1)) {
    ++listed;
  }
  EXPECT_EQ(listed, 20U);
}

TEST(Tensors, TheHeadOfATiedModelIsOptional) {
  TinyOptions o;
  o.tie_word_embeddings = true;
  const ModelConfig config = Parsed(TinyConfigJson(o));
  const TempDir dir;
  std::vector<io::SafetensorsSpec> specs = SpecsOf(config);
  EXPECT_TRUE(std::none_of(specs.begin(), specs.end(), [](const auto& s) { return s.name == "lm_head.weight"; }));
  WriteZeros(dir.File("a.safetensors"), specs);
  specs.push_back({"lm_head.weight", DType::kBF16, {o.vocab_size, o.hidden_size}});
  WriteZeros(dir.File("b.safetensors"), specs);
  specs.back().shape = {o.vocab_size, o.hidden_size + 1};
  WriteZeros(dir.File("c.safetensors"), specs);
  EXPECT_TRUE(RequireTensors(config, *io::Checkpoint::Open(dir.File("a.safetensors"))).ok());
  EXPECT_TRUE(RequireTensors(config, *io::Checkpoint::Open(dir.File("b.safetensors"))).ok());
  EXPECT_FALSE(RequireTensors(config, *io::Checkpoint::Open(dir.File("c.safetensors"))).ok());
}

TEST(Tensors, MtpLayersAreRequiredButForWhatTheMainModelServes) {
  TinyOptions o;
  const ModelConfig without = Parsed(TinyConfigJson(o));
  o.num_nextn_predict_layers = 1;
  const ModelConfig with = Parsed(TinyConfigJson(o));
  const TempDir dir;
  WriteZeros(dir.File("without.safetensors"), SpecsOf(without));
  std::vector<io::SafetensorsSpec> specs = SpecsOf(with);
  WriteZeros(dir.File("with.safetensors"), specs);
  specs.push_back({"model.layers.3.embed_tokens.weight", DType::kBF16, {96, 64}});
  specs.push_back({"model.layers.3.shared_head.head.weight", DType::kBF16, {96, 64}});
  WriteZeros(dir.File("all.safetensors"), specs);
  const io::Checkpoint bare = io::Checkpoint::Open(dir.File("without.safetensors")).value();
  EXPECT_TRUE(RequireTensors(without, bare).ok());
  EXPECT_TRUE(RequireTensors(with, *io::Checkpoint::Open(dir.File("with.safetensors"))).ok());
  EXPECT_TRUE(RequireTensors(with, *io::Checkpoint::Open(dir.File("all.safetensors"))).ok());
  const Status missing = RequireTensors(with, bare);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("model.layers.3.eh_proj.weight: expected [64, 128]"), std::string::npos);
  EXPECT_NE(missing.error().message.find("num_nextn_predict_layers: expected 0 for a checkpoint without them, found 1"),
            std::string::npos);
  std::erase_if(specs, [](const auto& spec) { return spec.name == "model.layers.3.enorm.weight"; });
  WriteZeros(dir.File("partly.safetensors"), specs);
  const Status partly = RequireTensors(with, *io::Checkpoint::Open(dir.File("partly.safetensors")));
  ASSERT_FALSE(partly.ok());
  EXPECT_EQ(partly.error().message.find("num_nextn_predict_layers"), std::string::npos);
  // And a checkpoint may not hold more layers than its config says.
  const Status extra = RequireTensors(without, *io::Checkpoint::Open(dir.File("with.safetensors")));
  ASSERT_FALSE(extra.ok());
  EXPECT_NE(extra.error().message.find("model.layers.3.enorm.weight [64] of BF16"), std::string::npos);
}

// 46,000 tensors, held against a checkpoint of as many others: 2 * 10^9 comparisons of names, were it quadratic.
TEST(Tensors, AFullSizeTableIsCheckedQuickly) {
  const TempDir dir;
  std::vector<io::SafetensorsSpec> specs;
  const ModelConfig config = DeepSeekV3();
  for (const TensorSpec& spec : ExpectedTensors(config)) specs.push_back({"x." + spec.name, DType::kF32, {0}});
  EXPECT_GT(specs.size(), 45000U);
  WriteZeros(dir.File("model.safetensors"), specs);
  const auto start = std::chrono::steady_clock::now();
  const Result<io::Checkpoint> checkpoint = io::Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const TensorReport report = CheckTensors(config, *checkpoint);
  EXPECT_EQ(report.extra.size(), specs.size());
  EXPECT_EQ(report.missing.size(), specs.size() - 2);  // the MTP layer's two optional ones
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

}  // namespace
}  // namespace mla::contract
