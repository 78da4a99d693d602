#include "io/json.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "io/quote.h"
#include "testing/temp_dir.h"

namespace mla::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

JsonValue Good(std::string_view text) {
  Result<JsonValue> value = ParseJson(text, "t");
  EXPECT_TRUE(value.ok()) << value.error().message;
  return value.ok() ? std::move(value).value() : JsonValue();
}

std::string JsonFault(std::string_view text) {
  const Result<JsonValue> value = ParseJson(text, "t");
  if (value.ok()) return "";
  EXPECT_THAT(value.error().message, AllOf(StartsWith("t: byte "), HasSubstr("expected JSON, found ")));
  EXPECT_EQ(value.error().message.find('\n'), std::string::npos) << value.error().message;
  return value.error().message;
}

TEST(Json, EveryKind) {
  const JsonValue v = Good(R"( {"n": null, "t": true, "f": false, "i": -12, "d": 1.5, "s": "aé\n\u00e9\ud83d\ude00",
    "a": [1, [], {}], "": {"x": {"y": 0}}} )");
  ASSERT_TRUE(v.is_object());
  ASSERT_EQ(v.members().size(), 8U);
  EXPECT_EQ(v.members()[0].first, "n");  // the file's order
  EXPECT_EQ(v.members()[7].first, "");
  EXPECT_TRUE(v.Find("n")->is_null());
  EXPECT_TRUE(v.Find("t")->is_bool() && v.Find("t")->boolean());
  EXPECT_TRUE(v.Find("f")->is_bool() && !v.Find("f")->boolean());
  EXPECT_TRUE(v.Find("i")->is_int() && v.Find("i")->is_number());
  EXPECT_EQ(v.Find("i")->integer(), -12);
  EXPECT_EQ(v.Find("i")->number(), -12.0);
  EXPECT_TRUE(v.Find("d")->is_number() && !v.Find("d")->is_int());
  EXPECT_EQ(v.Find("d")->number(), 1.5);
  EXPECT_EQ(v.Find("s")->string(), "a\u00e9\n\u00e9\U0001F600");
  ASSERT_EQ(v.Find("a")->items().size(), 3U);
  EXPECT_TRUE(v.Find("a")->items()[1].is_array());
  EXPECT_TRUE(v.Find("a")->items()[2].is_object());
  EXPECT_EQ(v.Find("")->Find("x")->Find("y")->integer(), 0);
  EXPECT_EQ(v.Find("absent"), nullptr);
  EXPECT_EQ(v.Find("i")->Find("x"), nullptr);
}

