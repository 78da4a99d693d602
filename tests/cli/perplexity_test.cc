// mla perplexity on the demo, against the PyTorch model in float64.
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "testing/models.h"
#include "testing/temp_dir.h"

namespace mla::testing {
namespace {

using Json = nlohmann::json;

// What tools/perplexity_reference.py printed; its head has the commands.
struct Figure {
  const char* window;
  const char* stride;
  int tokens;
  double nats;
  double standard_error;
  double bits_per_byte;
};
constexpr std::size_t kExcerpt = 7170;  // bytes of heldout.txt: two chapters
constexpr Figure kExcerptFigures[] = {{"512", "512", 2029, 3.466018364, 0.060321255, 1.417806991},
                                      {"256", "256", 2025, 3.489240164, 0.060440489, 1.427484484},
                                      {"128", "48", 2032, 3.463782325, 0.060284323, 1.416216594}};

constexpr std::size_t kChapter = 3291;  // the first of the two
constexpr Figure kChapterFigure = {"128", "128", 925, 3.443401635, 0.089837640, 1.409136792};

std::string Heldout() {
  std::ifstream in(DemoDir() + "/heldout.txt", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

Json Perplexity(const std::string& text, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"perplexity", DemoDir(), "-"});
  arguments.insert(arguments.end(), {"--json", "--quiet"});
  ProcessOptions options;
  options.input = text;
  const ProcessResult result = Mla(arguments, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return Json::parse(result.out, nullptr, false);
}

Json PerplexityF32(const std::string& text, std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--weights", "f32", "--kv-dtype", "f32", "--threads", "1"});
  return Perplexity(text, std::move(arguments));
}

// 1e-4 nats is asked for. Token losses in fp32 lie some 1e-5 from float64's (run_test holds each to 1e-4), and their
// mean is nearer; a standard error moves no more than they do.
void ExpectFigure(const Json& j, const Figure& f) {
  SCOPED_TRACE(f.window + std::string(",") + f.stride);
  EXPECT_EQ(j["tokens_scored"], f.tokens);
  EXPECT_NEAR(j["nats_per_token"].get<double>(), f.nats, 1e-4);
  EXPECT_NEAR(j["nats_per_token_standard_error"].get<double>(), f.standard_error, 1e-4);
  EXPECT_NEAR(j["bits_per_byte"].get<double>(), f.bits_per_byte, 1e-4);
  EXPECT_DOUBLE_EQ(j["perplexity"].get<double>(), std::exp(j["nats_per_token"].get<double>()));
  EXPECT_DOUBLE_EQ(j["perplexity_standard_error"].get<double>(),
                   j["perplexity"].get<double>() * j["nats_per_token_standard_error"].get<double>());
}

TEST(Perplexity, EqualsThePyTorchModels) {
  const std::string text = Heldout().substr(0, kExcerpt);
  for (const Figure& f : kExcerptFigures) {
    const Json j = PerplexityF32(text, {"--window", f.window, "--stride", f.stride});
    ExpectFigure(j, f);
    EXPECT_EQ(j["window"], std::atoi(f.window));
    EXPECT_EQ(j["stride"], std::atoi(f.stride));
  }
}

TEST(Perplexity, EveryModeGivesTheSame) {
  const std::string text = Heldout().substr(0, kChapter);
  const Figure& f = kChapterFigure;
  for (const char* mode : {"absorb", "mha", "role", "explicit"}) {
    const Json j = PerplexityF32(text, {"--window", f.window, "--mode", mode});
    ExpectFigure(j, f);
    EXPECT_EQ(j["mode"], mode);
    EXPECT_EQ(j.contains("form_table"), std::string(mode) != "explicit");
    if (std::string(mode) == "explicit") {
      EXPECT_NEAR(j["nats_per_token"].get<double>(), f.nats, 1e-9) << "both are float64";
      continue;
    }
    EXPECT_EQ(j["windows"], 8);  // of up to 128 of 933 tokens
    EXPECT_EQ(j["windows_by_form"]["mha"], std::string(mode) == "absorb" ? 0 : 8);
  }
}

// The whole held-out text, in the windows the model was trained on.
TEST(Perplexity, OfTheHeldOutText) {
  if (kUnderSanitizer) GTEST_SKIP() << "a minute there; the excerpt runs the same code";
  const Figure figure = {"512", "512", 15845, 3.477721236, 0.021481484, 1.414547406};
  ExpectFigure(PerplexityF32(Heldout(), {"--window", figure.window}), figure);
}

TEST(Perplexity, OneTokenHasNoStandardError) {
  const Json j = Perplexity("a", {});
  EXPECT_EQ(j["tokens"], 2);  // BOS and the letter
  EXPECT_EQ(j["tokens_scored"], 1);
  EXPECT_EQ(j["bytes_scored"], 1);
  EXPECT_TRUE(j["bos"]);
  EXPECT_TRUE(j["nats_per_token_standard_error"].is_null());
  EXPECT_NEAR(j["bits_per_byte"].get<double>(), j["nats_per_token"].get<double>() / std::log(2.0), 1e-12);
}

// A window's first token has no context: with two tokens a window, every second one is scored. The last window has one
// token, and is not run.
TEST(Perplexity, WindowsAtTheEdges) {
  const std::string text = "And it came to pass in";
  const std::int64_t tokens = Perplexity(text, {})["tokens"].get<std::int64_t>();
  const Json pairs = Perplexity(text, {"--window", "2"});
  EXPECT_EQ(pairs["tokens_scored"], tokens / 2);
  EXPECT_EQ(pairs["windows"], tokens / 2);
  const Json overlapping = Perplexity(text, {"--window", "2", "--stride", "1"});
  EXPECT_EQ(overlapping["tokens_scored"], tokens - 1);
  EXPECT_EQ(overlapping["timings"]["tokens_run"], 2 * (tokens - 1));
  const std::string size = std::to_string(tokens);
  for (const std::string& window : {size, std::to_string(tokens + 1)}) {
    const Json whole = Perplexity(text, {"--window", window});
    EXPECT_EQ(whole["windows"], 1);
    EXPECT_EQ(whole["tokens_scored"], tokens - 1);
  }
}

TEST(Perplexity, PrintsALineOfEach) {
  const TempDir dir;
  const ProcessResult result = Mla({"perplexity", DemoDir(), dir.Write("text", "And God said, Let there be light")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* word :
       {"perplexity ", "nats per token ", "bits per byte ", "tokens scored ", "independent", "form table analytic-1"}) {
    EXPECT_NE(result.out.find(word), std::string::npos) << word << " in " << result.out;
  }
  EXPECT_EQ(result.err, "");
}

TEST(Perplexity, AnInterruptGivesWhatIsScored) {
  const std::string command = "timeout --preserve-status -s INT 1 " + std::string(MLA_PROGRAM) + " perplexity " +
                              DemoDir() + " " + DemoDir() + "/heldout.txt --window 64 --stride 1 --json";
  const ProcessResult result = RunProcess({"/bin/sh", "-c", command});
  EXPECT_EQ(result.exit_code, 130) << result.err;
  if (result.out.empty()) GTEST_SKIP() << "this machine is too slow to score a window in a second";
  EXPECT_NE(result.err.find("interrupted after "), std::string::npos) << result.err;
  const Json j = Json::parse(result.out, nullptr, false);
  EXPECT_TRUE(j["interrupted"]);
  EXPECT_LT(j["tokens_scored"], j["tokens"]);
}

TEST(Perplexity, ErrorsAreOneLine) {
  const TempDir dir;
  const std::string text = dir.Write("text", "And God said");
  const std::string bad = dir.Write("bad", "And \xff");
  ExpectOneLine(Mla({"perplexity", DemoDir(), dir.File("none")}), {dir.File("none"), "No such file"});
  ExpectOneLine(Mla({"perplexity", DemoDir(), dir.path()}), {"directory"});
  ExpectOneLine(Mla({"perplexity", DemoDir(), bad}), {"UTF-8", "4"});
  ExpectOneLine(Mla({"perplexity", DemoDir(), dir.Write("empty", "")}), {"two tokens", "found 1"});
  ExpectOneLine(Mla({"perplexity", DemoDir(), text, "--window", "4096"}), {"--window", "2048", "4096"});
  ExpectOneLine(Mla({"perplexity", DemoDir(), text, "--stride", "4096"}), {"--stride", "2048", "4096"});
  ExpectOneLine(Mla({"perplexity", DemoDir(), text, "--memory", "1M"}), {"memory: ", "--window"});
  ExpectOneLine(Mla({"perplexity", DemoDir(), text, "--memory", "1M", "--mode", "explicit"}), {"memory: "});
}

TEST(Perplexity, WrongUsageExitsWithTwo) {
  const std::string text = DemoDir() + "/heldout.txt";
  const std::vector<std::vector<std::string>> wrong = {{},
                                                       {DemoDir()},
                                                       {DemoDir(), text, "--window", "1"},
                                                       {DemoDir(), text, "--window", "16", "--stride", "17"},
                                                       {DemoDir(), text, "--stride", "0"},
                                                       {DemoDir(), text, "--mode", "fast"}};
  for (std::vector<std::string> arguments : wrong) {
    arguments.insert(arguments.begin(), "perplexity");
    const ProcessResult result = Mla(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments.back() << result.err;
    EXPECT_EQ(result.out, "");
  }
}

}  // namespace
}  // namespace mla::testing
