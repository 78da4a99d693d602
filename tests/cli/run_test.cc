// mla run on the demo: what it prints, where prompts come from, how it ends.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <signal.h>

#include "cli/program.h"
#include "testing/temp_dir.h"

namespace mla::testing {
namespace {

using Json = nlohmann::json;

Json Golden() { return Json::parse(std::ifstream(DemoDir() + "/golden.json")); }

Json RunJson(std::vector<std::string> arguments, const ProcessOptions& options = {}) {
  arguments.insert(arguments.begin(), {"run", DemoDir()});
  arguments.insert(arguments.end(), {"--json", "--quiet"});
  const ProcessResult result = Mla(arguments, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return Json::parse(result.out, nullptr, false);
}

TEST(Run, ContinuesATextInEveryMode) {
  const Json golden = Golden()["genesis"];
  for (const char* mode : {"explicit", "absorb", "mha", "role", "auto"}) {
    const Json j = RunJson({golden["prompt"], "--mode", mode, "--weights", "f32", "--kv-dtype", "f32", "--max-tokens",
                            "48", "--prompt-logprobs"});
    EXPECT_EQ(j["prompt_ids"], golden["ids"]) << mode;
    EXPECT_EQ(j["ids"], golden["greedy"]) << mode;
    EXPECT_EQ(j["finish_reason"], "length");
    EXPECT_EQ(j["mode"], mode);
    EXPECT_EQ(j["logprobs"].size(), j["ids"].size());
    ASSERT_EQ(j["prompt_logprobs"].size(), golden["next_logprobs"].size());
    for (std::size_t i = 0; i < golden["next_logprobs"].size(); ++i) {
      EXPECT_NEAR(j["prompt_logprobs"][i].get<double>(), golden["next_logprobs"][i].get<double>(), 1e-4)
          << mode << " " << i;
    }
  }
}

// LongRoPE's factors follow from the context, in the float64 reference as in the engine: --max-tokens or --ctx past the
// original window of 64 tokens turn every position by the long ones.
TEST(Run, LongropeFollowsTheContextInEveryMode) {
  const std::string model = std::string(MLA_SOURCE_DIR) + "/tests/conformance/data/minicpm3_stretched";
  const auto run = [&](const std::string& mode, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "run",        model, "--ids",     "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18",
        "--mode",     mode,  "--weights", "f32",
        "--kv-dtype", "f32", "--json",    "--quiet"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult result = Mla(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out, nullptr, false);
  };
  const Json shorter = run("explicit", {"--max-tokens", "2"});
  const Json longer = run("explicit", {"--max-tokens", "2", "--ctx", "100"});
  EXPECT_NE(shorter["rope_fingerprint"], longer["rope_fingerprint"]);
  const auto first = [](const Json& j) { return j["logprobs"][0].get<double>(); };
  EXPECT_GT(std::fabs(first(shorter) - first(longer)), 1e-3);
  for (const char* mode : {"absorb", "mha"}) {
    const Json within = run(mode, {"--max-tokens", "2"});
    EXPECT_NEAR(first(within), first(shorter), 1e-4) << mode;
    EXPECT_EQ(within["rope_fingerprint"], shorter["rope_fingerprint"]);
    EXPECT_NEAR(first(run(mode, {"--max-tokens", "2", "--ctx", "100"})), first(longer), 1e-4) << mode;
    EXPECT_NEAR(first(run(mode, {"--max-tokens", "80"})), first(longer), 1e-4) << mode;
  }
}

// Auto keeps a checkpoint's fp8, says so, and computes what bf16 does.
TEST(Run, KeepsFp8AsItIs) {
  const std::string model = std::string(MLA_SOURCE_DIR) + "/tests/conformance/data/fp8";
  const auto run = [&](const std::string& weights) {
    const ProcessResult result = Mla(
        {"run", model, "--ids", "1,2,3,4,5,6,7,8,9", "--max-tokens", "6", "--weights", weights, "--json", "--quiet"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out, nullptr, false);
  };
  const Json kept = run("auto");
  const Json rounded = run("bf16");
  EXPECT_EQ(kept["weights"], "fp8");
  EXPECT_EQ(rounded["weights"], "bf16");
  EXPECT_EQ(kept["ids"], rounded["ids"]);
  EXPECT_EQ(kept["logprobs"], rounded["logprobs"]);
  const Json inspect = Json::parse(Mla({"inspect", model, "--json"}).out, nullptr, false);
  EXPECT_EQ(inspect["weight_bytes"]["fp8"], kept["memory"]["weights"]);
  EXPECT_EQ(inspect["weight_bytes"]["bf16"], rounded["memory"]["weights"]);
  EXPECT_LT(kept["memory"]["weights"].get<int>(), rounded["memory"]["weights"].get<int>());
  EXPECT_EQ(RunJson({"And", "--max-tokens", "1"})["weights"], "bf16") << "a checkpoint without fp8";
}

// An output in two runs is that in one, to the bit, and no row is run twice; text and ids may follow what was saved.
TEST(Run, GoesOnFromACacheFile) {
  const TempDir dir;
  const std::string path = dir.File("cache");
  const std::vector<std::string> sampled = {"--temperature", "0.8", "--seed", "3", "--ignore-eos"};
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), sampled.begin(), sampled.end());
    return RunJson(arguments);
  };
  const Json whole = run({"And God said", "--mode", "role", "-n", "30"});
  const Json begun = run({"And God said", "--mode", "role", "-n", "12", "--save-cache", path});
  const auto rows = begun["prompt_ids"].size() + 11;
  EXPECT_EQ(begun["cache_saved"]["rows"], rows);
  EXPECT_EQ(begun["cache_saved"]["bytes"], std::filesystem::file_size(path));
  const Json rest = run({"--mode", "role", "-n", "18", "--load-cache", path, "--save-cache", path});
  EXPECT_EQ(rest["cached_tokens"], rows);
  for (const char* what : {"ids", "logprobs"}) {
    EXPECT_EQ(rest[what], Json(std::vector<Json>(whole[what].begin() + 12, whole[what].end()))) << what;
  }

