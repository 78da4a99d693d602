// Files that are broken, hostile, or simply not supported: each gets one line that names the field.
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "mla/tokenizer.h"
#include "testing/temp_dir.h"
#include "text/small_tokenizer.h"

namespace mla {
namespace {

using testing::Added;
using testing::kByteLevel;
using testing::SmallTokenizer;
using testing::Split;

std::string MessageOf(const Result<Tokenizer>& result) { return result.ok() ? "accepted" : result.error().message; }

// RefusedTokenizer, in one line with the file's name, and `expected` in it.
void RefusedTokenizer(const Result<Tokenizer>& result, std::string_view expected) {
  const std::string message = MessageOf(result);
  EXPECT_NE(message.find(expected), std::string::npos) << "wanted: " << expected << "\nfound:  " << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_NE(message.find("/tokenizer"), std::string::npos) << message;
}

SmallTokenizer With(std::string SmallTokenizer::*member, std::string_view text) {
  SmallTokenizer small;
  small.*member = text;
  return small;
}
SmallTokenizer WithModel(std::string_view fields) { return With(&SmallTokenizer::model_fields, fields); }
SmallTokenizer WithTop(std::string_view fields) { return With(&SmallTokenizer::top_fields, fields); }
SmallTokenizer WithPre(std::string_view pre) { return With(&SmallTokenizer::pre_tokenizer, pre); }
SmallTokenizer WithAdded(std::string_view added) {
  return With(&SmallTokenizer::added, "[" + std::string(added) + "]");
}
SmallTokenizer WithMerges(std::string_view merges) {
  SmallTokenizer small = With(&SmallTokenizer::merges, merges);
  small.words = {"ab", "abc"};
  return small;
}

// `from` in a good file becomes `to`.
Result<Tokenizer> Changed(std::string_view from, std::string_view to, const SmallTokenizer& small = {}) {
  std::string json = small.Json();
  const std::size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  json.replace(at, from.size(), to);
  return SmallTokenizer::LoadText(json);
}

TEST(TokenizerFile, WhatChangesNothingIsAccepted) {
  EXPECT_EQ(MessageOf(SmallTokenizer{}.Load()), "accepted");
  EXPECT_EQ(MessageOf(WithModel(R"("dropout": null, "unk_token": null, "fuse_unk": true, "byte_fallback": false,
      "continuing_subword_prefix": "", "end_of_word_suffix": null, "ignore_merges": false, )")
                          .Load()),
            "accepted");
  EXPECT_EQ(MessageOf(WithTop(R"("version": "1.0", "truncation": null, "padding": null, "normalizer": null, )").Load()),
            "accepted");
  EXPECT_EQ(MessageOf(WithTop(R"("normalizer": {"type": "Sequence", "normalizers": []}, )").Load()), "accepted");
  EXPECT_EQ(MessageOf(WithTop(R"("post_processor": null, )").Load()), "accepted");
  EXPECT_EQ(MessageOf(WithTop(R"("post_processor": {"type": "ByteLevel", "trim_offsets": false}, )").Load()),
            "accepted");
  EXPECT_EQ(MessageOf(WithTop(R"("post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"},
      {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}]}]}, )")
                          .Load()),
            "accepted");
  EXPECT_EQ(MessageOf(Changed(R"("type": "BPE", )", "")), "accepted");
  EXPECT_EQ(MessageOf(WithMerges(R"(["#version: 0.2", "a b", "ab c"])").Load()), "accepted");
  EXPECT_EQ(MessageOf(WithMerges(R"([["a", "b"], ["ab", "c"]])").Load()), "accepted");
  EXPECT_EQ(MessageOf(WithAdded(Added("a", 97, false)).Load()), "accepted");
}

TEST(TokenizerFile, NoFileOrNoJson) {
  const testing::TempDir dir;
  RefusedTokenizer(Tokenizer::Load(dir.path()), "tokenizer.json");
  for (const std::string_view json : {"", "{", "[1, 2", "nonsense", "{\"model\": \xFF}"}) {
    RefusedTokenizer(SmallTokenizer::LoadText(json), "tokenizer.json");
  }
  for (const std::string_view json : {"1", "[]", "null"})
    RefusedTokenizer(SmallTokenizer::LoadText(json), "expected an object");
  RefusedTokenizer(SmallTokenizer::LoadText("{}"), "decoder");
}

TEST(TokenizerFile, Model) {
  RefusedTokenizer(Changed("\"BPE\"", "\"Unigram\""), "model.type: expected \"BPE\", found \"Unigram\"");
  RefusedTokenizer(Changed("\"BPE\"", "7"), "model.type");
  RefusedTokenizer(Changed("\"model\": {", "\"model\": 1, \"x\": {"), "\"x\"");
  RefusedTokenizer(WithModel("\"dropout\": 0.1, ").Load(), "model.dropout: expected null");
  RefusedTokenizer(WithModel("\"byte_fallback\": true, ").Load(),
                   "model.byte_fallback: expected false with a ByteLevel decoder");
  RefusedTokenizer(WithModel("\"byte_fallback\": 1, ").Load(), "model.byte_fallback");
  RefusedTokenizer(WithModel("\"ignore_merges\": \"yes\", ").Load(), "model.ignore_merges");
  RefusedTokenizer(WithModel("\"unk_token\": 3, ").Load(), "model.unk_token");
  RefusedTokenizer(WithModel("\"continuing_subword_prefix\": \"##\", ").Load(),
                   "model.continuing_subword_prefix: expected null or \"\"");
  RefusedTokenizer(WithModel("\"end_of_word_suffix\": \"</w>\", ").Load(), "model.end_of_word_suffix");
  RefusedTokenizer(WithModel("\"cache_capacity\": 1, ").Load(), "\"cache_capacity\"");
}

TEST(TokenizerFile, Vocabulary) {
  RefusedTokenizer(Changed("\"a\": 97", "\"a\": -1"),
                   "model.vocab: expected an id from 0 to 16777215, found -1 at \"a\"");
  RefusedTokenizer(Changed("\"a\": 97", "\"a\": 16777216"), "found 16777216");
  RefusedTokenizer(Changed("\"a\": 97", "\"a\": 99999999999999999999"), "model.vocab");
  RefusedTokenizer(Changed("\"a\": 97", "\"a\": 97.0"), "model.vocab");
  RefusedTokenizer(Changed("\"a\": 97", "\"a\": \"97\""), "model.vocab");
  RefusedTokenizer(Changed("\"a\": 97", "\"a\": null"), "model.vocab");
  RefusedTokenizer(Changed("\"a\": 97", "\"a\": 98"), "model.vocab: expected each id once, found 98");
  RefusedTokenizer(Changed("\"a\": 97, ", ""), "(byte 0x61)");
  RefusedTokenizer(Changed("\"a\": 97", "\"a\": 97, \"a\": 300"), "\"a\"");
  const auto with_vocab = [](std::string_view member) {
    std::string json = SmallTokenizer{}.Json();
    const std::size_t begin = json.find("\"vocab\": ");
    return SmallTokenizer::LoadText(json.replace(begin, json.find("\"merges\"") - begin, member));
  };
  RefusedTokenizer(with_vocab("\"vocab\": [], "), "model.vocab: expected an object");
  RefusedTokenizer(with_vocab("\"vocab\": {}, "), "model.vocab: expected all 256");
  RefusedTokenizer(with_vocab(""), "model.vocab: expected an object, found nothing");
  // The largest id is fine, and takes no more than its table.
  const auto largest = Changed("\"a\": 97", "\"a\": 16777215");
  ASSERT_TRUE(largest.ok()) << largest.error().message;
  EXPECT_EQ(largest->vocab_size(), 1 << 24);
  EXPECT_EQ(largest->TokenBytes((1 << 24) - 1), "a");
  EXPECT_EQ(largest->TokenBytes(97), "");
}

TEST(TokenizerFile, Merges) {
  RefusedTokenizer(WithMerges("null").Load(), "model.merges: expected an array");
  RefusedTokenizer(WithMerges("{}").Load(), "model.merges");
  RefusedTokenizer(WithMerges("[1]").Load(), "model.merges[0]");
  RefusedTokenizer(WithMerges(R"(["a b", "ab"])").Load(), "model.merges[1]: expected two parts");
  RefusedTokenizer(WithMerges(R"(["a b c"])").Load(), "model.merges[0]");
  RefusedTokenizer(WithMerges(R"(["a b", ["a", "b"]])").Load(), "model.merges[1]");
  RefusedTokenizer(WithMerges(R"([["a", "b"], "a b"])").Load(), "model.merges[1]");
  RefusedTokenizer(WithMerges(R"([["a"]])").Load(), "model.merges[0]: expected two strings");
  RefusedTokenizer(WithMerges(R"([["a", 1]])").Load(), "model.merges[0]");
  RefusedTokenizer(WithMerges(R"(["a c"])").Load(),
                   "model.merges[0]: expected both parts and the result in the vocabulary, found no \"ac\"");
  RefusedTokenizer(WithMerges(R"(["zz a"])").Load(), "found no \"zz\"");
}

TEST(TokenizerFile, AddedTokens) {
  RefusedTokenizer(WithAdded(Added("a", 256, false)).Load(), "added_tokens: expected id 97 for \"a\"");
  RefusedTokenizer(WithAdded(Added("xyz", 97, false)).Load(), "added_tokens: expected each id once, found 97");
  RefusedTokenizer(WithAdded(Added("xy", 256, false) + "," + Added("xy", 257, false)).Load(), "found \"xy\" twice");
  RefusedTokenizer(WithAdded(Added("xy", 256, false) + "," + Added("yz", 256, false)).Load(), "found 256");
  RefusedTokenizer(WithAdded(Added("", 256, false)).Load(), "added_tokens[0].content");
  RefusedTokenizer(WithAdded(Added("x!", -1, false)).Load(), "added_tokens[0].id");
  RefusedTokenizer(WithAdded(Added("x!", 1 << 24, false)).Load(), "added_tokens[0].id");
  RefusedTokenizer(WithAdded("1").Load(), "added_tokens[0]: expected an object");
  RefusedTokenizer(Changed("\"single_word\": false", "\"single_word\": true", WithAdded(Added("xy", 256, true))),
                   "added_tokens[0].single_word: expected false, found true");
  RefusedTokenizer(Changed("\"lstrip\": false", "\"lstrip\": 1", WithAdded(Added("xy", 256, true))),
                   "added_tokens[0].lstrip");
  // A token in the white space that another one takes.
  RefusedTokenizer(
      Changed("\"rstrip\": false", "\"rstrip\": true",
              WithAdded(Added("xy", 256, true) + "," + Added("\u3000x", 257, true))),
      "expected no rstrip (as of id 256) beside a token that begins with white space, found \"\u3000x\" of id 257");
  RefusedTokenizer(Changed(", \"special\": true", "", WithAdded(Added("xy", 256, true))), "added_tokens[0].special");
  RefusedTokenizer(Changed("\"special\": true", "\"special\": true, \"odd\": 1", WithAdded(Added("xy", 256, true))),
                   "\"odd\"");
}

TEST(TokenizerFile, NormalizerDecoderAndTheRest) {
  RefusedTokenizer(WithTop(R"("normalizer": {"type": "NFC"}, )").Load(),
                   "normalizer.type: expected Prepend, Replace or a Sequence of them, found \"NFC\"");
  RefusedTokenizer(WithTop(R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]}, )").Load(),
                   "normalizer.normalizers[0].type");
  RefusedTokenizer(WithTop(R"("normalizer": {"type": "Prepend", "prepend": "x"}, )").Load(),
                   "normalizer: expected null beside a ByteLevel decoder");
  RefusedTokenizer(WithTop(R"("normalizer": 1, )").Load(), "normalizer");
  RefusedTokenizer(WithTop(R"("truncation": {"max_length": 5}, )").Load(), "truncation: expected null");
  RefusedTokenizer(WithTop(R"("padding": {}, )").Load(), "padding: expected null");
  RefusedTokenizer(WithTop(R"("version": "2.0", )").Load(), "version: expected \"1.0\"");
  RefusedTokenizer(WithTop(R"("pipeline": 1, )").Load(), "\"pipeline\"");
  RefusedTokenizer(Changed("\"decoder\": {\"type\": \"ByteLevel\"", "\"decoder\": {\"type\": \"Metaspace\""),
                   "decoder: expected only");
  RefusedTokenizer(Changed("\"decoder\": {\"type\": \"ByteLevel\"", "\"decoder\": {\"type\": \"WordPiece\""),
                   "decoder.type: expected ByteLevel, Metaspace or a Sequence, found \"WordPiece\"");
  RefusedTokenizer(WithTop(R"("post_processor": {"type": "BertProcessing"}, )").Load(), "post_processor.type");
  RefusedTokenizer(WithTop(R"("post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}},
      {"SpecialToken": {"id": "a"}}]}, )")
                       .Load(),
                   "post_processor.single");
  RefusedTokenizer(WithTop(R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "a"}},
      {"Sequence": {"id": "A"}}], "special_tokens": {"a": {"ids": [5]}}}, )")
                       .Load(),
                   "(97), found 5");
}

