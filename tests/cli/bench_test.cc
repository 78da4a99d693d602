// mla bench as a user runs it, on tiny shapes: no time is asserted.
#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/cpu_info.h"
#include "cli/program.h"
#include "testing/temp_dir.h"
#include "testing/tiny_checkpoint.h"

namespace mla::testing {
namespace {

using Json = nlohmann::json;

ProcessResult Bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "bench");
  return Mla(std::move(arguments));
}

// What every report tells of the machine.
void ExpectMachine(const Json& j, int threads) {
  EXPECT_EQ(j["processor"], DetectCpu().model);
  EXPECT_EQ(j["threads"], threads);
  ASSERT_FALSE(j["peaks"].empty());
  for (const Json& peak : j["peaks"]) EXPECT_GT(peak["gops"], 0);
}

TEST(Bench, GemmOfShapes) {
  const ProcessResult result = Bench({"gemm", "--shape", "3,20,33", "1,5,7", "--format", "f32,bf16", "--working-set",
                                      "4K", "--seconds", "0", "--threads", "2", "--kernels", "portable", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const Json j = Json::parse(result.out, nullptr, false);
  ASSERT_TRUE(j.is_object()) << result.out;
  ExpectMachine(j, 2);
  EXPECT_EQ(j["bench"], "gemm");
  EXPECT_EQ(j["kernels"], "portable");
  ASSERT_EQ(j["reads"].size(), 1U);
  EXPECT_EQ(j["reads"][0]["bytes"], 4096);
  ASSERT_EQ(j["cases"].size(), 4U);
  EXPECT_EQ(j["cases"][0]["weights"], "f32");
  EXPECT_EQ(j["cases"][1]["weights"], "bf16");
  EXPECT_EQ(j["cases"][3]["n"], 5);
  for (const Json& c : j["cases"]) {
    EXPECT_EQ(c["flops"], 2 * c["m"].get<int>() * c["n"].get<int>() * c["k"].get<int>());
    EXPECT_EQ(c["peak_instruction"], "128-bit multiply and add");
    EXPECT_GE(c["working_set"], 4096);
    EXPECT_EQ(c["repeats"], 3);
    EXPECT_GT(c["share"], 0);
  }
}

TEST(Bench, ProjectionsOfAConfigAsATable) {
  const TempDir dir;
  TinyOptions tiny;
  tiny.vocab_size = 512;
  const std::string config = dir.Write("config.json", TinyConfigJson(tiny));
  const ProcessResult result =
      Bench({"gemm", "--like", config, "--rows", "1,3", "--working-set", "0", "--repeats", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  // Three lines of machine and heading, one a peak, an empty one, the head, and six matrices times two.
  const auto lines = std::count(result.out.begin(), result.out.end(), '\n');
  EXPECT_NE(result.out.find("processor: "), std::string::npos);
  EXPECT_NE(result.out.find("threads: "), std::string::npos);
  EXPECT_NE(result.out.find("  fp32  128-bit multiply and add"), std::string::npos) << result.out;
  for (const char* name : {" q_a+kv_a ", " q_b ", " o ", " gate_up ", " down ", " lm_head "}) {
    EXPECT_NE(result.out.find(config + name), std::string::npos) << name << result.out;
  }
  EXPECT_GE(lines, 3 + 1 + 2 + 12);
}

TEST(Bench, MoeOfAConfigCut) {
  const TempDir dir;
  TinyOptions tiny;
  tiny.vocab_size = 512;
  const std::string config = dir.Write("config.json", TinyConfigJson(tiny));
  const ProcessResult result =
      Bench({"moe", "--like", config + ":4", "--rows", "1,40", "--working-set", "64K", "--seconds", "0", "--csv"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 3) << result.out;
  EXPECT_NE(result.out.find(config + ":4,40,,,4,bf16,65536,"), std::string::npos) << result.out;
}

TEST(Bench, AttentionOfAConfig) {
  const TempDir dir;
  TinyOptions tiny;
  tiny.vocab_size = 512;
  const std::string config = dir.Write("config.json", TinyConfigJson(tiny));
  const ProcessResult result =
      Bench({"attention", "--like", config, "--form", "absorbed,mha", "--keys", "3,70", "--rows", "1,5", "--requests",
             "2", "--working-set", "64K", "--seconds", "0", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json j = Json::parse(result.out, nullptr, false);
  EXPECT_EQ(j["bench"], "attention");
  // Five rows of three keys there are not.
  ASSERT_EQ(j["cases"].size(), 6U) << result.out;
  EXPECT_EQ(j["cases"][2]["name"], config + " absorbed S=70 x2");
  EXPECT_EQ(j["cases"][2]["m"], 5);
  EXPECT_EQ(j["cases"][2]["keys"], 70);
  EXPECT_EQ(j["cases"][2]["requests"], 2);
  EXPECT_EQ(j["cases"][2]["weights"], "bf16");
  EXPECT_EQ(j["cases"][5]["name"], config + " mha S=70 x2");
}

TEST(Bench, AttentionOfRequestsThatDiffer) {
  const std::vector<std::string> asked = {"attention",  "--like", "minicpm3",      "--keys-range", "5:90",
                                          "--requests", "8",      "--working-set", "64K",          "--seconds",
                                          "0",          "--rows", "5,6",           "--json"};
  const auto positions = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = asked;
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult result = Bench(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Json j = Json::parse(result.out, nullptr, false);
    EXPECT_EQ(j["cases"].size(), 1U) << "six rows are more than the least keys" << result.out;
    const Json& c = j["cases"][0];
    EXPECT_EQ(c["name"], "minicpm3 absorbed S=5:90 x8");
    EXPECT_TRUE(c["keys"].is_null());
    EXPECT_EQ(c["requests"], 8);
    EXPECT_GE(c["positions"], 8 * 5);
    EXPECT_LE(c["positions"], 8 * 90);
    return c["positions"].get<int>();
  };
  EXPECT_EQ(positions({}), positions({"--seed", "0"}));
  EXPECT_NE(positions({}), positions({"--seed", "1"}));
}

// 1,100 positions of 40 heads at once, or a head and 1,024 keys at a time, which reads the rows for each head.
TEST(Bench, AttentionExpandedInPieces) {
  const auto cache_read = [](const char* expand) {
    const ProcessResult result =
        Bench({"attention", "--like", "minicpm3", "--form", "mha", "--keys", "1100", "--rows", "3", "--expand", expand,
               "--kernels", "portable", "--working-set", "64K", "--seconds", "0", "--profile", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Json j = Json::parse(result.out, nullptr, false);
    const Json& profile = j["cases"][0]["profile"];
    EXPECT_EQ(profile["expansions"], 1100);
    EXPECT_EQ(profile["kv_b_bytes_needed"], 40 * 128 * 256 * 2);
    return profile["cache_bytes_read"].get<double>();
  };
  EXPECT_GT(cache_read("1K"), cache_read("1G"));
}

// What a profile tells of a run without expansions, whose phases are these.
void ExpectProfile(const Json& profile, const std::vector<std::string>& phases) {
  std::vector<std::string> names;
  double seconds = 0;
  for (const Json& phase : profile["phases"]) {
    names.push_back(phase["phase"]);
    seconds += phase["phase_seconds"].get<double>();
    EXPECT_LE(phase["busy_mean_seconds"], phase["busy_largest_seconds"]);
  }
  EXPECT_EQ(names, phases);
  EXPECT_LE(seconds, profile["run_seconds"].get<double>() * (1 + 1e-9));
  EXPECT_EQ(profile["expansions"], 0);
  EXPECT_EQ(profile["weight_conversions"], 0);
  EXPECT_GE(profile["cache_bytes_read"], profile["cache_bytes_needed"]);
  EXPECT_GE(profile["pairs_computed"], profile["pairs"]);
}

TEST(Bench, AttentionProfiled) {
  const std::vector<std::string> asked = {
      "attention", "--like",        "minicpm3", "--keys",    "70", "--rows",    "3",         "--kernels",
      "portable",  "--working-set", "64K",      "--seconds", "0",  "--profile", "--threads", "2"};
  const auto with = [&](const char* flag) {
    std::vector<std::string> arguments = asked;
    if (*flag != '\0') arguments.emplace_back(flag);
    return Bench(arguments);
  };
  const ProcessResult json = with("--json");
  EXPECT_EQ(json.exit_code, 0) << json.err;
  const Json j = Json::parse(json.out, nullptr, false);
  ASSERT_TRUE(j.is_object()) << json.out;
  const Json& profile = j["cases"][0]["profile"];
  ExpectProfile(profile, {"absorb", "attend", "project"});
  // Three rows of 70 keys, 40 heads; each of 288 channels in bf16.
  EXPECT_EQ(profile["pairs"], 40 * (68 + 69 + 70));
  EXPECT_EQ(profile["cache_bytes_needed"], 70 * 288 * 2);
  const ProcessResult csv = with("--csv");
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 1 + 3) << csv.out;
  const ProcessResult table = with("");
  for (const char* part :
       {"\n  attend ", "\n  other ", " of peak ", " busiest us ", "\n  tile waste 0.8", ", 0 weights"}) {
    EXPECT_NE(table.out.find(part), std::string::npos) << part << table.out;
  }
}

TEST(Bench, LayerOfAConfig) {
  const TempDir dir;
  TinyOptions tiny;
  tiny.vocab_size = 512;
  const std::string config = dir.Write("config.json", TinyConfigJson(tiny));
  const std::vector<std::string> asked = {"layer",  "--like",    config,   "--form",   "absorbed",
                                          "--keys", "3,70",      "--rows", "1,5",      "--working-set",
                                          "64K",    "--seconds", "0",      "--profile"};
  std::vector<std::string> arguments = asked;
  arguments.emplace_back("--json");
  const ProcessResult result = Bench(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json j = Json::parse(result.out, nullptr, false);
  EXPECT_EQ(j["bench"], "layer");
  ASSERT_EQ(j["cases"].size(), 3U) << result.out;  // five rows of three keys there are not
  const Json& layer = j["cases"][2];
  EXPECT_EQ(layer["name"], config + " absorbed S=70");
  EXPECT_EQ(layer["m"], 5);
  for (const char* kernel : {"q_a+kv_a", "q_b", "attention", "o"}) EXPECT_GT(layer["kernels"][kernel]["median"], 0);
  EXPECT_GT(layer["kernel_seconds"], 0);
  EXPECT_NEAR(layer["ratio_to_kernels"].get<double>(),
              layer["seconds"].get<double>() / layer["kernel_seconds"].get<double>(), 1e-9);
  std::vector<std::string> phases = {"input norm", "q_a+kv_a", "store",   "q_b", "rotate",
                                     "absorb",     "attend",   "project", "o"};
  const bool packs = DetectCpu().best() == Isa::kAmx || DetectCpu().best() == Isa::kAvx512Bf16;
  if (packs) phases.insert(phases.begin() + 6, "pack");
  ExpectProfile(layer["profile"], phases);
  const ProcessResult table = Bench(asked);
  for (const char* part : {"\n  us alone: q_a+kv_a ", "\n  together ", "; the layer takes "}) {
    EXPECT_NE(table.out.find(part), std::string::npos) << part << table.out;
  }
}

TEST(Bench, ModelProfiled) {
  const std::vector<std::string> asked = {"model",
                                          DemoDir(),
                                          "--context",
                                          "20",
                                          "--tokens",
                                          "3",
                                          "--prompt",
                                          "80",
                                          "--repeats",
                                          "2",
                                          "--mode",
                                          "role",
                                          "--prefill-chunk",
                                          "50",
                                          "--threads",
                                          "2",
                                          "--quiet",
                                          "--working-set",
                                          "64K",
                                          "--profile"};
  std::vector<std::string> arguments = asked;
  arguments.emplace_back("--json");
  const ProcessResult result = Bench(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json j = Json::parse(result.out, nullptr, false);
  const Json& decode = j["decode_profile"];
  EXPECT_EQ(decode["steps"], 1);
  EXPECT_EQ(decode["expansions"], 0);
  EXPECT_EQ(decode["weight_conversions"], 0);
  EXPECT_EQ(decode["mha_seconds"], 0);
  EXPECT_GT(decode["absorbed_seconds"], 0);
  EXPECT_GT(decode["product_seconds"], 0);
  // Chunks of 50 and 30: the first one's positions are expanded again for the second.
  const Json& prompt = j["prompt_profile"];
  EXPECT_EQ(prompt["steps"], 2);
  const int layers = static_cast<int>(prompt["expansions"].get<double>()) / (50 + 80);
  EXPECT_EQ(prompt["expansions"], layers * (50 + 80));
  EXPECT_GT(layers, 0);
  EXPECT_EQ(prompt["absorbed_seconds"], 0);
  EXPECT_EQ(prompt["weight_conversions"], 0);
  EXPECT_TRUE(prompt["phases"][0]["phase_of_peak"].is_null());
  for (const char* which : {"decode_profile", "prompt_profile"}) {
    const Json& profile = j[which];
    double seconds = 0;
    for (const Json& phase : profile["phases"]) seconds += phase["phase_seconds"].get<double>();
    EXPECT_LE(seconds, profile["run_seconds"].get<double>() * (1 + 1e-9)) << which;
  }
  const ProcessResult table = Bench(asked);
  EXPECT_NE(table.out.find("\ndecode, 1 steps, "), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("\nprompt, 2 steps, "), std::string::npos) << table.out;
  arguments.back() = "--csv";
  const ProcessResult csv = Bench(arguments);
  EXPECT_NE(csv.out.find(",decode,1,"), std::string::npos) << csv.out;
  EXPECT_NE(csv.out.find(",prompt,2,"), std::string::npos) << csv.out;
}

TEST(Bench, ModelThroughTheEngine) {
  const ProcessResult result =
      Bench({"model", DemoDir(), "--context", "20", "--tokens", "3", "--prompt", "8", "--repeats", "2", "--threads",
             "2", "--weights", "f32", "--working-set", "64K", "--json", "--quiet"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json j = Json::parse(result.out, nullptr, false);
  EXPECT_EQ(j["bench"], "model");
  EXPECT_EQ(j["weights"], "f32");
  EXPECT_EQ(j["threads"], 2);
  EXPECT_EQ(j["kernels"], IsaName(DetectCpu().best()));
  EXPECT_EQ(j["context"], 20);
  EXPECT_EQ(j["decode_tokens_per_second"]["count"], 3);
  EXPECT_EQ(j["prompt_tokens_per_second"]["count"], 2);
  EXPECT_GT(j["decode_tokens_per_second"]["median"], 0);
}

TEST(Bench, ModelBesideItsLeastTime) {
  const std::vector<std::string> asked = {
      "model",       DemoDir(), "--context",       "20", "--tokens",       "3",
      "--sequences", "3",       "--prompt",        "80", "--prompt-after", "30",
      "--repeats",   "2",       "--prefill-chunk", "50", "--quiet",        "--working-set"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = asked;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Bench(arguments);
  };
  const ProcessResult json = with({"64K", "--json"});
  EXPECT_EQ(json.exit_code, 0) << json.err;
  const Json j = Json::parse(json.out, nullptr, false);
  ASSERT_TRUE(j.is_object()) << json.out;
  EXPECT_EQ(j["sequences"], 3);
  EXPECT_EQ(j["prompt_after"], 30);
  for (const std::string run : {"decode", "prompt"}) {
    EXPECT_GT(j[run + "_peak_gflops"], 0) << run;
    EXPECT_GT(j[run + "_attention_peak_gflops"], 0) << run;
    EXPECT_GT(j[run + "_router_peak_gflops"], 0) << run;
    EXPECT_GT(j[run + "_read_gbytes_per_second"], 0) << run;
    const double ratio = j[run + "_seconds"].get<double>() / j[run + "_least_seconds"].get<double>();
    EXPECT_DOUBLE_EQ(j[run + "_ratio_to_least"], ratio) << run;
    EXPECT_GT(ratio, 0) << run;
  }
  EXPECT_EQ(j["decode_least_absorbed_steps"].get<int>() + j["decode_least_mha_steps"].get<int>(), 1);
  EXPECT_EQ(j["prompt_least_absorbed_steps"].get<int>() + j["prompt_least_mha_steps"].get<int>(), 2);
  EXPECT_DOUBLE_EQ(j["decode_tokens_per_second"]["median"], 3 / j["decode_seconds"].get<double>());
  const ProcessResult table = with({"64K"});
  for (const char* part : {" tokens of each of 3 sequences\n  ", ", after 30 cached\n  ", " times the least: "}) {
    EXPECT_NE(table.out.find(part), std::string::npos) << part << table.out;
  }
  // Without limits there is no least time.
  const Json none = Json::parse(with({"0", "--json"}).out, nullptr, false);
  EXPECT_TRUE(none["decode_least_seconds"].is_null());
  EXPECT_TRUE(none["prompt_ratio_to_least"].is_null());
  EXPECT_GT(none["decode_seconds"], 0);
}

TEST(Bench, ServeReplaysATrace) {
  const TempDir dir;
  std::string trace;
  for (int i = 0; i < 12; ++i) {
    trace +=
        fmt::format(R"({{"arrival": {}, "prompt_tokens": {}, "output_tokens": {}, "prefix": "p", "prefix_tokens": 64}})"
                    "\n",
                    i * 1e-6, 65 + i, 3 + i);
  }
  const std::string path = dir.Write("trace.jsonl", trace);
  const std::string page = dir.File("page.html");
  const ProcessResult result = Bench({"serve", DemoDir(), "--trace", path, "--max-sequences", "4", "--mode", "absorb",
                                      "--cancelled", "0", "--html", page, "--json", "--quiet"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json j = Json::parse(result.out, nullptr, false);
  ASSERT_TRUE(j.is_object()) << result.out;
  EXPECT_EQ(j["bench"], "serve");
  EXPECT_EQ(j["requests"]["finished"], 12);
  EXPECT_EQ(j["throughput"]["prompt_tokens"], 12 * 65 + 66);
  EXPECT_EQ(j["throughput"]["output_tokens"], 12 * 3 + 66);
  EXPECT_EQ(j["first_token_seconds"]["count"], 12);
  EXPECT_EQ(j["between_tokens_seconds"]["count"], 12 * 2 + 66);
  EXPECT_EQ(j["resident"]["most_sequences"], 4);
  // The four of the first step begin before any row is there; the prefix's 64 tokens are whole pages for the others.
  EXPECT_GE(j["prefix"]["hits"], 8);
  EXPECT_GE(j["prefix"]["cached_tokens"], 8 * 64);
  EXPECT_GT(j["decode_steps"]["absorbed_attention_seconds"], 0);
  EXPECT_EQ(j["prompt_steps"]["mha_attention_seconds"], 0);
  EXPECT_LT(j["prompt_steps"]["absorbed_attention_seconds"], j["prompt_steps"]["seconds"]);
  std::stringstream html_text;
  html_text << std::ifstream(page).rdbuf();
  const std::string html = html_text.str();
  for (const char* title : {"Waiting", "Output", "Sequences", "Pages in use"}) {
    EXPECT_NE(html.find(std::string("<h3>") + title), std::string::npos) << title;
  }
}

TEST(Bench, PeakAlone) {
  const ProcessResult result = Bench({"peak", "--working-set", "1M", "--threads", "1", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json j = Json::parse(result.out, nullptr, false);
  ExpectMachine(j, 1);
  EXPECT_TRUE(j["kernels"].is_null());
  ASSERT_EQ(j["reads"].size(), 1U);
  EXPECT_EQ(j["reads"][0]["bytes"], 1 << 20);
}

TEST(Bench, WrongUsage) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"speed"},
      {"gemm", "--shape", "8,2112"},
      {"serve", DemoDir(), "--prompt-tokens", "9:8"},
      {"serve", DemoDir(), "--output-tokens", "0"},
      {"gemm", "--shape", "8,2112,7168,1"},
      {"gemm", "--shape", "0,16,16"},
      {"gemm", "--shape", "8,16,-16"},
      {"gemm", "--shape", "8,16,99999999"},
      {"gemm", "--shape", "99999999999999999999,16,16"},
      {"gemm", "--shape", "1,16,16", "--rows", "2"},
      {"gemm", "--shape", "1,16,16", "--like", "minicpm3"},
      {"gemm", "--like", "gpt-2"},
      {"gemm", "--rows", "0"},
      {"gemm", "--rows", "1,x"},
      {"gemm", "--format", "int3"},
      {"gemm", "--kernels", "sse"},
      {"gemm", "--threads", "-1"},
      {"gemm", "--working-set", "much"},
      {"gemm", "--seconds", "-1"},
      {"gemm", "--json", "--csv"},
      {"moe", "--like", "minicpm3"},
      {"moe", "--like", "deepseek-v3:0"},
      {"attention", "--like", "gpt-2"},
      {"attention", "--form", "explicit"},
      {"attention", "--keys", "0"},
      {"attention", "--requests", "0"},
      {"attention", "--keys-range", "9:8"},
      {"attention", "--keys-range", "0:8"},
      {"attention", "--keys-range", "8:x"},
      {"attention", "--keys-range", "8:9", "--keys", "8"},
      {"attention", "--expand", "much"},
      {"layer", "--keys-range", "8:9"},
      {"attention", "--kv-dtype", "fp8"},
      {"attention", "--format", "bf16"},
      {"attention", "--form", "auto"},
      {"layer", "--like", "gpt-2"},
      {"layer", "--form", "explicit"},
      {"layer", "--keys", "0"},
      {"layer", "--rows", "0"},
      {"layer", "--kv-dtype", "fp8"},
      {"layer", "--requests", "2"},
      {"gemm", "--profile"},
      {"moe", "--profile"},
      {"model"},
      {"model", DemoDir(), "--tokens", "0"},
      {"model", DemoDir(), "--sequences", "0"},
      {"model", DemoDir(), "--prompt-after", "-1"},
      {"model", DemoDir(), "--working-set", "much"},
      {"model", DemoDir(), "--mode", "explicit"},
      {"peak", "--kernels", "avx2"},
  };
  for (const auto& arguments : wrong) {
    const ProcessResult result = Bench(arguments);
    const std::string shown = arguments.empty() ? "" : arguments.front() + " " + arguments.back();
    EXPECT_EQ(result.exit_code, 2) << shown << result.err;
    EXPECT_EQ(result.out, "") << shown;
    EXPECT_NE(result.err, "") << shown;
  }
  const ProcessResult shape = Bench({"gemm", "--shape", "8,2112"});
  EXPECT_EQ(shape.err.rfind("--shape: expected M,N,K as 8,2112,7168, ", 0), 0U) << shape.err;
  EXPECT_NE(shape.err.find("found '8,2112'\n"), std::string::npos) << shape.err;
  EXPECT_NE(Bench({"moe", "--like", "minicpm3"}).err.find("--like: expected a model with experts, found minicpm3\n"),
            std::string::npos);
}

// Before anything is allocated: the machine's own memory would not hold it.
TEST(Bench, RefusesWhatDoesNotFit) {
  ExpectOneLine(Bench({"gemm", "--shape", "1,16,16", "--working-set", "900T"}), {"memory: 900.0 TiB", "--working-set"});
  ExpectOneLine(Bench({"gemm", "--shape", "65536,16777216,16777216", "--working-set", "0"}),
                {"memory:", "may be used"});
  ExpectOneLine(Bench({"moe", "--working-set", "900T"}), {"memory: 900.0 TiB"});
  ExpectOneLine(Bench({"attention", "--working-set", "900T"}), {"memory: 900.0 TiB"});
  ExpectOneLine(Bench({"attention", "--keys", "16777216", "--requests", "4096"}), {"memory:", "may be used"});
  ExpectOneLine(Bench({"layer", "--working-set", "900T"}), {"memory: 900.0 TiB"});
  ExpectOneLine(Bench({"layer", "--keys", "3", "--rows", "5"}), {"--rows: expected at most the largest of --keys"});
  ExpectOneLine(Bench({"peak", "--working-set", "900T"}), {"memory: 900.0 TiB"});
  ExpectOneLine(Bench({"model", DemoDir(), "--context", "2000000000"}), {"--context", "positions"});
  ExpectOneLine(Bench({"model", DemoDir(), "--prompt-after", "2000000000"}), {"--prompt-after", "positions"});
  ExpectOneLine(Bench({"model", DemoDir(), "--working-set", "900T"}), {"memory: --working-set alone takes 900.0 TiB"});
  ExpectOneLine(Bench({"model", DemoDir(), "--context", "500", "--sequences", "4096", "--memory", "64M",
                       "--working-set", "1M", "--quiet"}),
                {"memory: ", "cache", "--sequences", "63.0 MiB may be used"});
  ExpectOneLine(Bench({"attention", "--keys-range", "4:9", "--rows", "5"}),
                {"--rows: expected at most the least of --keys-range, found 5"});
  ExpectOneLine(Bench({"model", DemoDir() + "/absent"}), {"absent"});
  for (const Isa isa : kIsas) {
    if (DetectCpu().Has(isa)) continue;
    ExpectOneLine(Bench({"gemm", "--kernels", IsaName(isa)}), {"kernels: expected one of", IsaName(isa)});
  }
}

}  // namespace
}  // namespace mla::testing