  std::vector<int> ids = whole["prompt_ids"].get<std::vector<int>>();
  for (const int id : whole["ids"].get<std::vector<int>>()) ids.push_back(id);
  const auto text = run({" And he", "--mode", "role", "-n", "0"})["prompt_ids"].get<std::vector<int>>();
  std::vector<int> longer = ids;
  longer.insert(longer.end(), text.begin() + 1, text.end());  // without a second BOS
  const Json next = run({" And he", "--mode", "role", "-n", "4", "--load-cache", path});
  EXPECT_EQ(next["prompt_ids"], longer);
  EXPECT_EQ(next["cached_tokens"], ids.size() - 1);
  const Json by_ids =
      run({"--ids", fmt::format("{}", fmt::join(longer, ",")), "--mode", "role", "-n", "4", "--load-cache", path});
  EXPECT_EQ(by_ids["prompt_ids"], longer);
  EXPECT_EQ(by_ids["ids"], next["ids"]);

  ExpectOneLine(Mla({"run", DemoDir(), "--load-cache", path}), {path, "mode: expected auto", "found role"});
  ExpectOneLine(Mla({"run", DemoDir(), "And", "--save-cache", dir.File("none/cache")}), {"can't be written"});
  ExpectOneLine(Mla({"run", DemoDir(), "And", "--mode", "explicit", "--save-cache", path}), {"--mode explicit"});
}

// Where pages come from and who draws what changes no token; the report says what was got.
TEST(Run, PagesAndNodesChangeNoResult) {
  const auto run = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"And it came to pass", "--max-tokens", "8"});
    return RunJson(more);
  };
  const Json plain = run({"--huge-pages", "off", "--numa", "off"});
  EXPECT_EQ(plain["huge_pages"]["setting"], "off");
  EXPECT_EQ(plain["numa_nodes"], 1);
  const Json j = run({});
  EXPECT_EQ(j["huge_pages"]["setting"], "auto");
  EXPECT_EQ(j["ids"], plain["ids"]);
  EXPECT_EQ(j["logprobs"], plain["logprobs"]);
  EXPECT_GE(j["numa_nodes"], 1);
  if (j["huge_pages"]["asked"].is_null()) GTEST_SKIP() << "the system does not say which pages are huge";
  EXPECT_EQ(plain["huge_pages"]["huge"], 0);
  EXPECT_GT(j["huge_pages"]["asked"], j["memory"]["weights"].get<std::int64_t>() / 2);
  EXPECT_LE(j["huge_pages"]["resident"], j["huge_pages"]["asked"]);
  EXPECT_LE(j["huge_pages"]["huge"], j["huge_pages"]["resident"]);
  const ProcessResult text = Mla({"run", DemoDir(), "And", "--max-tokens", "1"});
  EXPECT_NE(text.err.find("huge pages (auto): "), std::string::npos) << text.err;
}