TEST(TokenizerFile, PreTokenizer) {
  RefusedTokenizer(WithPre("null").Load(), "pre_tokenizer: expected a ByteLevel");
  RefusedTokenizer(WithPre("[]").Load(), "pre_tokenizer: expected an object");
  RefusedTokenizer(WithPre("{}").Load(), "pre_tokenizer.type: expected a string");
  RefusedTokenizer(WithPre(R"({"type": "Whitespace"})").Load(),
                   "pre_tokenizer.type: expected Split, Digits, ByteLevel or a Sequence of them, found \"Whitespace\"");
  RefusedTokenizer(WithPre(R"({"type": "Sequence", "pretokenizers": 1})").Load(), "pre_tokenizer.pretokenizers");
  RefusedTokenizer(
      WithPre(R"({"type": "Sequence", "pretokenizers": [{"type": "Sequence", "pretokenizers": []}]})").Load(),
      "pretokenizers[0].type");
  RefusedTokenizer(WithPre(R"({"type": "Sequence", "pretokenizers": []})").Load(), "expected a ByteLevel");
  const std::string twice =
      R"({"type": "Sequence", "pretokenizers": [)" + std::string(kByteLevel) + ", " + std::string(kByteLevel) + "]}";
  RefusedTokenizer(WithPre(twice).Load(), "expected ByteLevel as the last");
  RefusedTokenizer(WithPre(R"({"type": "ByteLevel"})").Load(), "pre_tokenizer.add_prefix_space");
  RefusedTokenizer(WithPre(R"({"type": "ByteLevel", "add_prefix_space": false, "new": 1})").Load(), "\"new\"");
  RefusedTokenizer(WithPre(Split("a", "Shuffled")).Load(), "behavior: expected Isolated");
  RefusedTokenizer(WithPre(Split("(a")).Load(),
                   "pre_tokenizer.pretokenizers[0]: the pattern \"(a\": at byte 2: not supported");
  RefusedTokenizer(WithPre(Split("\\w+")).Load(), "not supported");
  RefusedTokenizer(WithPre(Split("(?<=a+)b")).Load(), "the pattern \"(?<=a+)b\": lookbehind assertion");
  RefusedTokenizer(Changed("\"Regex\"", "\"Glob\"", WithPre(Split("a"))), "pattern: expected {\"Regex\"");
  RefusedTokenizer(Changed("\"invert\": false", "\"invert\": 0", WithPre(Split("a"))), "invert");
}

