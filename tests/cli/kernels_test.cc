// mla kernels, and what every command does where kernels fail their self-test: a program with broken vector tables
// (broken_kernels/tables.cc) beside the real one.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/cpu_info.h"
#include "cli/program.h"
#include "testing/temp_dir.h"

namespace mla::testing {
namespace {

using Json = nlohmann::json;

ProcessResult Broken(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), MLA_BROKEN_PROGRAM);
  return RunProcess(arguments);
}

TEST(Kernels, AllPassHere) {
  const ProcessResult result = Mla({"kernels", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(result.err, "");
  const Json j = Json::parse(result.out, nullptr, false);
  const CpuInfo cpu = DetectCpu();
  EXPECT_EQ(j["chosen"], IsaName(cpu.best()));
  EXPECT_TRUE(j["rejected"].empty());
  EXPECT_EQ(j["instruction_sets"].size(), 5U);
  // Two of the sets compute attention in products of bf16 too.
  const bool bf16 = cpu.Has(Isa::kAvx512Bf16);
  const int kernels = bf16 ? 17 : 11;
  EXPECT_EQ(j["kernels"].size(), static_cast<std::size_t>(5 * kernels));
  for (const Json& set : j["instruction_sets"]) {
    const bool can = set["name"] == "portable" || (set["name"] == "avx2" && cpu.Has(Isa::kAvx2)) ||
                     (set["name"] == "avx512" && cpu.Has(Isa::kAvx512)) ||
                     (set["name"] == "avx512bf16" && cpu.Has(Isa::kAvx512Bf16)) ||
                     (set["name"] == "amx" && cpu.Has(Isa::kAmx));
    EXPECT_EQ(set["can_run"], can) << set;
    EXPECT_EQ(set["why_not"].is_null(), can) << set;
    int seen = 0;
    for (const Json& kernel : j["kernels"]) {
      if (kernel["instruction_set"] != set["name"]) continue;
      ++seen;
      static const std::set<std::string> bf16_kernels = {"attend",       "pack_queries", "interleave",
                                                         "round_values", "round_row",    "all_finite"};
      const bool has = !bf16_kernels.contains(kernel["kernel"]) || set["name"] == "avx512bf16" || set["name"] == "amx";
      EXPECT_EQ(kernel["self_test"], can && has ? Json("passed") : Json(nullptr)) << kernel;
      EXPECT_TRUE(kernel["fault"].is_null());
    }
    EXPECT_EQ(seen, kernels);
  }
  EXPECT_FALSE(j.contains("model"));
  const ProcessResult text = Mla({"kernels"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_NE(text.out.find(std::string("chosen: ") + IsaName(cpu.best())), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("gemm_bf16       BF16"), std::string::npos) << text.out;
}

TEST(Kernels, OfAModel) {
  const ProcessResult result = Mla({"kernels", DemoDir(), "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json uses = Json::parse(result.out, nullptr, false)["model"]["uses"];
  ASSERT_EQ(uses.size(), 5U);
  EXPECT_EQ(uses[1]["kernel"], "gemm_f32");  // the demo has experts
  EXPECT_EQ(uses[3]["use"], "attention, absorbed form");
  EXPECT_EQ(uses[3]["kernel"], DetectCpu().Has(Isa::kAvx512Bf16) ? "attend" : "attend_tile");
  EXPECT_EQ(uses[3]["shape"], "8 heads, keys of 80, values of 64");
  for (const Json& use : uses) EXPECT_EQ(use["instruction_set"], IsaName(DetectCpu().best()));
  ExpectOneLine(Mla({"kernels", DemoDir() + "/absent"}), {"absent"});
  EXPECT_EQ(Mla({"kernels", DemoDir(), "more"}).exit_code, 2);
}

// Which of the broken sets this machine and build would take, fastest first.
std::vector<std::string> BrokenSets() {
  std::vector<std::string> sets;
  if (DetectCpu().Has(Isa::kAmx)) sets.emplace_back("amx");
  if (DetectCpu().Has(Isa::kAvx512Bf16)) sets.emplace_back("avx512bf16");
  if (DetectCpu().Has(Isa::kAvx512)) sets.emplace_back("avx512");
  if (DetectCpu().Has(Isa::kAvx2)) sets.emplace_back("avx2");
  return sets;
}

TEST(BrokenKernels, AreShownAndFail) {
  const std::vector<std::string> broken = BrokenSets();
  if (broken.empty()) GTEST_SKIP() << "portable kernels alone here";
  const ProcessResult result = Broken({"kernels", "--json"});
  EXPECT_EQ(result.exit_code, 1) << result.out;
  const Json j = Json::parse(result.out, nullptr, false);
  EXPECT_EQ(j["chosen"], "portable");
  ASSERT_EQ(j["rejected"].size(), broken.size());
  for (std::size_t i = 0; i < broken.size(); ++i) EXPECT_EQ(j["rejected"][i]["instruction_set"], broken[i]);
  for (const Json& kernel : j["kernels"]) {
    if (kernel["self_test"].is_null() || kernel["instruction_set"] == "portable") continue;
    const bool fails = kernel["kernel"] == (kernel["instruction_set"] == "avx2" ? "gemm_bf16" : "attend_tile");
    EXPECT_EQ(kernel["self_test"], fails ? "failed" : "passed") << kernel;
  }
  const ProcessResult text = Broken({"kernels"});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_NE(text.out.find("avx2 gemm_bf16 FAILED its self-test: rows "), std::string::npos) << text.out;
}

// The next set runs instead, with the bits that it would give if asked for; a warning a set, and their count.
TEST(BrokenKernels, AreReplacedByTheNext) {
  const std::vector<std::string> broken = BrokenSets();
  if (broken.empty()) GTEST_SKIP() << "portable kernels alone here";
  const std::vector<std::string> run = {"run", DemoDir(), "In the beginning", "--max-tokens", "4", "--json", "--quiet"};
  const ProcessResult result = Broken(run);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json j = Json::parse(result.out, nullptr, false);
  EXPECT_EQ(j["kernels"], "portable");
  EXPECT_EQ(j["kernels_rejected"], broken.size());
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), static_cast<std::ptrdiff_t>(broken.size()));
  for (const std::string& name : broken) {
    EXPECT_NE(result.err.find("mla: warning: " + name + " kernels failed their self-test"), std::string::npos)
        << result.err;
  }
  std::vector<std::string> asked = run;
  asked.insert(asked.end(), {"--kernels", "portable"});
  const Json sound = Json::parse(Mla(asked).out, nullptr, false);
  EXPECT_EQ(sound["kernels_rejected"], 0);
  EXPECT_EQ(j["ids"], sound["ids"]);
  EXPECT_EQ(j["logprobs"], sound["logprobs"]);
}

TEST(BrokenKernels, AskedForByNameAreAnError) {
  for (const std::string& name : BrokenSets()) {
    ExpectOneLine(Broken({"run", DemoDir(), "In the beginning", "--kernels", name}),
                  {"kernels", "'" + name + "'", "self-test", name == "avx2" ? "gemm_bf16" : "attend_tile"});
  }
}

}  // namespace
}  // namespace mla::testing
