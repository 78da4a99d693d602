// Ids that another implementation gave (tools/tokenizer_vectors.py wrote the files), against ours.
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "io/json.h"
#include "mla/tokenizer.h"
#include "testing/temp_dir.h"

namespace mla {
namespace {

std::vector<std::int32_t> IdsOf(const io::JsonValue& array) {
  std::vector<std::int32_t> ids;
  for (const io::JsonValue& item : array.items()) ids.push_back(static_cast<std::int32_t>(item.integer()));
  return ids;
}

void Compare(const std::string& dir, const std::string& file) {
  const auto tokenizer = Tokenizer::Load(dir);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto rows = io::ReadJsonFile(std::string(MLA_SOURCE_DIR) + "/tests/text/" + file);
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  ASSERT_GE(rows->items().size(), 300U);
  int differ = 0;
  for (const io::JsonValue& row : rows->items()) {
    const std::string text(row.Find("text")->string());
    const io::JsonValue* parsed = row.Find("parsed");
    const io::JsonValue* plain = row.Find("plain");  // left out where it is the same
    differ += plain != nullptr ? 1 : 0;
    const auto as_parsed = tokenizer->Encode(text, Tokenizer::AddedTokens::kParse);
    const auto as_text = tokenizer->Encode(text, Tokenizer::AddedTokens::kAsText);
    ASSERT_TRUE(as_parsed.ok() && as_text.ok());
    EXPECT_EQ(*as_parsed, IdsOf(*parsed)) << text;
    EXPECT_EQ(*as_text, IdsOf(plain != nullptr ? *plain : *parsed)) << text;
    const auto text_of = [&](std::string_view key) {
      return row.Find(key) != nullptr ? std::string(row.Find(key)->string()) : text;
    };
    EXPECT_EQ(tokenizer->Decode(*as_parsed, true), text_of("parsed_text"));
    EXPECT_EQ(tokenizer->Decode(*as_text, true), text_of("plain_text"));
  }
  EXPECT_GE(differ, 10);
}

TEST(Vectors, Demo) { Compare(testing::DemoDir(), "vectors_demo.json"); }

TEST(Vectors, DeepSeekV3) {
  if (testing::SharedDir().empty()) GTEST_SKIP() << "no shared folder";
  Compare(testing::SharedDir() + "/data/deepseek_v3_tokenizer", "vectors_deepseek_v3.json");
}

// Small vocabularies that tools/tokenizer_fixtures.py trained.
TEST(Vectors, TiktokenWithKimisPattern) {
  Compare(std::string(MLA_SOURCE_DIR) + "/tests/text/tiktoken", "vectors_tiktoken.json");
}

TEST(Vectors, ByteFallback) {
  Compare(std::string(MLA_SOURCE_DIR) + "/tests/text/byte_fallback", "vectors_byte_fallback.json");
}

}  // namespace
}  // namespace mla
