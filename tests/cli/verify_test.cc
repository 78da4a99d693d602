// mla verify: exit codes, what --json holds, refusals, Ctrl-C.
#include <set>
#include <string>

#include <nlohmann/json.hpp>
#include <signal.h>

#include "cli/program.h"
#include "conformance/data.h"
#include "testing/models.h"
#include "testing/temp_dir.h"

namespace mla::testing {
namespace {

using Json = nlohmann::json;

std::vector<std::string> Verify(std::vector<std::string> more) {
  more.insert(more.begin(), {"verify", ConformanceData("moonlight"), "--quiet", "--budget", "5"});
  return more;
}

TEST(Verify, WithoutATextIsPartial) {
  const ProcessResult strict = Mla(Verify({}));
  EXPECT_EQ(strict.exit_code, 1) << strict.err;
  EXPECT_EQ(strict.err, "");
  EXPECT_NE(strict.out.find("\nPARTIAL in "), std::string::npos) << strict.out;
  EXPECT_NE(strict.out.find("7 reading: NOT RUN"), std::string::npos) << strict.out;
  const ProcessResult lenient = Mla(Verify({"--allow-partial"}));
  EXPECT_EQ(lenient.exit_code, 0) << lenient.out;
}

TEST(Verify, JsonHoldsEveryLevelAndCheck) {
  const ProcessResult result = Mla(Verify({"--json", "--allow-partial", "--weights", "f32", "--kv-dtype", "f32"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json j = Json::parse(result.out, nullptr, false);
  ASSERT_FALSE(j.is_discarded());
  EXPECT_EQ(j["summary"], "PARTIAL");
  EXPECT_EQ(j["levels"].size(), 7U);
  EXPECT_EQ(j["weights"], "f32");
  std::set<int> levels;
  for (const Json& check : j["checks"]) {
    levels.insert(check["level"].get<int>());
    if (check["verdict"] != "pass") continue;
    EXPECT_LE(check["error"].get<double>(), check["bound"].get<double>()) << check;
    EXPECT_GT(check["values"].get<int>(), 0) << check;
  }
  EXPECT_EQ(levels, (std::set<int>{1, 2, 3, 4, 5, 6, 7}));
}

TEST(Verify, RefusesWhatItCannotHold) {
  ExpectOneLine(Mla(Verify({"--memory", "1M"})), {"memory: ", "are needed", "may be used"});
}

TEST(Verify, NamesWhatIsWrong) {
  ExpectOneLine(Mla({"verify", "no/such/model"}), {"no/such/model"});
  // The fixture has no tokenizer.
  ExpectOneLine(Mla(Verify({"--text", "no/such/text"})), {"tokenizer"});
  ExpectOneLine(Mla({"verify", DemoDir(), "--text", "no/such/text"}), {"no/such/text"});
  EXPECT_EQ(Mla(Verify({"--budget", "0"})).exit_code, 2);
  EXPECT_EQ(Mla(Verify({"--mode", "mha"})).exit_code, 2);
}

}  // namespace
}  // namespace mla::testing
