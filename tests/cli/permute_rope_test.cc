// mla permute-rope, as a user would: the same model in the other layout, and what is refused.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "contract/tensors.h"
#include "io/checkpoint.h"
#include "reference/reference.h"
#include "testing/forward.h"
#include "testing/fp8_checkpoint.h"
#include "testing/models.h"

namespace mla::testing {
namespace {

namespace fs = std::filesystem;

std::string Text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<double> Exact(const std::string& dir, const std::vector<std::int32_t>& ids) {
  const auto config = Need(contract::LoadConfig(dir));
  const auto checkpoint = Need(io::Checkpoint::Open(dir));
  Need(contract::RequireTensors(config, checkpoint));
  const auto model = Need(reference::ReferenceModel::Load(config, checkpoint, config.max_position_embeddings));
  auto state = model.NewState();
  return model.Append(state, ids);
}

std::vector<double> Produced(const std::string& dir, const std::vector<std::int32_t>& ids, Form form) {
  ForwardOptions options;
  options.forms = {{static_cast<std::int64_t>(ids.size()), form}};
  const auto pool = MakeThreadPool(1);
  const std::vector<float> logits = ForwardLogits(LoadModel(dir, WeightDType::kF32), ids, options, *pool);
  return {logits.begin(), logits.end()};
}

double Distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

void SetInterleave(const std::string& dir, bool interleaved) {
  auto config = nlohmann::ordered_json::parse(Text(dir + "/config.json"));
  config["rope_interleave"] = interleaved;
  std::ofstream(dir + "/config.json") << config;
}

// Scores are sums over the same products in another order: in float64 some 1e-16 for each of a few layers, in fp32 some
// 1e-7. Reading the rows with the old layout is another model.
void ExpectSameModel(const std::string& from, const std::string& to, std::int64_t vocab, bool was_interleaved) {
  const auto ids = RandomIds(30, vocab, 5);
  const std::vector<double> exact = Exact(from, ids);
  EXPECT_LE(Distance(Exact(to, ids), exact), 1e-12);
  for (const Form form : {Form::kMha, Form::kAbsorbed}) {
    EXPECT_LE(Distance(Produced(to, ids, form), Produced(from, ids, form)), 1e-6);
  }
  SetInterleave(to, was_interleaved);
  EXPECT_GE(Distance(Exact(to, ids), exact), 1e-2);
  SetInterleave(to, !was_interleaved);
}

TEST(PermuteRope, IsTheSameModelInTheOtherLayout) {
  TinyOptions no_q_lora;
  no_q_lora.q_lora_rank.reset();
  no_q_lora.num_attention_heads = 3;
  no_q_lora.num_nextn_predict_layers = 1;
  for (const TinyOptions& options : {TinyOptions{}, HalfSplitOptions(), no_q_lora}) {
    const TempDir dir;
    WriteTinyCheckpoint(dir.File("a"), TinyConfigJson(options), 31, DType::kBF16, 3);
    const ProcessResult there = Mla({"permute-rope", dir.File("a"), dir.File("b")});
    ASSERT_EQ(there.exit_code, 0) << there.err;
    EXPECT_EQ(there.err, "");
    EXPECT_NE(there.out.find(options.rope_interleave ? "half-split rope channels, interleaved in"
                                                     : "interleaved rope channels, half-split in"),
              std::string::npos)
        << there.out;
    EXPECT_NO_FATAL_FAILURE(ExpectSameModel(dir.File("a"), dir.File("b"), options.vocab_size, options.rope_interleave));
    ASSERT_EQ(Mla({"permute-rope", "-q", dir.File("b"), dir.File("c")}).out, "");
    // Twice is the identity, byte by byte: only config.json is spaced in another way.
    for (const auto& entry : fs::directory_iterator(dir.File("a"))) {
      const std::string name = entry.path().filename().string();
      if (name == "config.json") continue;
      EXPECT_EQ(Text(dir.File("c/" + name)), Text(entry.path().string())) << name;
    }
    const auto before = nlohmann::json::parse(Text(dir.File("a/config.json")));
    EXPECT_EQ(nlohmann::json::parse(Text(dir.File("c/config.json"))), before);
  }
}

// A run of two channels is one pair in both layouts: the rows stay, and the config's word alone changes.
TEST(PermuteRope, TwoChannelsStay) {
  TinyOptions options;
  options.qk_rope_head_dim = 2;
  const TempDir dir;
  WriteTinyCheckpoint(dir.File("a"), TinyConfigJson(options), 32);
  ASSERT_EQ(Mla({"permute-rope", dir.File("a"), dir.File("b")}).exit_code, 0);
  EXPECT_EQ(Text(dir.File("a/model.safetensors")), Text(dir.File("b/model.safetensors")));
  const auto ids = RandomIds(20, options.vocab_size, 6);
  EXPECT_EQ(Exact(dir.File("a"), ids), Exact(dir.File("b"), ids));
}

TEST(PermuteRope, Fp8WhereRunsLieWithinBlocks) {
  const TempDir dir;
  // Heads of 16 + 8 rows and a key of 32 + 8: blocks of 8 rows hold each run, blocks of 12 do not.
  WriteFp8Checkpoint(dir.File("a"), dir.File("wide"), TinyConfigJson(), 33, {8, 24, DType::kF32, false});
  ASSERT_EQ(Mla({"permute-rope", "-q", dir.File("a"), dir.File("b")}).exit_code, 0);
  EXPECT_NO_FATAL_FAILURE(ExpectSameModel(dir.File("a"), dir.File("b"), 96, true));
  WriteFp8Checkpoint(dir.File("c"), dir.File("wide"), TinyConfigJson(), 33, {12, 24, DType::kF32, false});
  ExpectOneLine(
      Mla({"permute-rope", dir.File("c"), dir.File("d")}),
      {"model.layers.0.self_attn.kv_a_proj_with_mqa.weight: expected its rope rows 32 to 39 within one block"});
  EXPECT_FALSE(fs::exists(dir.File("d")));
}

TEST(PermuteRope, FilesBesideTheWeights) {
  const TempDir dir;
  WriteTinyCheckpoint(dir.File("a"), TinyConfigJson(), 34);
  dir.Write("a/tokenizer.json", "{}");
  dir.Write("a/model.gguf", "weights of the old layout");
  dir.Write("blob", "linked");
  fs::create_symlink("../blob", dir.File("a/merges.txt"));
  fs::create_directory(dir.File("a/folder"));
  const ProcessResult result = Mla({"permute-rope", dir.File("a"), dir.File("b")});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "mla: warning: not copied: folder, model.gguf\n");
  EXPECT_EQ(Text(dir.File("b/tokenizer.json")), "{}");
  EXPECT_EQ(Text(dir.File("b/merges.txt")), "linked");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.File("b")), fs::directory_iterator()), 4);
}

TEST(PermuteRope, WhatIsRefused) {
  const TempDir dir;
  WriteTinyCheckpoint(dir.File("a"), TinyConfigJson(), 35);
  WriteTinyCheckpoint(dir.File("odd"), TinyConfigJson(OddOptions()), 35);
  fs::create_directory(dir.File("there"));
  ExpectOneLine(Mla({"permute-rope", dir.File("odd"), dir.File("b")}), {"odd: expected a model that rotates channels"});
  ExpectOneLine(Mla({"permute-rope", dir.File("a"), dir.File("there")}), {"there: expected no file or folder"});
  ExpectOneLine(Mla({"permute-rope", dir.File("a"), dir.File("no/b")}), {"no/b: can't be written"});
  ExpectOneLine(Mla({"permute-rope", dir.File("a/model.safetensors"), dir.File("b")}), {"expected a folder"});
  ExpectOneLine(Mla({"permute-rope", dir.File("none"), dir.File("b")}), {"expected a folder"});
  EXPECT_EQ(Mla({"permute-rope", dir.File("a")}).exit_code, 2);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 3) << "nothing was left";
}

}  // namespace
}  // namespace mla::testing
