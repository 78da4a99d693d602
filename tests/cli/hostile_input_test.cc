// Files made to do harm: lists of the wrong length or of millions, scales that are no scales, tokenizers whose patterns
// cost the text's square, vocabularies that lie, shapes that no machine holds. Each ends with one line, soon, in
// bounded memory.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/demo_copy.h"
#include "cli/program.h"
#include "testing/fp8_checkpoint.h"
#include "testing/temp_dir.h"
#include "testing/tiny_checkpoint.h"

namespace mla::testing {
namespace {

using Json = nlohmann::json;

// The program with at most 2 GiB of address space, so that a wish for more is an error or a crash. Where a sanitizer's
// shadow needs more than that, without.
ProcessResult Confined(std::vector<std::string> arguments) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return Mla(std::move(arguments));
#else
  arguments.insert(arguments.begin(), {"/bin/sh", "-c", "ulimit -v 2097152; exec \"$0\" \"$@\"", MLA_PROGRAM});
  return RunProcess(arguments);
#endif
}

Json Published(const std::string& name) {
  return Json::parse(ReadFile(std::string(MLA_SOURCE_DIR) + "/models/configs/" + name + ".json"));
}

void ExpectConfigRefused(const Json& config, const std::vector<std::string>& words) {
  const TempDir dir;
  dir.Write("config.json", config.dump());
  ExpectOneLine(Confined({"run", dir.path(), "x"}), words);
}

TEST(Hostile, LongropeLists) {
  const Json good = Published("minicpm3");
  const std::vector<std::pair<const char*, Json>> faults = {{"short_factor", Json::array()},
                                                            {"short_factor", Json::array({1.0, 2.0})},
                                                            {"short_factor", Json(std::vector<double>(1'000'000, 1.0))},
                                                            {"long_factor", Json(std::vector<double>(16, -1.0))},
                                                            {"long_factor", Json(std::vector<double>(16, 0.0))},
                                                            {"long_factor", Json(std::vector<double>(16, 1e308))},
                                                            {"long_factor", Json(std::vector<std::string>(16, "1"))},
                                                            {"long_factor", Json::object()},
                                                            {"long_factor", nullptr},
                                                            {"original_max_position_embeddings", 0},
                                                            {"original_max_position_embeddings", -1}};
  for (const auto& [key, value] : faults) {
    Json config = good;
    config["rope_scaling"][key] = value;
    ExpectConfigRefused(config, {"config.json", key});
  }
}

TEST(Hostile, LayerTypes) {
  const Json good = Published("glm-4.7-flash");
  const std::size_t layers = good["num_hidden_layers"].get<std::size_t>();
  std::vector<std::string> types(layers, "sparse");
  types[0] = "dense";
  const auto with = [&](std::size_t at, const char* type) {
    std::vector<std::string> changed = types;
    changed[at] = type;
    return Json(changed);
  };
  for (const Json& value : {with(3, "moe"), with(0, ""), Json::array(), Json("dense"), Json(1),
                            Json(std::vector<std::string>(layers + 1, "dense")), Json(std::vector<int>(layers, 1)),
                            Json(std::vector<std::string>(500'000, "sparse"))}) {
    Json config = good;
    config["mlp_layer_types"] = value;
    ExpectConfigRefused(config, {"mlp_layer_types"});
  }
}

TEST(Hostile, QuantizationConfigs) {
  const Json good = Published("deepseek-v3");
  ASSERT_TRUE(good.contains("quantization_config"));
  const std::vector<std::pair<const char*, Json>> faults = {
      {"weight_block_size", Json::array({0, 128})},
      {"weight_block_size", Json::array({-1, 128})},
      {"weight_block_size", Json::array({128})},
      {"weight_block_size", Json::array({"128", 128})},
      {"weight_block_size", Json::array({1e300, 1})},
      {"weight_block_size", Json(std::vector<int>(1'000'000, 128))},
      {"weight_block_size", INT64_MAX},
      {"quant_method", "awq"},
      {"quant_method", Json::array()},
      {"fmt", "e5m2"},
      {"scale_fmt", "e3m3"},
      {"a_new_field", 1}};
  for (const auto& [key, value] : faults) {
    Json config = good;
    config["quantization_config"][key] = value;
    ExpectConfigRefused(config, {"quantization_config", key});
  }
}

// Scales that a writer cannot have meant: in the file's own bytes, found when they are read.
TEST(Hostile, Fp8Scales) {
  const TempDir good;
  const TempDir wide;
  WriteFp8Checkpoint(good.path(), wide.path(), TinyConfigJson({}), 5);
  const std::string bytes = ReadFile(good.File("model.safetensors"));
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const Json entries = Json::parse(bytes.substr(8, header));
  const std::string name = "model.layers.0.self_attn.o_proj.weight_scale_inv";
  ASSERT_EQ(entries[name]["dtype"], "F32");
  const std::size_t begin = 8 + header + entries[name]["data_offsets"][0].get<std::size_t>();
  for (const std::uint32_t bits : {0xBF800000U, 0x7F800000U, 0x7FC00000U, 0x7F000000U}) {
    std::string broken = bytes;
    std::memcpy(broken.data() + begin, &bits, sizeof(bits));
    const TempDir dir;
    dir.Write("config.json", ReadFile(good.File("config.json")));
    dir.Write("model.safetensors", broken);
    ExpectOneLine(Confined({"run", dir.path(), "--ids", "1,2", "--max-tokens", "1", "-q"}), {name});
  }
}

Json DemoTokenizer() { return Json::parse(ReadFile(DemoDir() + "/tokenizer.json")); }

TEST(Hostile, PatternsThatCostTheSquareOfAText) {
  const std::string text(std::size_t{1} << 16, 'a');
  const TempDir dir;
  const std::string file = dir.Write("text", text);
  for (const char* pattern : {"a*b|x", "(?:a|a)+b|x", "(?=a*b)|x"}) {
    Json tokenizer = DemoTokenizer();
    tokenizer["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}}}};
    const DemoCopy demo;
    demo.Replace("tokenizer.json", tokenizer.dump());
    ExpectOneLine(Confined({"perplexity", demo.path(), file, "--quiet"}), {"pattern", "limit"});
  }
}

TEST(Hostile, TiktokenFiles) {
  const std::string data = std::string(MLA_SOURCE_DIR) + "/tests/text/tiktoken";
  const std::string good = ReadFile(data + "/tiktoken.model");
  std::string many;
  for (int i = 0; i < 300'000; ++i) many += "YQ== 0\n";
  for (const std::string& model :
       {std::string(), std::string("YQ== 16777215\n"), std::string(1 << 22, ' '), std::string(1 << 22, '\n'),
        good + "YWI= 99999999999999999999\n", good.substr(0, good.size() / 2), std::string(1 << 22, 'A') + " 0\n", many,
        std::string("\0\xff", 2)}) {
    const DemoCopy demo;
    demo.Remove("tokenizer.json");
    demo.Replace("tokenizer_config.json", ReadFile(data + "/tokenizer_config.json"));
    std::ofstream(demo.path() + "/tiktoken.model", std::ios::binary) << model;
    ExpectOneLine(Confined({"run", demo.path(), "x", "--max-tokens", "1"}), {"tiktoken.model"});
  }
}

TEST(Hostile, TextsForPerplexity) {
  const TempDir dir;
  const auto refused = [&](const std::string& path, const std::vector<std::string>& words) {
    ExpectOneLine(Confined({"perplexity", DemoDir(), path, "--quiet"}), words);
  };
  refused(dir.Write("empty", ""), {"token"});
  refused(dir.Write("latin", "caf\xe9"), {"UTF-8"});
  refused(dir.Write("cut", "And \xf0\x9f\x98"), {"UTF-8"});
  refused(dir.path(), {dir.path()});
  refused(dir.File("none"), {dir.File("none")});
  refused("/dev/zero", {"/dev/zero"});
}

TEST(Hostile, ShapesThatNoMachineHolds) {
  const TempDir dir;
  const std::string out = dir.File("out");
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"--layers", "65536", "--experts", "65536"}, {"--vocab", "2147483648", "--layers", "2"}}) {
    std::vector<std::string> arguments = {"synth", "--like", "deepseek-v3", "-q", out};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    ExpectOneLine(Confined(arguments), {});
    EXPECT_FALSE(std::filesystem::exists(out));
  }
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{{"--layers", "0"},
                                                                                     {"--layers", "-1"},
                                                                                     {"--layers", "1e3"},
                                                                                     {"--experts", "1e99"},
                                                                                     {"--vocab", "99999999999"},
                                                                                     {"--seed", "-1"},
                                                                                     {"--shard-size", "-5"},
                                                                                     {"--shard-size", "99999999T"},
                                                                                     {"--dtype", "int4"},
                                                                                     {"--threads", "99999"},
                                                                                     {"--mtp-layers", "65"}}) {
    std::vector<std::string> arguments = {"synth", "--like", "deepseek-v3", "-q", out};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const ProcessResult result = Confined(arguments);
    EXPECT_EQ(result.exit_code, 2) << flags[0] << " " << flags[1] << " " << result.err;
  }
}

}  // namespace
}  // namespace mla::testing
