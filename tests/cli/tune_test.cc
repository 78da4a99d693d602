// mla tune, what auto makes of its table, and mla bench crossover, as a user runs them. No time is asserted.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "testing/temp_dir.h"

namespace mla::testing {
namespace {

using Json = nlohmann::json;

ProcessResult RunDemo(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"run",    DemoDir(), "--ids",        "5,6,7,8,9,10,11,12",
                                        "--json", "--quiet", "--max-tokens", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Mla(arguments);
}

Json Parsed(const ProcessResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return Json::parse(result.out, nullptr, false);
}

// The cache folder of this test's processes.
class TuneCommand : public ::testing::Test {
 protected:
  TuneCommand() { setenv("XDG_CACHE_HOME", dir_.path().c_str(), 1); }
  ~TuneCommand() override { setenv("XDG_CACHE_HOME", MLA_BINARY_DIR "/no-cache", 1); }

  std::string Default() const { return dir_.File("mla/tune.json"); }
  Json Tune(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"tune", "demo", "--seconds", "0.01", "--json", "--quiet"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult result = Mla(arguments);
    EXPECT_EQ(result.err, "");
    return Parsed(result);
  }
  // A copy of the default table with one form's seconds multiplied, and the rest as it is.
  std::string Scaled(const char* form, double factor) {
    Json table = Json::parse(std::ifstream(Default()));
    for (Json& seconds : table["shapes"][0][form]) seconds = seconds.get<double>() * factor;
    return dir_.Write("scaled.json", table.dump());
  }

