// The table, the JSON and the CSV of one report: well-formed, and of the same numbers.
#include "cli/bench_report.h"

#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace mla::cli {
namespace {

using Json = nlohmann::json;
using Row = std::vector<std::string>;

// RFC 4180.
std::vector<Row> ParseCsv(const std::string& text) {
  std::vector<Row> rows(1, Row(1));
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      rows.back().back() += text[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && c == ',') {
      rows.back().emplace_back();
    } else if (!quoted && c == '\n') {
      rows.emplace_back(1);
    } else {
      rows.back().back() += c;
    }
  }
  EXPECT_FALSE(quoted);
  EXPECT_EQ(rows.back(), Row(1)) << "a newline at the end";
  rows.pop_back();
  return rows;
}

bench::CaseResult Product() {
  bench::CaseResult c;
  c.name = "deepseek-v3 q_a+kv_a";
  c.rows = 8;
  c.n = 2112;
  c.k = 7168;
  c.format = "bf16";
  c.working_set = 1 << 30;
  c.work.operations = 242221056;
  c.work.peak = bench::PeakKind::kBf16Amx;
  c.work.bytes = 30277632;
  c.measured.seconds = {1.25e-3, 1.125e-3, 1.5e-3, 240};
  c.measured.rates = {7.0e12, 0, 28.0e9};
  return c;
}

bench::CaseResult Experts() {
  bench::CaseResult c;
  c.name = "a \"model\", mine";
  c.rows = 512;
  c.experts = 61;
  c.format = "f32";
  c.work.operations = 4e9;
  c.work.f32_operations = 1e9;
  c.work.peak = bench::PeakKind::kF32Avx512;
  c.work.f32_peak = bench::PeakKind::kF32Avx512;
  c.work.bytes = 1e9;
  c.measured.seconds = {0.1, 0.09, 0.125, 3};
  c.measured.rates = {62.5e9, 62.5e9, 20e9};  // 80 ms of products, 50 ms of reading
  return c;
}

BenchReport Report() {
  BenchReport report;
  report.what = "moe";
  report.machine = {"A processor, with a comma", "amx", 2};
  report.limits.peaks = {{bench::PeakKind::kF32Avx2, {260e9, 250e9, 270e9, 5}},
                         {bench::PeakKind::kInt8Amx, {14e12, 13e12, 15e12, 5}}};
  report.limits.reads = {{1 << 30, {28e9, 27e9, 29e9, 3}}};
  report.cases = {Product(), Experts()};
  return report;
}

// Words of a line, brackets taken off.
std::vector<std::string> Words(std::string line) {
  for (char& c : line) c = c == '[' || c == ']' ? ' ' : c;
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

TEST(BenchReport, JsonHoldsEverything) {
  const std::string text = BenchJson(Report());
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const Json j = Json::parse(text, nullptr, false);
  EXPECT_EQ(j["bench"], "moe");
  EXPECT_EQ(j["processor"], "A processor, with a comma");
  EXPECT_EQ(j["threads"], 2);
  EXPECT_EQ(j["kernels"], "amx");
  ASSERT_EQ(j["peaks"].size(), 2U);
  EXPECT_EQ(j["peaks"][0]["instruction"], "ymm FMA");
  EXPECT_EQ(j["peaks"][0]["gops"], 260.0);
  EXPECT_EQ(j["reads"][0]["gbytes_per_second"], 28.0);
  ASSERT_EQ(j["cases"].size(), 2U);
  const Json& product = j["cases"][0];
  EXPECT_EQ(product["flops"], 242221056.0);
  EXPECT_EQ(product["seconds"], 1.25e-3);
  EXPECT_EQ(product["repeats"], 240);
  EXPECT_DOUBLE_EQ(product["gflops"], 193.7768448);            // 0.242221056 / 1.25e-3
  EXPECT_DOUBLE_EQ(product["gbytes_per_second"], 24.2221056);  // 0.030277632 / 1.25e-3
  EXPECT_EQ(product["peak_instruction"], "AMX tdpbf16ps");
  EXPECT_EQ(product["bound"], "memory");
  EXPECT_DOUBLE_EQ(product["share"], 24.2221056 / 28);
  EXPECT_TRUE(product["experts_read"].is_null());
  const Json& experts = j["cases"][1];
  EXPECT_TRUE(experts["n"].is_null());
  EXPECT_EQ(experts["experts_read"], 61);
  EXPECT_EQ(experts["flops"], 5e9);
  EXPECT_EQ(experts["bound"], "compute");
  EXPECT_DOUBLE_EQ(experts["share"], 0.8);
}

TEST(BenchReport, CsvIsTheJsonsCases) {
  const BenchReport report = Report();
  const Json j = Json::parse(BenchJson(report), nullptr, false);
  const std::vector<Row> rows = ParseCsv(BenchCsv(report));
  ASSERT_EQ(rows.size(), 3U);
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(rows[i + 1].size(), rows[0].size());
    const Json& c = j["cases"][i];
    EXPECT_EQ(rows[0].size(), c.size() + 3);  // the machine's three before them
    for (std::size_t f = 0; f < rows[0].size(); ++f) {
      const Json& value = f < 3 ? j[rows[0][f]] : c[rows[0][f]];
      const std::string& field = rows[i + 1][f];
      SCOPED_TRACE(rows[0][f]);
      if (value.is_number()) {
        EXPECT_EQ(std::stod(field), value.get<double>());
      } else {
        EXPECT_EQ(field, value.is_null() ? "" : value.get<std::string>());
      }
    }
  }
}