TEST(Json, Numbers) {
  EXPECT_EQ(Good("9223372036854775807").integer(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(Good("-9223372036854775808").integer(), std::numeric_limits<std::int64_t>::min());
  for (const char* text :
       {"9223372036854775808", "18446744073709551615", "18446744073709551616", "-9223372036854775809",
        "100000000000000000000000000000", "1.0", "1e3", "-0.0", "5e-324", "1e-999"}) {
    const JsonValue v = Good(text);
    EXPECT_EQ(v.kind(), JsonValue::Kind::kDouble) << text;
    EXPECT_EQ(v.number(), std::strtod(text, nullptr)) << text;
  }
  EXPECT_THAT(JsonFault("1e999"), HasSubstr("the number 1e999 is too large"));
  EXPECT_THAT(JsonFault("[-1e999]"), HasSubstr("too large"));
  EXPECT_THAT(JsonFault(std::string(400, '9')), HasSubstr("too large"));
  for (const char* text : {"NaN", "Infinity", "-Infinity", "01", "+1", ".5", "1.", "0x10", "1e", "--1"}) {
    EXPECT_NE(JsonFault(text), "") << text;
  }
}

TEST(Json, SyntaxFaultsSayWhere) {
  EXPECT_THAT(JsonFault(""), HasSubstr("byte 0: expected JSON, found the document is cut short"));
  EXPECT_THAT(JsonFault("[1, 2"), HasSubstr("byte 5: expected JSON, found the document is cut short"));
  EXPECT_THAT(JsonFault("{\"a\": 1"), HasSubstr("cut short"));
  EXPECT_THAT(JsonFault("\"abc"), HasSubstr("cut short"));
  EXPECT_THAT(JsonFault("[1, }"), HasSubstr("byte 4: expected JSON, found a syntax error"));
  EXPECT_THAT(JsonFault("{1: 2}"), HasSubstr("byte 1: expected JSON, found a syntax error"));
  EXPECT_THAT(JsonFault("[1,]"), HasSubstr("byte 3"));
  EXPECT_THAT(JsonFault("{} {}"), HasSubstr("byte 3: expected JSON, found text after the document"));
  EXPECT_THAT(JsonFault("1 x"), HasSubstr("text after the document"));
  for (const char* text : {"'a'", "{a: 1}", "[1 2]", "// x\n1", "tru", "\"\\x\"", "\"\\ud800\"", "\"\\udc00\"",
                           "\"a\nb\"", "\"\\u12\"", "]", "{\"a\"}", "{\"a\":}", "{,}"}) {
    EXPECT_NE(JsonFault(text), "") << text;
  }
  EXPECT_THAT(JsonFault(std::string_view("1\0x", 3)), HasSubstr("byte 1: expected JSON, found a NUL"));
  EXPECT_THAT(JsonFault(std::string_view("\"a\0\"", 4)), HasSubstr("byte 2: expected JSON, found a NUL"));
}

TEST(Json, DuplicateKeys) {
  EXPECT_THAT(JsonFault(R"({"a": 1, "b": 2, "a": 3})"),
              HasSubstr(R"(byte 20: expected JSON, found the key "a" appears twice in one object)"));
  EXPECT_THAT(JsonFault(R"({"x": [{"k": 1, "\u006b": 2}]})"), HasSubstr(R"(the key "k" appears twice)"));
  Good(R"({"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 1}]})");
}

TEST(Json, Nesting) {
  const auto nested = [](std::size_t depth, const std::string& open, const std::string& close) {
    std::string text;
    for (std::size_t i = 0; i < depth; ++i) text += open;
    text += "1";
    for (std::size_t i = 0; i < depth; ++i) text += close;
    return text;
  };
  Good(nested(64, "[", "]"));
  Good(nested(64, "{\"a\":", "}"));
  EXPECT_THAT(JsonFault(nested(65, "[", "]")), HasSubstr("byte 64: expected JSON, found nesting deeper than 64"));
  EXPECT_THAT(JsonFault(nested(65, "{\"a\":", "}")), HasSubstr("nesting deeper than 64"));
  const std::size_t many = 10'000'000;
  EXPECT_THAT(JsonFault(std::string(many, '[')),  // NOLINT(bugprone-string-constructor): as long as it is
              HasSubstr("nesting deeper than 64"));
}

TEST(Json, InvalidUtf8) {
  const std::vector<std::pair<std::string, int>> table = {
      {"\"ab\xff\"", 3},            // no lead byte
      {"\"\xc3\"", 1},              // cut short
      {"\"\xc0\xaf\"", 1},          // overlong
      {"\"\xe0\x80\xaf\"", 1},      // overlong
      {"\"\xed\xa0\x80\"", 1},      // a surrogate
      {"\"\xf4\x90\x80\x80\"", 1},  // past U+10FFFF
      {"\"\xf0\x80\x80\xaf\"", 1},
      {"\x80", 0},
  };
  for (const auto& [text, offset] : table) {
    EXPECT_THAT(JsonFault(text), HasSubstr("byte " + std::to_string(offset) + ": expected JSON, found invalid UTF-8"));
  }
  Good("\"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\xc2\x80\xe0\xa0\x80\xf0\x90\x80\x80\"");
}