// A prompt in chunks of 64 with its expansions kept: the same tokens, each position expanded once.
TEST(Run, KeepsExpandedKeysAndValues) {
  std::string ids = "0";
  for (int i = 1; i < 150; ++i) ids += fmt::format(",{}", 5 + i);
  const std::vector<std::string> plain = {"--ids", ids, "--mode", "role", "--prefill-chunk", "64", "-n", "8"};
  std::vector<std::string> kept = plain;
  kept.insert(kept.end(), {"--keep-expanded", "10M"});
  const Json expected = RunJson(plain);
  const Json found = RunJson(kept);
  for (const char* what : {"ids", "logprobs"}) EXPECT_EQ(found[what], expected[what]) << what;
  EXPECT_EQ(expected["keys"], (Json{{"expanded", 64 + 128 + 150}, {"kept", 0}}));
  EXPECT_EQ(found["keys"], (Json{{"expanded", 150}, {"kept", 64 + 128}}));
  kept.insert(kept.begin(), {"run", DemoDir()});
  EXPECT_NE(Mla(kept).err.find("150 positions expanded, of 192 found kept"), std::string::npos);

  ExpectOneLine(Mla({"run", DemoDir(), "And", "--keep-expanded", "1000"}),
                {"keep expanded: expected 0 or at least 2162688 bytes", "found 1000"});
  const ProcessResult bad = Mla({"run", DemoDir(), "And", "--keep-expanded", "much"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_NE(bad.err.find("expected a size such as 8G"), std::string::npos) << bad.err;
}

TEST(Run, TakesReservedHugePagesOrSaysHowManyToReserve) {
  const ProcessResult result = Mla({"run", DemoDir(), "And", "--max-tokens", "1", "--huge-pages", "hugetlbfs"});
  std::int64_t reserved = 0;
  std::ifstream("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages") >> reserved;
  if (result.exit_code == 0 && reserved > 0) return;
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  for (const char* part : {"--huge-pages hugetlbfs", "needed", "free", "sysctl vm.nr_hugepages="}) {
    EXPECT_NE(result.err.find(part), std::string::npos) << part << " in " << result.err;
  }
}

TEST(Run, StreamsWhatJsonSays) {
  const Json j = RunJson({"And it came to pass", "--max-tokens", "20"});
  const ProcessResult stream = Mla({"run", DemoDir(), "And it came to pass", "--max-tokens", "20"});
  EXPECT_EQ(stream.exit_code, 0);
  EXPECT_EQ(stream.out, j["text"].get<std::string>() + "\n");
  EXPECT_NE(stream.err.find("bytes per cached token"), std::string::npos) << stream.err;
  EXPECT_NE(stream.err.find("form table analytic-1"), std::string::npos) << stream.err;
  EXPECT_EQ(stream.err.find('\r'), std::string::npos) << "a progress line, with no terminal there";
}

TEST(Run, AChatTurnNeedsSpecial) {
  const Json golden = Golden()["chat"];
  const std::string text = "<｜User｜>" + golden["prompt"]["user"].get<std::string>() + "<｜Assistant｜>";
  const Json parsed = RunJson({text, "--special", "--max-tokens", "48", "--weights", "f32", "--kv-dtype", "f32"});
  EXPECT_EQ(parsed["prompt_ids"], golden["ids"]);
  EXPECT_EQ(parsed["ids"], golden["greedy"]);
  EXPECT_EQ(parsed["finish_reason"], "stop");
  const Json plain = RunJson({text, "--max-tokens", "1"});
  for (const Json& id : plain["prompt_ids"]) EXPECT_TRUE(id.get<int>() == 0 || id.get<int>() > 4) << id;
  // A text that brings its own BOS has one, not two.
  EXPECT_EQ(RunJson({"<｜begin▁of▁sentence｜>" + text, "--special", "--max-tokens", "1"})["prompt_ids"], golden["ids"]);
}

TEST(Run, ThePromptComesFromAnywhere) {
  const TempDir dir;
  const std::string text = "Psalms 23\nThe LORD is my";
  const Json argument = RunJson({text, "--max-tokens", "4"});
  EXPECT_EQ(RunJson({"--prompt-file", dir.Write("p", text), "--max-tokens", "4"})["ids"], argument["ids"]);
  ProcessOptions input;
  input.input = text;
  EXPECT_EQ(RunJson({"--max-tokens", "4"}, input)["prompt_ids"], argument["prompt_ids"]);
  EXPECT_EQ(RunJson({"", "--max-tokens", "4"})["prompt_ids"], Json::parse("[0]"));
  EXPECT_EQ(RunJson({"--max-tokens", "4"})["prompt_ids"], Json::parse("[0]"));
  std::string ids;
  for (const Json& id : argument["prompt_ids"]) ids += (ids.empty() ? "" : ", ") + id.dump();
  EXPECT_EQ(RunJson({"--ids", ids, "--max-tokens", "4"})["ids"], argument["ids"]);
}

TEST(Run, IdsNeedNoTokenizer) {
  const TempDir dir;
  for (const char* file : {"config.json", "model.safetensors"}) {
    std::filesystem::create_symlink(DemoDir() + "/" + file, dir.File(file));
  }
  const ProcessResult result = Mla({"run", dir.path(), "--ids", "0,76,282", "--max-tokens", "3", "-q"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), ','), 2) << result.out;
  ExpectOneLine(Mla({"run", dir.path(), "text"}), {"tokenizer.json"});
}

TEST(Run, SamplingIsKeyedByTheSeed) {
  const auto sample = [](const char* seed, const char* threads) {
    return RunJson(
        {"And", "--temperature", "0.8", "--top-p", "0.95", "--seed", seed, "--threads", threads, "--max-tokens", "24"});
  };
  const Json first = sample("7", "1");
  EXPECT_EQ(first["ids"], sample("7", "2")["ids"]);
  EXPECT_EQ(first["logprobs"], sample("7", "2")["logprobs"]);
  EXPECT_NE(first["ids"], sample("8", "1")["ids"]);
}

TEST(Run, EndsWhereItIsTold) {
  const Json golden = Golden()["chat_ask"];
  std::string ids;
  for (const Json& id : golden["ids"]) ids += (ids.empty() ? "" : ",") + id.dump();
  const Json stopped = RunJson({"--ids", ids, "--max-tokens", "12"});
  EXPECT_EQ(stopped["finish_reason"], "stop");
  EXPECT_EQ(stopped["ids"].back(), 1);
  const Json ignored = RunJson({"--ids", ids, "--max-tokens", "12", "--ignore-eos"});
  EXPECT_EQ(ignored["ids"].size(), 12U);
  const Json full = RunJson({"--ids", ids, "--ctx", "24", "--ignore-eos"});
  EXPECT_EQ(full["finish_reason"], "context");
  EXPECT_EQ(full["ids"].size() + full["prompt_ids"].size(), 24U);
  EXPECT_EQ(RunJson({"--ids", ids, "--max-tokens", "0"})["ids"], Json::array());
}

TEST(Run, InterruptEndsCleanly) {
  ProcessOptions options;
  options.on_first_output = [](int pid) { kill(pid, SIGINT); };
  const ProcessResult result = Mla({"run", DemoDir(), "And", "--ignore-eos", "--max-tokens", "2000"}, options);
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(result.out.back(), '\n');
  EXPECT_NE(result.err.find("ended by interrupt"), std::string::npos) << result.err;
  EXPECT_LT(result.out.size(), 8000U) << "went on after the interrupt";
}

TEST(Run, NotesThatCannotBeWrittenAreNoFailure) {
  const std::string command = std::string(MLA_PROGRAM) + " run " + DemoDir() + " And --max-tokens 2";
  for (const char* redirect : {" 2>/dev/full", " 2>&-"}) {
    const ProcessResult result = RunProcess({"/bin/sh", "-c", command + redirect});
    EXPECT_EQ(result.exit_code, 0) << redirect;
    EXPECT_NE(result.out, "");
  }
}

TEST(Run, InterruptWhileWaitingForAPrompt) {
  const std::string command =
      "sleep 5 | timeout --preserve-status -s INT 0.5 " + std::string(MLA_PROGRAM) + " run " + DemoDir();
  EXPECT_EQ(RunProcess({"/bin/sh", "-c", command}).exit_code, 130);
}

TEST(Run, JsonFloatsRoundTrip) {
  const ProcessResult result = Mla({"run", DemoDir(), "And God said", "--json", "-q", "--max-tokens", "8"});
  const Json j = Json::parse(result.out);
  EXPECT_EQ(j.dump(), Json::parse(j.dump()).dump());
  for (const Json& logprob : j["logprobs"]) EXPECT_LE(logprob.get<double>(), 0);
  EXPECT_EQ(j["form_table"], "analytic-1");
  EXPECT_GT(j["timings"]["decode_tokens_per_second"].get<double>(), 0);
  EXPECT_EQ(j["cache_bytes_per_token"], 640);
}

TEST(Program, VersionNamesWhatItIs) {
  const ProcessResult result = Mla({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* word : {"mla ", "kernels", "portable", "processor"}) {
    EXPECT_NE(result.out.find(word), std::string::npos) << result.out;
  }
}

TEST(Program, WrongUsageExitsWithTwo) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"walk"},
      {"run"},
      {"run", DemoDir(), "x", "--mode", "fast"},
      {"run", DemoDir(), "x", "--threads", "-1"},
      {"run", DemoDir(), "x", "--prefill-chunk", "0"},
      {"run", DemoDir(), "x", "--ids", "0"},
      {"run", DemoDir(), "x", "--prompt-logprobs"},
      {"run", DemoDir(), "x", "--max-tokens", "many"},
      {"inspect"},
      {"run", DemoDir(), "x", "--temperature", "-1"},
      {"run", DemoDir(), "x", "--temperature", "nan"},
      {"run", DemoDir(), "x", "--top-p", "2"},
      {"run", DemoDir(), "x", "--top-p", "0"},
      {"run", DemoDir(), "x", "--kernels", "mmx"},
  };
  for (const auto& arguments : wrong) {
    const ProcessResult result = Mla(arguments);
    EXPECT_EQ(result.exit_code, 2) << (arguments.empty() ? "" : arguments.back()) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err, "");
  }
  for (const char* size : {"0", "-1G", "x", "1X", "1e40G", "nan"}) {
    EXPECT_EQ(Mla({"run", DemoDir(), "x", "--memory=" + std::string(size)}).exit_code, 2) << size;
  }
  for (const char* ids : {"0,,1", "0,", "1 2", "x", "99999999999"}) {
    EXPECT_EQ(Mla({"run", DemoDir(), "--ids", ids}).exit_code, 2) << ids;
  }
}

TEST(Program, AFullDiskShowsInHelpToo) {
  ProcessOptions full;
  full.stdout_path = "/dev/full";
  for (const char* flag : {"--version", "--help"}) EXPECT_EQ(Mla({flag}, full).exit_code, 1) << flag;
}

}  // namespace
}  // namespace mla::testing