TEST(BenchReport, TableShowsTheJsonsNumbers) {
  const BenchReport report = Report();
  const Json cases = Json::parse(BenchJson(report), nullptr, false)["cases"];
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Json& c = cases[i];
    const std::string line = BenchTableLine(report.cases[i]);
    EXPECT_EQ(line.rfind(c["name"].get<std::string>(), 0), 0U) << line;
    const auto number = [&](const char* name, double scale) {
      return fmt::format("{:.1f}", c[name].get<double>() * scale);
    };
    const auto or_dash = [&](const char* name) { return c[name].is_null() ? "-" : c[name].dump(); };
    const std::vector<std::string> expected = {c["m"].dump(),
                                               or_dash("n"),
                                               or_dash("k"),
                                               or_dash("experts_read"),
                                               c["weights"].get<std::string>(),
                                               number("seconds", 1e6),
                                               number("seconds_p10", 1e6),
                                               "to",
                                               number("seconds_p90", 1e6),
                                               number("gflops", 1),
                                               number("gbytes_per_second", 1),
                                               number("peak_gflops", 1),
                                               number("read_gbytes_per_second", 1),
                                               c["bound"].get<std::string>(),
                                               fmt::format("{:.2f}", c["share"].get<double>())};
    EXPECT_EQ(Words(line.substr(c["name"].get<std::string>().size())), expected) << line;
    EXPECT_EQ(Words(BenchTableHead()).size(), expected.size() + 1);  // the name's; "[p10 to p90]" is three words
  }
}

TEST(BenchReport, LimitsAreTheSameInEachForm) {
  BenchReport report = Report();
  report.what = "peak";
  report.cases.clear();
  const Json j = Json::parse(BenchJson(report), nullptr, false);
  EXPECT_FALSE(j.contains("cases"));
  const std::vector<Row> rows = ParseCsv(BenchCsv(report));
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[1],
            (Row{"A processor, with a comma", "2", "amx", "fp32", "ymm FMA", "260.0", "250.0", "270.0", "GFLOP/s"}));
  EXPECT_EQ(rows[2][8], "GOP/s");
  EXPECT_EQ(rows[3],
            (Row{"A processor, with a comma", "2", "amx", "read", "1073741824 bytes", "28.0", "27.0", "29.0", "GB/s"}));
  const std::string text = BenchLimitsText(report.limits);
  EXPECT_NE(text.find("ymm FMA                     260.0 [250.0 to 270.0] GFLOP/s\n"), std::string::npos) << text;
  EXPECT_NE(text.find("1.00 GiB                     28.0 [27.0 to 29.0] GB/s\n"), std::string::npos) << text;
}