TEST(TokenizerFile, Config) {
  const SmallTokenizer small;
  RefusedTokenizer(small.Load("[]"), "tokenizer_config.json");
  RefusedTokenizer(small.Load("{"), "tokenizer_config.json");
  RefusedTokenizer(small.Load(R"({"bos_token": "<none>"})"),
                   "bos_token: expected a token of the vocabulary, found \"<none>\"");
  RefusedTokenizer(small.Load(R"({"eos_token": {"content": 1}})"), "eos_token");
  RefusedTokenizer(small.Load(R"({"eos_token": 5})"), "eos_token");
  RefusedTokenizer(small.Load(R"({"add_bos_token": 1, "bos_token": "a"})"), "add_bos_token");
  RefusedTokenizer(small.Load(R"({"add_bos_token": true})"), "add_bos_token: expected a bos_token");
}

// Every front of a file, and every file with one byte changed, gives a tokenizer or an error.
TEST(TokenizerFile, TruncatedAndChangedFilesDoNoHarm) {
  SmallTokenizer small;
  small.words = {"ab"};
  small.merges = "[\"a b\"]";
  small.pre_tokenizer = Split("\\s+(?!\\S)|[a-z]{1,3}");
  small.added = "[" + Added("<s>", 300, true) + "]";
  const std::string json = small.Json();
  for (std::size_t n = 0; n < json.size(); n += 7) EXPECT_FALSE(SmallTokenizer::LoadText(json.substr(0, n)).ok());
  for (std::size_t at = 0; at < json.size(); at += 3) {
    std::string changed = json;
    changed[at] = "{}[]\",:0-9x("[at / 3 % 12];
    const auto tokenizer = SmallTokenizer::LoadText(changed);
    if (tokenizer.ok()) static_cast<void>(tokenizer->Encode("ab <s>", Tokenizer::AddedTokens::kParse));
  }
}

}  // namespace
}  // namespace mla
