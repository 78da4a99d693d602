#include "contract/generation.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/temp_dir.h"

namespace mla::contract {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Result<GenerationConfig> Load(const std::string& text) {
  const testing::TempDir dir;
  dir.Write("generation_config.json", text);
  return LoadGenerationConfig(dir.path(), 100);
}

TEST(Generation, AFolderWithoutOneGivesDefaults) {
  const testing::TempDir dir;
  const Result<GenerationConfig> config = LoadGenerationConfig(dir.path(), 100);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_TRUE(config->eos_token_ids.empty());
  EXPECT_FALSE(config->do_sample);
  EXPECT_FALSE(config->temperature.has_value());
}

TEST(Generation, ALinkThatLeadsNowhereIsAFault) {
  const testing::TempDir dir;
  std::filesystem::create_symlink("absent", dir.File("generation_config.json"));
  const Result<GenerationConfig> config = LoadGenerationConfig(dir.path(), 100);
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.error().message, HasSubstr("generation_config.json: can't be opened"));
}

TEST(Generation, EveryField) {
  const Result<GenerationConfig> config = Load(
      R"({"_from_model_config": true, "bos_token_id": 0, "eos_token_id": [1, 99], "do_sample": true, "temperature": 0.6,
          "top_k": 40, "top_p": 0.95, "min_p": 0, "repetition_penalty": 1.1, "transformers_version": "4.39.3"})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->bos_token_id, 0);
  EXPECT_EQ(config->eos_token_ids, (std::vector<std::int64_t>{1, 99}));
  EXPECT_TRUE(config->do_sample);
  EXPECT_EQ(config->temperature, 0.6);
  EXPECT_EQ(config->top_k, 40);
  EXPECT_EQ(config->top_p, 0.95);
  EXPECT_EQ(config->min_p, 0);
  EXPECT_EQ(config->repetition_penalty, 1.1);
}

TEST(Generation, NullsAreAbsent) {
  const Result<GenerationConfig> config = Load(R"({"temperature": null, "eos_token_id": null, "top_k": null})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_FALSE(config->temperature.has_value());
  EXPECT_FALSE(config->top_k.has_value());
}

TEST(Generation, Faults) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {R"({"eos_token_id": 100})", "eos_token_id: expected token ids from 0 to 99, found 100"},
      {R"({"eos_token_id": [1, -1]})", "eos_token_id: expected token ids from 0 to 99, found -1"},
      {R"({"eos_token_id": "1"})", "eos_token_id: "},
      {R"({"bos_token_id": 100})", "bos_token_id: "},
      {R"({"do_sample": "true"})", "do_sample: expected true or false"},
      {R"({"temperature": 0})", "temperature: expected a number above 0"},
      {R"({"temperature": -1})", "temperature: "},
      {R"({"temperature": "hot"})", "temperature: "},
      {R"({"top_k": -1})", "top_k: expected a whole number from 0"},
      {R"({"top_k": 1.5})", "top_k: "},
      {R"({"top_p": 0})", "top_p: expected a number above 0, at most 1"},
      {R"({"top_p": 1.01})", "top_p: "},
      {R"({"min_p": -0.1})", "min_p: expected a number from 0 to 1"},
      {R"({"min_p": 1.1})", "min_p: "},
      {R"({"repetition_penalty": 0})", "repetition_penalty: "},
      {R"({"top_p": NaN})", "expected JSON"},
      {"[]", "expected an object, found an array of 0"},
      {"", "cut short"},
  };
  for (const auto& [text, words] : table) {
    const Result<GenerationConfig> config = Load(text);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_THAT(config.error().message, AllOf(HasSubstr("generation_config.json: "), HasSubstr(words)));
    EXPECT_EQ(config.error().message.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace mla::contract
