// mla synth, as a user would: a tiny checkpoint that runs at once, and runs that end early.
#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "testing/temp_dir.h"
#include "testing/tiny_checkpoint.h"

namespace mla::testing {
namespace {

std::string TinyLike(const TempDir& dir, std::int64_t hidden = 64) {
  TinyOptions tiny;
  tiny.vocab_size = 300;
  tiny.hidden_size = hidden;
  tiny.intermediate_size = 4 * hidden;
  return dir.Write("like.json", TinyConfigJson(tiny));
}

// What is in the folder beside the config.
std::vector<std::string> Made(const TempDir& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    if (entry.path().filename() != "like.json") names.push_back(entry.path().filename().string());
  }
  return names;
}

TEST(Synth, WhatItMakesRunsAtOnce) {
  const TempDir dir;
  const std::string like = TinyLike(dir);
  for (const char* dtype : {"bf16", "fp8", "f32"}) {
    const std::string out = dir.File(dtype);
    const ProcessResult made = Mla({"synth", "--like", like, "--layers", "2", "--dtype", dtype, out});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    EXPECT_EQ(made.err, "");
    EXPECT_NE(made.out.find("deepseek_v3, 2 layers"), std::string::npos) << made.out;
    const ProcessResult run = Mla({"run", out, "text", "--max-tokens", "4", "--json", "-q"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const auto json = nlohmann::json::parse(run.out, nullptr, false);
    EXPECT_EQ(json["prompt_ids"].size(), 5U);  // BOS and four bytes
    EXPECT_EQ(Mla({"inspect", out}).exit_code, 0);
  }
  EXPECT_EQ(Mla({"synth", "--like", like, "--quiet", dir.File("quiet")}).out, "");
}

TEST(Synth, ThreadsChangeNoByte) {
  const TempDir dir;
  const std::string like = TinyLike(dir);
  for (const char* threads : {"1", "3"}) {
    ASSERT_EQ(Mla({"synth", "--like", like, "--seed", "9", "--threads", threads, "-q", dir.File(threads)}).exit_code,
              0);
  }
  EXPECT_EQ(RunProcess({"/usr/bin/diff", "-r", dir.File("1"), dir.File("3")}).exit_code, 0);
}

// 3 GB are asked for, and the run ends long before.
TEST(Synth, AnInterruptLeavesNothing) {
  const TempDir dir;
  const std::string command = "timeout --preserve-status -s INT 0.3 " + std::string(MLA_PROGRAM) + " synth --like " +
                              TinyLike(dir, 8192) + " --layers 2 --experts 1 --dtype f32 " + dir.File("out");
  const ProcessResult result = RunProcess({"/bin/sh", "-c", command});
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_NE(result.err.find("interrupted"), std::string::npos) << result.err;
  EXPECT_EQ(Made(dir), std::vector<std::string>());
}

TEST(Synth, AFullDiskLeavesNothing) {
  const TempDir dir;
  const std::string command =
      "ulimit -f 64; " + std::string(MLA_PROGRAM) + " synth --like " + TinyLike(dir, 256) + " " + dir.File("out");
  ExpectOneLine(RunProcess({"/bin/sh", "-c", command}), {"model.safetensors", "File too large"});
  EXPECT_EQ(Made(dir), std::vector<std::string>());
}

TEST(Synth, ErrorsAreOneLine) {
  const TempDir dir;
  const std::string like = TinyLike(dir);
  ExpectOneLine(Mla({"synth", "--like", "deepseek-v9", dir.File("out")}), {"deepseek-v3", "minicpm3"});
  ExpectOneLine(Mla({"synth", "--like", like, dir.path()}), {dir.path(), "expected no such file or folder"});
  ExpectOneLine(Mla({"synth", "--like", like, dir.File("a/b")}), {"a/b", "No such file"});
  ExpectOneLine(Mla({"synth", "--like", like, "--vocab", "256", dir.File("out")}), {"258"});
  EXPECT_EQ(Made(dir), std::vector<std::string>());
}

TEST(Synth, WrongUsageExitsWithTwo) {
  const TempDir dir;
  const std::string out = dir.File("out");
  const std::vector<std::vector<std::string>> wrong = {{out},
                                                       {"--like", "deepseek-v3"},
                                                       {"--like", "deepseek-v3", "--layers", "0", out},
                                                       {"--like", "deepseek-v3", "--dtype", "int4", out},
                                                       {"--like", "deepseek-v3", "--shard-size", "x", out},
                                                       {"--like", "deepseek-v3", "--seed", "-1", out}};
  for (std::vector<std::string> arguments : wrong) {
    arguments.insert(arguments.begin(), "synth");
    EXPECT_EQ(Mla(arguments).exit_code, 2);
  }
  EXPECT_EQ(Made(dir), std::vector<std::string>());
}

}  // namespace
}  // namespace mla::testing