// More than the vocabulary of a tokenizer: a quadratic search for duplicates would take 4 * 10^10 comparisons, minutes.
TEST(Json, ManyMembersAreQuick) {
  std::string text = "{";
  for (int i = 0; i < 300'000; ++i) text += "\"key" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(Good(text + "\"last\":0}").members().size(), 300'001U);
  EXPECT_THAT(JsonFault(text + "\"key5\":0}"), HasSubstr("the key \"key5\" appears twice"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(Json, TheNumberOfValuesIsBounded) {
  std::string text = "[";  // the array is a value too
  for (int i = 0; i < (1 << 22) - 2; ++i) text += "1,";
  EXPECT_EQ(Good(text + "1]").items().size(), (std::size_t{1} << 22) - 1);
  EXPECT_THAT(JsonFault(text + "1,1]"), HasSubstr("more than 4194304 values"));
}

TEST(Json, Describe) {
  EXPECT_EQ(Good("null").Describe(), "null");
  EXPECT_EQ(Good("true").Describe(), "true");
  EXPECT_EQ(Good("false").Describe(), "false");
  EXPECT_EQ(Good("12").Describe(), "12");
  EXPECT_EQ(Good("2.5").Describe(), "2.5");
  EXPECT_EQ(Good("\"a\\n\\\"b\"").Describe(), R"("a\x0a\"b")");
  EXPECT_EQ(Good("\"" + std::string(41, 'x') + "\"").Describe(), "\"" + std::string(40, 'x') + "...\"");
  EXPECT_EQ(Good("[1,2,3]").Describe(), "an array of 3");
  EXPECT_EQ(Good("{}").Describe(), "an object");
  std::string accents;
  for (int i = 0; i < 40; ++i) accents += "\u00e9";
  EXPECT_EQ(Good("\"" + accents + "\"").Describe(), "\"" + accents + "\"");
}

TEST(Json, Quoting) {
  EXPECT_EQ(Printable("a\tb\x7f\xff\u0085\u2028"), R"(a\x09b\x7f\xff\xc2\x85\xe2\x80\xa8)");
  std::string text;
  for (int c = 0; c < 128; ++c) text += static_cast<char>(c);
  text += "\u00e9";
  EXPECT_EQ(Good(JsonString(text)).string(), text);
}

// Each cut of a document that has everything is an error, and no crash.
TEST(Json, EveryTruncation) {
  const std::string text = R"({"a": [1, -2.5e3, true, null, "x\u00e9\"y"], "b": {"c": {}}, "d": "é"})";
  Good(text);
  for (std::size_t i = 0; i < text.size(); ++i) EXPECT_NE(JsonFault(text.substr(0, i)), "") << i;
}

TEST(ReadJsonFile, OnlyRegularFilesOfBoundedSize) {
  const testing::TempDir dir;
  EXPECT_EQ(ReadJsonFile(dir.Write("a.json", "[1]")).value().items().size(), 1U);
  EXPECT_TRUE(ReadJsonFile(dir.File("a.json"), 3).ok());
  EXPECT_THAT(ReadJsonFile(dir.File("a.json"), 2).error().message, HasSubstr("expected at most 2 bytes, found 3"));
  EXPECT_THAT(ReadJsonFile(dir.File("none")).error().message,
              HasSubstr(dir.File("none") + ": can't be opened: No such"));
  EXPECT_THAT(ReadJsonFile(dir.path()).error().message, HasSubstr("expected a regular file, found a directory"));
  EXPECT_THAT(ReadJsonFile("/dev/zero").error().message, HasSubstr("expected a regular file, found a device"));
  ASSERT_EQ(::mkfifo(dir.File("pipe").c_str(), 0600), 0);
  EXPECT_THAT(ReadJsonFile(dir.File("pipe")).error().message, HasSubstr("expected a regular file, found a pipe"));
  EXPECT_THAT(ReadJsonFile(dir.Write("bad.json", "[")).error().message, HasSubstr(dir.File("bad.json") + ": byte 1: "));
  // A file that says it is empty and is not.
  EXPECT_THAT(ReadJsonFile("/proc/self/maps", 16).error().message, HasSubstr("expected at most 16 bytes, found more"));
}

}  // namespace
}  // namespace mla::io
