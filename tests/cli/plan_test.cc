// mla plan: what it prints, in each of its forms, and what it refuses.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "testing/models.h"

namespace mla::testing {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Config(const std::string& name) {
  return std::string(MLA_SOURCE_DIR) + "/models/configs/" + name + ".json";
}
std::string Other(const std::string& name) {
  return std::string(MLA_SOURCE_DIR) + "/tests/plan/data/" + name + ".json";
}

std::string Ok(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "plan");
  const ProcessResult result = Mla(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return result.out;
}

Json JsonOf(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  return Json::parse(Ok(std::move(arguments)));
}

TEST(PlanCommand, TheDemoAsATable) {
  const std::string text = Ok({DemoDir(), "--threads", "2"});
  for (const char* words :
       {"4 layers of MLA: 8 heads, R 64, N 32, P 16, V 32", "5,055,512, and 1,220,040 in MTP layers",
        "cache bytes a token        640", "1,310,720 (1.25 MiB) in whole pages of 64", "what the engine allocates",
        "a = 64.00; T* = a S / (S + a)", "T = 1 new rows over S = 2048 keys"}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
  // Both forms, part by part: 8 heads * 2,048 pairs * 144 or 80 channels.
  EXPECT_THAT(text, HasSubstr("2,359,296"));
  EXPECT_THAT(text, HasSubstr("1,310,720"));
  EXPECT_THAT(text, Not(HasSubstr("tokens a second")));  // without rates there is no time
}

// The same bytes as `mla run` reports for the same options: those that it has allocated.
TEST(PlanCommand, BytesAreThoseOfARun) {
  for (const char* kv : {"bf16", "f32"}) {
    const Json plan = JsonOf({DemoDir(), "--threads", "2", "--kv-dtype", kv, "--context", "17"})["models"][0]["memory"];
    const ProcessResult run = Mla({"run", DemoDir(), "--ids", "1,2,3,4,5,6,7,8,9", "--max-tokens", "8", "--threads",
                                   "2", "--kv-dtype", kv, "--json"});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const Json memory = Json::parse(run.out)["memory"];
    EXPECT_EQ(plan["engine_allocates"], true);
    for (const char* item : {"weights", "cache", "workspace", "tables"}) EXPECT_EQ(plan[item], memory[item]) << item;
  }
}

// Room for whole segments and a line of a table for each, by the plan as by the run.
TEST(PlanCommand, WhatIsKeptExpandedIsCounted) {
  const auto workspace = [](std::vector<std::string> more) {
    std::vector<std::string> plan = {DemoDir(), "--threads", "2", "--context", "17"};
    plan.insert(plan.end(), more.begin(), more.end());
    std::vector<std::string> run = {"run", DemoDir(), "--ids", "1,2,3,4,5,6,7,8,9", "-n", "8", "--threads", "2"};
    run.push_back("--json");
    run.insert(run.end(), more.begin(), more.end());
    const ProcessResult result = Mla(run);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Json planned = JsonOf(plan)["models"][0]["memory"]["workspace"];
    EXPECT_EQ(planned, Json::parse(result.out)["memory"]["workspace"]);
    return planned.get<std::int64_t>();
  };
  const std::int64_t kept = workspace({"--keep-expanded", "16M"}) - workspace({});
  EXPECT_LE(kept, (16 << 20) + 16 * 128);
  EXPECT_GT(kept, 14 << 20);  // in bf16 a segment takes 1.1 MiB
  const ProcessResult few = Mla({"plan", DemoDir(), "--keep-expanded", "2M"});
  EXPECT_EQ(few.exit_code, 1);
  EXPECT_THAT(few.err, HasSubstr("keep expanded: expected 0 or at least 2162688 bytes"));
}

TEST(PlanCommand, JsonHasEveryNumber) {
  const Json j = JsonOf({Config("deepseek-v3"), "--context", "32768", "--users", "4", "--memory", "1T", "--flops", "2P",
                         "--rate", "absorbed=1P", "--read-rate", "8T", "--link", "400G", "--tp", "8", "--dcp", "4"});
  const Json& m = j["models"][0];
  EXPECT_EQ(m["model"]["parameters"]["total"], 671026419200);
  EXPECT_EQ(m["memory"]["bytes_per_token"], 70272);
  EXPECT_EQ(m["memory"]["elements_per_token"], 35136);
  EXPECT_EQ(m["memory"]["bytes_per_sequence"], std::int64_t{70272} * 32768 / 4);
  EXPECT_EQ(m["memory"]["cache"], 70272 * std::int64_t{32768});
  EXPECT_EQ(m["memory"]["engine_allocates"], false);
  std::int64_t weights = 0;
  for (const Json& part : m["memory"]["weight_parts"]) weights += part["bytes"].get<std::int64_t>();
  EXPECT_EQ(m["memory"]["weights"], weights);
  EXPECT_EQ(m["times"]["rates"]["products"], 1e15);
  EXPECT_EQ(m["times"]["rates"]["absorbed"], 5e14);
  EXPECT_EQ(m["ranks"]["collectives"].size(), 4U);
  EXPECT_EQ(m["work"]["forms"].size(), 2U);
  EXPECT_NEAR(m["crossing"]["a"].get<double>(), 170.67, 0.005);
  EXPECT_GT(m["contexts"].size(), 5U);
  EXPECT_LT(0, m["times"]["first_token_seconds"].get<double>());
}

TEST(PlanCommand, CsvHasFiveColumns) {
  const std::string csv =
      Ok({Config("minicpm3"), Other("gpt-oss-120b"), "--csv", "--flops", "1T", "--read-rate", "40G"});
  std::istringstream lines(csv);
  std::string line;
  int rows = 0;
  for (; std::getline(lines, line); ++rows) {
    ASSERT_EQ(std::count(line.begin(), line.end(), ','), 4) << line;
    ASSERT_EQ(line.back(), '\r');
  }
  EXPECT_GT(rows, 50);
  EXPECT_THAT(csv, HasSubstr("minicpm3.json,cache,bytes a token,35712,bytes\r\n"));
  EXPECT_THAT(csv, HasSubstr("gpt-oss-120b.json,cache,elements a token,36864,elements\r\n"));
}

TEST(PlanCommand, ModelsSideBySide) {
  const std::string text = Ok({Config("deepseek-v3"), Other("llama-3.1-70b"), "--as", "mha,gqa:8,mqa"});
  EXPECT_THAT(text, HasSubstr("deepseek-v3 as mha"));
  EXPECT_THAT(text, HasSubstr("llama-3.1-70b as gqa:8"));
  EXPECT_THAT(text, HasSubstr("40,960"));
  const Json j = JsonOf({Other("llama-3.1-70b"), "--as", "mha", "--context", "131072"});
  EXPECT_EQ(j["models"][1]["memory"]["bytes_per_sequence"], std::int64_t{320} << 30);
}

// Tags are balanced, nothing is asked of elsewhere, every chart has its title and its table.
void ExpectPage(const std::string& html, int charts) {
  EXPECT_EQ(html.rfind("<!DOCTYPE html>\n<html lang=\"en\">", 0), 0U);
  for (const char* word :
       {"<script", "http:", "https:", "src=", "url(", "@import", "<link", "<iframe", "javascript:"}) {
    EXPECT_THAT(html, Not(HasSubstr(word)));
  }
  for (const char* word : {"prefers-color-scheme:dark", "@media print", "name=\"viewport\"", "charset=\"utf-8\""}) {
    EXPECT_THAT(html, HasSubstr(word));
  }
  std::vector<std::string> open;
  int figures = 0;
  for (std::size_t at = html.find('<', 15); at != std::string::npos; at = html.find('<', at + 1)) {
    const std::size_t end = html.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const bool closes = html[at + 1] == '/';
    const std::size_t name = at + (closes ? 2 : 1);
    const std::string tag = html.substr(name, html.find_first_of(" >/", name) - name);
    if (closes) {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), tag) << html.substr(at, 80);
      open.pop_back();
    } else if (html[end - 1] != '/' && tag != "meta") {
      open.push_back(tag);
      figures += tag == "figure" ? 1 : 0;
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(figures, charts);
  const auto count = [&](const std::string& word) {
    int n = 0;
    for (std::size_t at = html.find(word); at != std::string::npos; at = html.find(word, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("role=\"img\""), charts);
  EXPECT_EQ(count("<title id="), charts);
  EXPECT_EQ(count("<desc id="), charts);
  EXPECT_EQ(count("The numbers of this chart"), charts);
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  EXPECT_THAT(html, Not(HasSubstr("inf\"")));
}

std::string PageOf(std::vector<std::string> arguments) {
  const TempDir dir;
  const std::string path = dir.path() + "/page.html";
  arguments.insert(arguments.end(), {"--html", path});
  Ok(std::move(arguments));
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

TEST(PlanCommand, APageOfCharts) {
  const std::vector<std::string> rates = {"--flops", "1.5T", "--read-rate", "40G", "--memory", "2T"};
  std::vector<std::string> arguments = {Config("deepseek-v3"), "--as", "mha"};
  arguments.insert(arguments.end(), rates.begin(), rates.end());
  ExpectPage(PageOf(arguments), 7);
  ExpectPage(PageOf({Config("deepseek-v3")}), 2);  // cache and crossing need no rates
  ExpectPage(PageOf({DemoDir(), "--context", "1"}), 2);
  arguments = {Other("qwen3-next-80b-a3b")};
  arguments.insert(arguments.end(), rates.begin(), rates.end());
  ExpectPage(PageOf(arguments), 6);
}

TEST(PlanCommand, NamesOfModelsCantBreakThePage) {
  const TempDir dir;
  const std::string folder = dir.path() + "/<b>&\"x\" as 'y'";
  std::filesystem::create_directory(folder);
  std::filesystem::copy_file(Config("minicpm3"), folder + "/config.json");
  const std::string html = PageOf({folder});
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
  ExpectPage(html, 2);
  EXPECT_EQ(JsonOf({folder})["models"][0]["name"], folder);
  EXPECT_THAT(Ok({folder, "--csv"}), HasSubstr("/<b>&\"\"x\"\" as 'y'\",cache,bytes a token,35712,bytes\r\n"));
}

TEST(PlanCommand, WhatDoesNotFitIsOneLine) {
  ExpectOneLine(Mla({"plan", "/nowhere/config.json"}), {"/nowhere/config.json"});
  ExpectOneLine(Mla({"plan", Config("moonlight"), "--context", "8193"}), {"--context", "8192", "8193"});
  ExpectOneLine(Mla({"plan", Config("moonlight"), "--tp", "3"}), {"--tp", "16 attention heads", "found 3"});
  ExpectOneLine(Mla({"plan", Config("moonlight"), "--flops", "1T"}), {"--flops and --read-rate"});
  ExpectOneLine(Mla({"plan", Config("moonlight"), "--as", "gqa:3"}), {"--as", "gqa:3"});
  ExpectOneLine(Mla({"plan", Config("moonlight"), "--rows", "9", "--keys", "8"}), {"--rows"});
  ExpectOneLine(Mla({"plan", Config("deepseek-v3"), "--users", "1048576"}), {"cache pages"});
  ExpectOneLine(Mla({"plan", Config("moonlight"), "--html", "/nowhere/page.html"}), {"/nowhere/page.html"});
  const std::string v32 = std::string(MLA_SOURCE_DIR) + "/tests/contract/data/published/deepseek-v3.2.json";
  ExpectOneLine(Mla({"plan", v32, "--memory", "1T"}), {"--memory", "--weight-bytes"});
  EXPECT_THAT(Ok({v32, "--memory", "1T", "--weight-bytes", "690G"}), HasSubstr("longest context"));
}

TEST(PlanCommand, WrongUsageIsTwo) {
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{{"--tp", "0"},
                                                                                     {"--tp", "-1"},
                                                                                     {"--users", "0"},
                                                                                     {"--users", "x"},
                                                                                     {"--flops", "-3"},
                                                                                     {"--flops", "1Q"},
                                                                                     {"--read-rate", "nan"},
                                                                                     {"--rate", "fast=3"},
                                                                                     {"--rate", "mha=-1"},
                                                                                     {"--memory", "lots"},
                                                                                     {"--kv-dtype", "q8"},
                                                                                     {"--context", "99999999999"},
                                                                                     {"--page-tokens", "0"},
                                                                                     {"--json", "--csv"}}) {
    std::vector<std::string> arguments = {"plan", Config("moonlight")};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    EXPECT_EQ(Mla(arguments).exit_code, 2) << flags[0] << " " << flags[1];
  }
  EXPECT_EQ(Mla({"plan"}).exit_code, 2);
}

}  // namespace
}  // namespace mla::testing