TEST(ModelReport, GivesRatesFromTimes) {
  ModelReport r;
  r.machine = {"A processor", "avx2", 2};
  r.model = "some,where";
  r.weights = "bf16";
  r.kv_dtype = "bf16";
  r.mode = "auto";
  r.weight_bytes = 1 << 20;
  r.options.context = 100;
  r.options.prompt = 512;
  r.result.step_seconds = {0.125, 0.1, 0.25, 64};
  r.result.prompt_seconds = {2, 1, 4, 5};
  r.result.prompt_form = Form::kMha;
  const Json j = Json::parse(ModelJson(r), nullptr, false);
  EXPECT_EQ(j["decode_tokens_per_second"]["median"], 8.0);
  EXPECT_EQ(j["decode_tokens_per_second"]["p10"], 4.0);  // the slow end
  EXPECT_EQ(j["decode_tokens_per_second"]["p90"], 10.0);
  EXPECT_EQ(j["decode_tokens_per_second"]["count"], 64);
  EXPECT_EQ(j["prompt_tokens_per_second"]["median"], 256.0);
  EXPECT_EQ(j["prompt_form"], "mha");
  EXPECT_EQ(j["decode_seconds"], 0.125);
  EXPECT_TRUE(j["decode_least_seconds"].is_null());
  EXPECT_EQ(j["kernels"], "avx2");
  const std::vector<Row> rows = ParseCsv(ModelCsv(r));
  ASSERT_EQ(rows.size(), 2U);
  ASSERT_EQ(rows[0].size(), rows[1].size());
  Json csv;
  for (std::size_t f = 0; f < rows[0].size(); ++f) csv[rows[0][f]] = rows[1][f];
  EXPECT_EQ(csv["model"], "some,where");
  EXPECT_EQ(csv["decode_tokens_per_second"], "8.0");
  EXPECT_EQ(csv["decode_p10"], "4.0");
  EXPECT_EQ(csv["prompt_p90"], "512.0");
  const std::string text = ModelText(r);
  EXPECT_NE(text.find("decode at context 100         8.00 tokens/s [4.00 to 10.00], 64 tokens\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("prompt of 512               256.00 tokens/s [128.00 to 512.00], 5 prompts, mha\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("threads: 2, kernels: avx2\n"), std::string::npos) << text;
  EXPECT_NE(text.find("weights bf16 (1.00 MiB)"), std::string::npos) << text;
  EXPECT_EQ(text.find("least"), std::string::npos) << text;
}

TEST(ModelReport, SetsTimesBesideTheLeast) {
  ModelReport r;
  r.options.context = 100;
  r.options.sequences = 4;
  r.options.prompt = 512;
  r.options.prompt_after = 8192;
  r.result.step_seconds = {0.125, 0.1, 0.25, 64};
  r.result.prompt_seconds = {2, 1, 4, 5};
  r.result.step_least = {{0.1, 1, 0}, {7e12, 7e12, 4e11, 28e9}};
  r.result.prompt_least = {{0.5, 3, 2}, {6e12, 4e11, 4e11, 29e9}};
  const Json j = Json::parse(ModelJson(r), nullptr, false);
  EXPECT_EQ(j["decode_tokens_per_second"]["median"], 32.0);  // four tokens in an eighth of a second
  EXPECT_EQ(j["decode_ratio_to_least"], 1.25);
  EXPECT_EQ(j["decode_read_gbytes_per_second"], 28.0);
  EXPECT_EQ(j["prompt_least_seconds"], 0.5);
  EXPECT_EQ(j["prompt_ratio_to_least"], 4.0);
  EXPECT_EQ(j["prompt_least_absorbed_steps"], 3);
  EXPECT_EQ(j["prompt_least_mha_steps"], 2);
  EXPECT_EQ(j["prompt_peak_gflops"], 6000.0);
  EXPECT_EQ(j["prompt_attention_peak_gflops"], 400.0);
  const std::vector<Row> rows = ParseCsv(ModelCsv(r));
  ASSERT_EQ(rows.size(), 2U);
  ASSERT_EQ(rows[0].size(), rows[1].size());
  Json csv;
  for (std::size_t f = 0; f < rows[0].size(); ++f) csv[rows[0][f]] = rows[1][f];
  EXPECT_EQ(csv["decode_ratio_to_least"], "1.25");
  EXPECT_EQ(csv["prompt_seconds"], "2.0");
  const std::string text = ModelText(r);
  for (const char* part : {", 64 tokens of each of 4 sequences\n"
                           "  125 ms, 1.250 times the least: 100 ms (absorbed) at 7000.0 GFLOP/s and 28.0 GB/s\n",
                           ", after 8192 cached\n"
                           "  2 s, 4.000 times the least: 500 ms (both forms) at 6000.0 GFLOP/s (attention 400.0) and "
                           "29.0 GB/s\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace mla::cli
