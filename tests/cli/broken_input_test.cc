// Whatever is wrong with files, flags or the machine: one line that says what, and exit 1.
#include <cstdint>
#include <cstring>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/demo_copy.h"
#include "cli/program.h"
#include "testing/temp_dir.h"

namespace mla::testing {
namespace {

using Json = nlohmann::json;

ProcessResult RunOn(const DemoCopy& demo) { return Mla({"run", demo.path(), "And", "--max-tokens", "2"}); }

TEST(Broken, NoModel) {
  ExpectOneLine(Mla({"run", "/nowhere", "x"}), {"/nowhere"});
  ExpectOneLine(Mla({"inspect", "/nowhere"}), {"/nowhere"});
  ExpectOneLine(Mla({"run", DemoDir() + "/config.json", "x"}), {"folder"});
  const TempDir empty;
  ExpectOneLine(Mla({"run", empty.path(), "x"}), {"config.json"});
}

TEST(Broken, FilesThatAreMissing) {
  const DemoCopy no_weights;
  no_weights.Remove("model.safetensors");
  ExpectOneLine(RunOn(no_weights), {"safetensors"});
  const DemoCopy no_tokenizer;
  no_tokenizer.Remove("tokenizer.json");
  ExpectOneLine(RunOn(no_tokenizer), {"tokenizer.json"});
}

TEST(Broken, TruncatedWeights) {
  const std::string bytes = ReadFile(DemoDir() + "/model.safetensors");
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{7}, std::size_t{8}, std::size_t{1000}, bytes.size() / 2, bytes.size() - 1}) {
    const DemoCopy demo;
    demo.Replace("model.safetensors", bytes.substr(0, size));
    ExpectOneLine(RunOn(demo), {"model.safetensors"});
  }
  const DemoCopy longer;
  longer.Replace("model.safetensors", bytes + "x");
  ExpectOneLine(RunOn(longer), {"model.safetensors"});
  const DemoCopy huge;
  huge.Replace("model.safetensors", std::string("\0\0\0\0\0\0\0\x80", 8) + "{}");
  ExpectOneLine(RunOn(huge), {"model.safetensors"});
}

TEST(Broken, ConfigsThatLie) {
  const std::vector<std::pair<std::string, Json>> faults = {{"hidden_size", 0},
                                                            {"hidden_size", -256},
                                                            {"hidden_size", "256"},
                                                            {"hidden_size", 1e30},
                                                            {"num_hidden_layers", 2.5},
                                                            {"kv_lora_rank", nullptr},
                                                            {"model_type", "llama"},
                                                            {"scoring_func", "softplus"},
                                                            {"topk_method", "best"},
                                                            {"rms_norm_eps", -1},
                                                            {"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}},
                                                            {"n_group", 3},
                                                            {"num_experts_per_tok", 99},
                                                            {"hidden_act", "gelu"},
                                                            {"a_new_field", 1},
                                                            {"max_position_embeddings", 0}};
  for (const auto& [key, value] : faults) {
    const DemoCopy demo;
    demo.Config(key, value);
    ExpectOneLine(RunOn(demo), {"config.json"});
  }
  const DemoCopy nan;
  std::string text = ReadFile(DemoDir() + "/config.json");
  text.replace(text.find("1e-06"), 5, "NaN");
  nan.Replace("config.json", text);
  ExpectOneLine(RunOn(nan), {"config.json"});
}

TEST(Broken, TensorsThatDoNotFitTheConfig) {
  const DemoCopy demo;
  demo.Config("v_head_dim", 16);
  ExpectOneLine(RunOn(demo), {"kv_b_proj", "o_proj"});
  const ProcessResult inspected = Mla({"inspect", demo.path()});
  EXPECT_EQ(inspected.exit_code, 1);
  EXPECT_NE(inspected.out.find("10 mismatched"), std::string::npos) << inspected.out;
}

TEST(Broken, Tokenizers) {
  Json tokenizer = Json::parse(ReadFile(DemoDir() + "/tokenizer.json"));
  const DemoCopy merges;
  Json broken = tokenizer;
  broken["model"]["merges"][0] = "nothing-such x";
  merges.Replace("tokenizer.json", broken.dump());
  ExpectOneLine(RunOn(merges), {"tokenizer.json", "nothing-such"});
  const DemoCopy ids;
  broken = tokenizer;
  broken["model"]["vocab"]["And"] = -5;
  ids.Replace("tokenizer.json", broken.dump());
  ExpectOneLine(RunOn(ids), {"tokenizer.json"});
}

TEST(Broken, Prompts) {
  const std::vector<std::string> run = {"run", DemoDir()};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), run.begin(), run.end());
    return Mla(more);
  };
  ExpectOneLine(with({"--ids", "0,2048"}), {"2048", "2047"});
  ExpectOneLine(with({"--ids", "0,-1"}), {"-1"});
  ExpectOneLine(with({"And \xff"}), {"UTF-8"});
  ExpectOneLine(with({"And God said", "--ctx", "3"}), {"--ctx", "3"});
  ExpectOneLine(with({"And", "--ctx", "5000"}), {"2048"});
  ExpectOneLine(with({"--prompt-file", "/nowhere"}), {"/nowhere"});
  ExpectOneLine(with({"--prompt-file", "/dev/zero"}), {"/dev/zero"});
  std::string ids = "0";
  for (int i = 0; i < 2100; ++i) ids += ",5";
  ExpectOneLine(with({"--ids", ids}), {"2101", "2048"});
}

// A model whose numbers are broken says so instead of printing token 0 for ever.
TEST(Broken, WeightsThatAreNoNumbers) {
  std::string bytes = ReadFile(DemoDir() + "/model.safetensors");
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const Json entries = Json::parse(bytes.substr(8, header));
  for (const char* name : {"lm_head.weight", "model.layers.2.self_attn.o_proj.weight"}) {
    const std::size_t begin = 8 + header + entries[name]["data_offsets"][0].get<std::size_t>();
    std::string broken = bytes;
    broken[begin] = '\xc0';
    broken[begin + 1] = '\x7f';
    const DemoCopy demo;
    demo.Replace("model.safetensors", broken);
    for (const char* mode : {"auto", "absorb", "explicit"}) {
      ExpectOneLine(Mla({"run", demo.path(), "And", "--max-tokens", "2", "--json", "--mode", mode}), {"not finite"});
    }
  }
}

TEST(Broken, WhatDoesNotFitIsRefused) {
  ExpectOneLine(Mla({"run", DemoDir(), "And", "--memory", "1M"}), {"memory", "weights"});
  ExpectOneLine(Mla({"run", DemoDir(), "And", "--memory", "20M", "--mode", "explicit"}), {"memory", "float64"});
}

TEST(Broken, AFullDisk) {
  ProcessOptions full;
  full.stdout_path = "/dev/full";
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--max-tokens", "4"}, {"--json"}, {"--mode", "explicit"}}) {
    std::vector<std::string> arguments = {"run", DemoDir(), "And"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    ExpectOneLine(Mla(arguments, full), {"stdout"});
  }
  ExpectOneLine(Mla({"inspect", DemoDir()}, full), {"stdout"});
}

}  // namespace
}  // namespace mla::testing