  TempDir dir_;
};

TEST_F(TuneCommand, WritesATableThatAutoChoosesBy) {
  const Json tuned = Tune({});
  EXPECT_EQ(tuned["path"], Default());
  EXPECT_EQ(tuned["table"]["shapes"][0]["kv_lora_rank"], 64);
  const std::string id = tuned["form_table"];
  EXPECT_EQ(id.rfind("tune-", 0), 0U) << id;
  ProcessResult result = RunDemo({});
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(Parsed(result)["form_table"], id);
  // Bits don't depend on the number of threads: nor does the table.
  result = RunDemo({"--threads", "1"});
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(Parsed(result)["form_table"], id);
  EXPECT_EQ(Parsed(RunDemo({"--tune-table", "shipped"}))["form_table"], "analytic-1");
  EXPECT_EQ(Parsed(RunDemo({"--mode", "role"}))["form_table"], "analytic-1");

  EXPECT_EQ(Parsed(RunDemo({"--tune-table", Scaled("mha_seconds", 1e-6)}))["prompt_form"], "mha");
  EXPECT_EQ(Parsed(RunDemo({"--tune-table", Scaled("absorbed_seconds", 1e-6)}))["prompt_form"], "absorbed");
}

TEST_F(TuneCommand, PlansTellTheTimeByItsTable) {
  const Json tuned = Tune({});
  const Json plan = Parsed(
      Mla({"plan", DemoDir(), "--tune-table", Default(), "--context", "128", "--tp", "2", "--link", "2G", "--json"}));
  const Json& times = plan["models"][0]["times"];
  EXPECT_EQ(times["rates"]["id"], tuned["form_table"]);
  EXPECT_EQ(times["rates"]["link_bytes"], 2e9);
  EXPECT_EQ(times["rates"]["read_bytes"], tuned["table"]["products"]["read_bytes"]);
  EXPECT_GT(times["first_token_seconds"], 0);
  EXPECT_EQ(Mla({"plan", DemoDir(), "--tune-table", Default(), "--flops", "1T"}).exit_code, 2);
  ExpectOneLine(Mla({"plan", DemoDir(), "--tune-table", dir_.File("none.json")}), {"--tune-table", "none.json"});
}

TEST_F(TuneCommand, PassesOverADefaultTableThatDoesNotFit) {
  Tune({});
  const auto shipped = [](const ProcessResult& result, const std::string& word) {
    EXPECT_EQ(Parsed(result)["form_table"], "analytic-1");
    EXPECT_EQ(result.err.rfind("mla: warning: ", 0), 0U) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_NE(result.err.find(word), std::string::npos) << result.err;
  };
  shipped(RunDemo({"--kv-dtype", "f32"}), "kv_dtype: expected \"f32\", found \"bf16\"");
  shipped(RunDemo({"--weights", "f32"}), "weights: expected \"f32\", found \"bf16\"");
  shipped(RunDemo({"--kernels", "portable"}), "kernels: expected \"portable\"");
  Json table = Json::parse(std::ifstream(Default()));
  const Json good = table;
  table["build"] = "another";
  std::ofstream(Default()) << table;
  shipped(RunDemo({}), "build: expected ");
  table = good;
  table["processor"] = "another";
  std::ofstream(Default()) << table;
  shipped(RunDemo({}), "processor: expected ");
  std::ofstream(Default()) << good.dump().substr(0, 300);
  shipped(RunDemo({}), Default());
}

TEST_F(TuneCommand, RefusesATableThatWasAskedForAndDoesNotFit) {
  const std::string path = dir_.File("mine.json");
  const Json tuned = Tune({"--output", path, "--name", "first"});
  EXPECT_EQ(tuned["form_table"].get<std::string>().rfind("first-", 0), 0U);
  EXPECT_FALSE(std::filesystem::exists(Default()));
  EXPECT_EQ(Parsed(RunDemo({"--tune-table", path}))["form_table"], tuned["form_table"]);
  ExpectOneLine(RunDemo({"--tune-table", path, "--kv-dtype", "f32"}), {"--tune-table: ", path, "kv_dtype: expected"});
  ExpectOneLine(RunDemo({"--tune-table", dir_.File("none")}), {"--tune-table: ", "none"});
  Json table = tuned["table"];
  table["processor"] = "another";
  ExpectOneLine(RunDemo({"--tune-table", dir_.Write("foreign.json", table.dump())}),
                {"foreign.json: processor: expected"});
  ExpectOneLine(RunDemo({"--tune-table", dir_.Write("cut.json", tuned["table"].dump().substr(0, 200))}), {"cut.json"});
  ExpectOneLine(Mla({"tune", "demo", "--seconds", "0.01", "--quiet", "--output", dir_.File("no/such/folder")}),
                {"no/such/folder", "can't be written"});
  EXPECT_EQ(Mla({"tune", "no-such-model"}).exit_code, 1);
}

TEST_F(TuneCommand, CrossoverOfBothForms) {
  const std::string svg = dir_.File("chart.svg");
  const ProcessResult result = Mla({"bench", "crossover", "--like", "demo", "--quick", "--max-rows", "64", "--max-keys",
                                    "256", "--seconds", "600", "--pairs", "1", "--svg", svg, "--json"});
  EXPECT_EQ(result.err, "");
  const Json j = Parsed(result);
  EXPECT_EQ(j["form_table"], "analytic-1");
  ASSERT_EQ(j["points"].size(), 14U);
  EXPECT_EQ(j["unmeasured"], 0);
  for (const Json& point : j["points"]) {
    EXPECT_EQ(point["faster"], point["mha_seconds"] < point["absorbed_seconds"] ? "mha" : "absorbed");
    EXPECT_EQ(point["pairs"], 1);
    EXPECT_TRUE(point["mha_seconds_by_table"].is_null());
    EXPECT_EQ(point["choices"]["mha"], "mha");
    EXPECT_EQ(point["choices"].size(), j["rules"].size());
  }
  for (const Json& rule : j["rules"]) EXPECT_LE(rule["mean_regret"], rule["largest_regret"]);
  ASSERT_EQ(j["crossings"].size(), 5U);
  std::ifstream chart(svg);
  const std::string text((std::istreambuf_iterator<char>(chart)), std::istreambuf_iterator<char>());
  EXPECT_EQ(text.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\"", 0), 0U);
  EXPECT_NE(text.find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace mla::testing
