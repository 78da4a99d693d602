#include "mla/tokenizer.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "io/json.h"
#include "testing/temp_dir.h"
#include "text/small_tokenizer.h"
#include "text/utf8.h"

namespace mla {
namespace {

using Ids = std::vector<std::int32_t>;
using testing::Added;
using testing::SmallTokenizer;
using testing::Split;

Ids Encode(const Result<Tokenizer>& tokenizer, std::string_view text, Tokenizer::AddedTokens added = kText) {
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  if (!tokenizer.ok()) return {};
  auto ids = tokenizer->Encode(text, added);
  EXPECT_TRUE(ids.ok()) << ids.error().message;
  return ids.ok() ? *ids : Ids();
}

// The bytes of each id, with '|' after each.
std::string Parts(const SmallTokenizer& small, std::string_view text) {
  const auto tokenizer = small.Load();
  std::string parts;
  for (const std::int32_t id : Encode(tokenizer, text)) parts += std::string(tokenizer->TokenBytes(id)) + "|";
  return parts;
}

// Every substring of the alphabet up to three letters is a word, so that the borders of pieces show.
SmallTokenizer Showing(std::string_view pre_tokenizer) {
  SmallTokenizer small;
  small.pre_tokenizer = std::string(pre_tokenizer);
  small.merges = "[";
  std::vector<std::string> last = {"a", "b", " "};
  for (int length = 2; length <= 3; ++length) {
    std::vector<std::string> words;
    for (const std::string& word : last) {
      for (const std::string letter : {"a", "b", " "}) {
        small.merges += std::string(small.merges == "[" ? "" : ", ") + "[" +
                        io::JsonString(testing::ByteLetters(word)) + ", " +
                        io::JsonString(testing::ByteLetters(letter)) + "]";
        words.push_back(word + letter);
      }
    }
    small.words.insert(small.words.end(), words.begin(), words.end());
    last = words;
  }
  small.merges += "]";
  return small;
}

TEST(Tokenizer, EveryByteAndTheAlphabet) {
  const auto tokenizer = SmallTokenizer{}.Load();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(tokenizer->TokenBytes(byte), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(Encode(tokenizer, "a \u00e9"), (Ids{'a', ' ', 0xC3, 0xA9}));
  EXPECT_EQ(Encode(tokenizer, ""), Ids());
  EXPECT_EQ(Encode(tokenizer, std::string_view()), Ids());
  EXPECT_EQ(Encode(tokenizer, std::string_view("\0a", 2)), (Ids{0, 'a'}));
}

TEST(Tokenizer, BehaviorsOfSplit) {
  EXPECT_EQ(Parts(Showing(Split("b", "Isolated")), "aabba"), "aa|b|b|a|");
  EXPECT_EQ(Parts(Showing(Split("b", "Removed")), "aabba"), "aa|a|");
  EXPECT_EQ(Parts(Showing(Split("b", "Removed", true)), "aabba"), "b|b|");
  EXPECT_EQ(Parts(Showing(Split("b", "MergedWithPrevious")), "aabba"), "aab|b|a|");
  EXPECT_EQ(Parts(Showing(Split("b", "MergedWithNext")), "aabba"), "aa|b|ba|");
  EXPECT_EQ(Parts(Showing(Split("b", "Contiguous")), "aabba"), "aa|bb|a|");
  EXPECT_EQ(Parts(Showing(Split("a", "MergedWithPrevious", true)), "aabba"), "a|abb|a|");
  EXPECT_EQ(Parts(Showing(Split("a", "MergedWithNext")), "baab"), "b|a|ab|");
  EXPECT_EQ(Parts(Showing(Split("(?=b)")), "ab"), "a|b|");  // an empty match parts its neighbours
  EXPECT_EQ(Parts(Showing(Split("b*")), "aab"), "a|a|b|");
}

TEST(Tokenizer, ByteLevelsOwnPatternAndPrefix) {
  const auto byte_level = [](bool prefix, bool regex) {
    return std::string("{\"type\": \"ByteLevel\", \"trim_offsets\": true, \"add_prefix_space\": ") +
           (prefix ? "true" : "false") + ", \"use_regex\": " + (regex ? "true" : "false") + "}";
  };
  EXPECT_EQ(Parts(Showing(byte_level(false, false)), "ab ab"), "ab |ab|");
  EXPECT_EQ(Parts(Showing(byte_level(false, true)), "ab ab"), "ab| |ab|");
  EXPECT_EQ(Parts(Showing(byte_level(true, true)), "ab ab"), " |ab| |ab|");
  EXPECT_EQ(Parts(Showing(byte_level(true, false)), "ab"), " |ab|");
  EXPECT_EQ(Parts(Showing(byte_level(true, false)), " ab"), " |ab|");
  // The default is true.
  EXPECT_EQ(Parts(Showing(R"({"type": "ByteLevel", "add_prefix_space": false})"), "ab ab"), "ab| |ab|");
  // A prefix for each piece that comes to it.
  const std::string sequence =
      "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"String\": \"b\"}, "
      "\"behavior\": \"Isolated\", \"invert\": false}, " +
      byte_level(true, false) + "]}";
  EXPECT_EQ(Parts(Showing(sequence), "ab a"), " a| b| a|");
}

TEST(Tokenizer, AddedTokensAreParsedOnlyWhereAsked) {
  SmallTokenizer small;
  small.added =
      "[" + Added("<x>", 256, true) + ", " + Added("<x><y>", 257, false) + ", " + Added("b<", 300, false, true) + "]";
  const auto tokenizer = small.Load();
  EXPECT_EQ(Encode(tokenizer, "a<x>", kText), (Ids{'a', '<', 'x', '>'}));
  EXPECT_EQ(Encode(tokenizer, "a<x>", kParse), (Ids{'a', 256}));
  EXPECT_EQ(Encode(tokenizer, "<x><y><x>", kParse), (Ids{257, 256}));
  // The second pass sees what the first has left: "b<" is leftmost, and still loses its '<'.
  EXPECT_EQ(Encode(tokenizer, "b<x>b<", kParse), (Ids{'b', 256, 300}));
  EXPECT_EQ(tokenizer->vocab_size(), 301);
  EXPECT_EQ(tokenizer->TokenBytes(299), "");
  EXPECT_TRUE(tokenizer->IsSpecial(256));
  EXPECT_FALSE(tokenizer->IsSpecial(257) || tokenizer->IsSpecial(299) || tokenizer->IsSpecial(-1) ||
               tokenizer->IsSpecial(301));
  const Ids ids = {'a', 256, 257, -1, 301, 1 << 30, 299, 'b'};
  EXPECT_EQ(tokenizer->Decode(ids), "a<x><y>b");
  EXPECT_EQ(tokenizer->Decode(ids, true), "a<x><x><y>b");
}

// What the template wrote and what the user wrote are one text: cut into words together, and an added token is one only
// where all of it is trusted.
TEST(Tokenizer, AddedTokensAreParsedWhereTheTextIsTrusted) {
  SmallTokenizer small;
  small.words = {"ab"};
  small.merges = R"(["a b"])";
  small.added = "[" + Added("<u>", 257, true) + ", " + Added("<u>a", 258, true) + "]";
  auto tokenizer = small.Load();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto encode = [&](std::string_view text, const std::vector<TextRange>& trusted) {
    const auto ids = tokenizer->Encode(text, trusted);
    EXPECT_TRUE(ids.ok());
    return ids.ok() ? *ids : Ids();
  };
  EXPECT_EQ(encode("<u><u>", {{0, 3}}), (Ids{257, '<', 'u', '>'}));
  EXPECT_EQ(encode("<u><u>", {{3, 6}}), (Ids{'<', 'u', '>', 257}));
  // Half of it trusted is not enough, in one range or in two that touch.
  EXPECT_EQ(encode("<u>", {{0, 2}}), (Ids{'<', 'u', '>'}));
  EXPECT_EQ(encode("<u>", {{0, 1}, {1, 3}}), (Ids{'<', 'u', '>'}));
  // The longer token would reach into the user's text: the shorter one stands.
  EXPECT_EQ(encode("<u>a", {{0, 3}}), (Ids{257, 'a'}));
  EXPECT_EQ(encode("<u>a", {{0, 4}}), (Ids{258}));
  // A border of trust cuts no word.
  EXPECT_EQ(encode("abab", {{0, 1}, {3, 4}}), (Ids{256, 256}));
  for (const std::string_view text : {"", "ab<u>ab", "<u>", "a<u>a<u>ab"}) {
    EXPECT_EQ(encode(text, {{0, text.size()}}), *tokenizer->Encode(text, Tokenizer::AddedTokens::kParse)) << text;
    EXPECT_EQ(encode(text, {}), *tokenizer->Encode(text)) << text;
  }
}

TEST(Tokenizer, AnAddedTokenDecodesToItsContent) {
  SmallTokenizer small;
  small.added = "[" + Added("caf\u00e9", 256, false) + "]";  // every letter is in the byte-level alphabet too
  const auto tokenizer = small.Load();
  EXPECT_EQ(tokenizer->Decode(Encode(tokenizer, "caf\u00e9", kParse)), "caf\u00e9");
}

TEST(Tokenizer, InvalidUtf8FailsWithItsOffset) {
  const auto tokenizer = SmallTokenizer{}.Load();
  for (const std::string text :
       {"ab\x80", "ab\xC3", "ab\xED\xA0\x80", "ab\xC0\x80", "ab\xF4\x90\x80\x80", "ab\xF0\x9F\x91"}) {
    for (const auto mode : {kText, kParse}) {
      const auto ids = tokenizer->Encode(text + (text.back() == '\x91' ? "" : "c"), mode);
      ASSERT_FALSE(ids.ok());
      EXPECT_NE(ids.error().message.find("at byte 2"), std::string::npos) << ids.error().message;
    }
  }
}

TEST(Tokenizer, APatternThatBlowsUpIsAnError) {
  SmallTokenizer small;
  small.pre_tokenizer = Split("(?:a|a)+[cd]");
  const auto tokenizer = small.Load();
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(Encode(tokenizer, "aac"), (Ids{'a', 'a', 'c'}));
  const auto ids = tokenizer->Encode(std::string(64, 'a') + "b");
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().message.rfind("text: pre_tokenizer.pretokenizers[0]: the pattern \"(?:a|a)+[cd]\"", 0), 0U)
      << ids.error().message;
}

std::vector<std::string> RealTokenizers() {
  std::vector<std::string> dirs = {testing::DemoDir()};
  if (!testing::SharedDir().empty()) dirs.push_back(testing::SharedDir() + "/data/deepseek_v3_tokenizer");
  return dirs;
}

std::string RandomText(std::mt19937& random) {
  std::string text;
  for (unsigned n = random() % 60; n > 0; --n) {
    const unsigned kind = random() % 8;
    char32_t c = kind < 3   ? random() % 0x80
                 : kind < 5 ? random() % 0x3000
                 : kind < 7 ? random() % 0x20000
                            : random() % 0x110000;
    if (c >= 0xD800 && c <= 0xDFFF) c = ' ';
    for (unsigned m = random() % 4 == 0 ? random() % 5 : 1; m > 0; --m) text::AppendUtf8(c, text);
  }
  return text;
}

TEST(Tokenizer, DecodingGivesTheTextBack) {
  for (const std::string& dir : RealTokenizers()) {
    const auto tokenizer = Tokenizer::Load(dir);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    std::mt19937 random(3);
    for (int i = 0; i < 3000; ++i) {
      const std::string text = RandomText(random);
      ASSERT_EQ(tokenizer->Decode(Encode(tokenizer, text)), text);
      ASSERT_EQ(tokenizer->Decode(Encode(tokenizer, text, kParse), true), text);
    }
  }
}

std::vector<std::pair<std::string, std::int32_t>> AddedOf(const std::string& dir) {
  const auto root = io::ReadJsonFile(dir + "/tokenizer.json");
  EXPECT_TRUE(root.ok());
  std::vector<std::pair<std::string, std::int32_t>> added;
  for (const io::JsonValue& item : root->Find("added_tokens")->items()) {
    added.emplace_back(item.Find("content")->string(), static_cast<std::int32_t>(item.Find("id")->integer()));
  }
  return added;
}

TEST(Tokenizer, WhatAUserWritesIsNeverAnAddedToken) {
  for (const std::string& dir : RealTokenizers()) {
    const auto tokenizer = Tokenizer::Load(dir);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    const auto added = AddedOf(dir);
    std::set<std::int32_t> ids_of_added;
    for (const auto& [content, id] : added) ids_of_added.insert(id);
    std::mt19937 random(4);
    for (const auto& [content, id] : added) {
      EXPECT_EQ(Encode(tokenizer, content, kParse), Ids{id});
      const std::string before = RandomText(random);
      const std::string after = RandomText(random);
      for (const std::string& text : {content, content + content, before + content + after, " " + content + "\n"}) {
        const Ids ids = Encode(tokenizer, text);
        for (const std::int32_t found : ids) ASSERT_EQ(ids_of_added.count(found), 0U) << text;
        ASSERT_EQ(tokenizer->Decode(ids), text);
      }
    }
  }
}

TEST(Tokenizer, LongTextsOfOneKind) {
  for (const std::string& dir : RealTokenizers()) {
    const auto tokenizer = Tokenizer::Load(dir);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    for (const std::string unit : {"a", " ", "7", "\n", "\U0001F44D", "!", "\x01", "\u0301", "<\uFF5C"}) {
      std::string text;
      while (text.size() < std::size_t{1} << 20) text += unit;
      text += "a";
      ASSERT_EQ(tokenizer->Decode(Encode(tokenizer, text)), text);
    }
  }
}

TEST(Tokenizer, BeginningAndEndComeFromTheConfig) {
  SmallTokenizer small;
  small.words = {"ab"};
  small.added = "[" + Added("<s>", 300, true) + ", " + Added("</s>", 301, true) + "]";
  const auto plain = small.Load();
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(plain->bos_id().has_value() || plain->eos_id().has_value() || plain->add_bos());
  const auto full =
      small.Load(R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}, "add_bos_token": true})");
  ASSERT_TRUE(full.ok()) << full.error().message;
  EXPECT_EQ(full->bos_id(), 300);
  EXPECT_EQ(full->eos_id(), 301);
  EXPECT_TRUE(full->add_bos());
  const auto partial = small.Load(R"({"bos_token": null, "eos_token": "ab", "add_bos_token": null, "other": [1]})");
  ASSERT_TRUE(partial.ok()) << partial.error().message;
  EXPECT_FALSE(partial->bos_id().has_value() || partial->add_bos());
  EXPECT_EQ(partial->eos_id(), 256);
}

TEST(Tokenizer, TheTemplatesTokenIsTheBosOrRefused) {
  SmallTokenizer small;
  small.added = "[" + Added("<s>", 300, true) + ", " + Added("<t>", 301, true) + "]";
  small.top_fields = R"("post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [300], "tokens": ["<s>"]}}}, )";
  const auto says = small.Load(R"({"bos_token": "<s>"})");
  ASSERT_TRUE(says.ok()) << says.error().message;
  EXPECT_TRUE(says->add_bos());
  const auto overridden = small.Load(R"({"bos_token": "<s>", "add_bos_token": false})");
  ASSERT_TRUE(overridden.ok());
  EXPECT_FALSE(overridden->add_bos());
  EXPECT_FALSE(small.Load(R"({"bos_token": "<t>"})").ok());
  EXPECT_FALSE(small.Load().ok());
}

}  // namespace
}  // namespace mla
