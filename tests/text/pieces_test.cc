// Vocabularies of characters, as sentencepiece's are written in tokenizer.json: normalizer, Metaspace, decoders, and
// what is refused. tools/tokenizer_vectors.py --characters compares many more with the tokenizers library.
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "io/quote.h"
#include "mla/tokenizer.h"
#include "testing/temp_dir.h"
#include "text/small_tokenizer.h"

namespace mla {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::string_view kPrependReplace =
    R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})";
constexpr std::string_view kLlamaDecoder =
    R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";

// <unk> is 0, byte b is b + 1, "▁" 257, "a" 258, "b" 259, "▁a" 260, "ab" 261, "<s>" 262.
struct Pieces {
  std::string normalizer = std::string(kPrependReplace);
  std::string pre_tokenizer = "null";
  std::string decoder = std::string(kLlamaDecoder);
  std::string added = testing::Added("<s>", 262, true);
  std::string model_fields = R"("byte_fallback": true, "fuse_unk": true, "unk_token": "<unk>", )";

  std::string Json() const {
    std::string vocab = "\"<unk>\": 0";
    for (int byte = 0; byte < 256; ++byte) {
      constexpr std::string_view kDigits = "0123456789ABCDEF";
      vocab += std::string(", \"<0x") + kDigits[static_cast<std::size_t>(byte) / 16] +
               kDigits[static_cast<std::size_t>(byte) % 16] + ">\": " + std::to_string(byte + 1);
    }
    for (const std::string_view word : {"▁", "a", "b", "▁a", "ab", "<s>"}) {
      vocab += ", " + io::JsonString(word) + ": " + std::to_string(257 + words_++ % 6);
    }
    return "{\"added_tokens\": [" + added + "], \"normalizer\": " + normalizer +
           ", \"pre_tokenizer\": " + pre_tokenizer + ", \"decoder\": " + decoder + ", \"model\": {\"type\": \"BPE\", " +
           model_fields + "\"vocab\": {" + vocab + R"(}, "merges": ["a b", "▁ a"]}})";
  }
  Result<Tokenizer> Load(std::string_view config = {}) const {
    return testing::SmallTokenizer::LoadText(Json(), config);
  }

 private:
  mutable int words_ = 0;
};

// The spelling of each id, with '|' after each: "▁" as "_", a byte in angle brackets.
std::string Parts(const Result<Tokenizer>& tokenizer, std::string_view text, Tokenizer::AddedTokens added = kParse) {
  static const std::vector<std::string> kWords = {"_", "a", "b", "_a", "ab", "<s>"};
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto ids = tokenizer.ok() ? tokenizer->Encode(text, added) : Result<Ids>(Ids());
  EXPECT_TRUE(ids.ok()) << ids.error().message;
  std::string parts;
  for (const std::int32_t id : ids.ok() ? *ids : Ids()) {
    parts += id == 0     ? "unk"
             : id <= 256 ? "<" + std::to_string(id - 1) + ">"
             : id <= 262 ? kWords[static_cast<std::size_t>(id) - 257]
                         : std::to_string(id);
    parts += "|";
  }
  return parts;
}

std::string Spaces(std::string_view fields) {
  return R"({"type": "Metaspace", "replacement": "▁", )" + std::string(fields) + "}";
}

std::string Streamed(const Tokenizer& tokenizer, const Ids& ids, bool with_special) {
  StreamDecoder decoder(tokenizer, with_special);
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string part = decoder.Push(id);
    EXPECT_EQ(io::ValidUtf8Prefix(part), part.size());
    text += part;
  }
  return text + decoder.Finish();
}

TEST(Pieces, PrependComesAfterEveryAddedToken) {
  const auto tokenizer = Pieces{}.Load();
  EXPECT_EQ(Parts(tokenizer, "ab a"), "_|ab|_a|");
  EXPECT_EQ(Parts(tokenizer, " a"), "_|_a|");
  EXPECT_EQ(Parts(tokenizer, ""), "");
  EXPECT_EQ(Parts(tokenizer, "a<s>a<s><s> a"), "_a|<s>|_a|<s>|<s>|_|_a|");
  EXPECT_EQ(Parts(tokenizer, "<s>", kText), "_|<60>|<115>|<62>|");
  EXPECT_EQ(Parts(tokenizer, "\u5b57\n"), "_|<229>|<173>|<151>|<10>|");
  EXPECT_EQ(Parts(tokenizer, "<0x41>", kText), "_|<60>|<48>|<120>|<52>|<49>|<62>|");
}

TEST(Pieces, NormalizedAddedTokensAreFoundInNormalizedText) {
  Pieces pieces;
  pieces.added += ", " + testing::Added("b b", 263, false, true);
  const auto tokenizer = pieces.Load();
  // Normalized, it is "▁b▁b".
  EXPECT_EQ(Parts(tokenizer, "b b"), "263|");
  EXPECT_EQ(Parts(tokenizer, "ab b b b"), "_|ab|263|_|b|");
  EXPECT_EQ(Parts(tokenizer, "ab bb"), "_|ab|_|b|b|");
  EXPECT_EQ(Parts(tokenizer, "<s>b b"), "<s>|263|");
  pieces.added += ", " + testing::Added("b\u2581b", 264, false, true);
  const auto twice = pieces.Load();
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.error().message.find("expected contents that differ when normalized, found \"\u2581b\u2581b\""),
            std::string::npos)
      << twice.error().message;
}

TEST(Pieces, StrippingAddedTokensTakeWhiteSpace) {
  Pieces pieces;
  pieces.normalizer = "null";
  const auto strip = [&](std::string_view from, std::string_view to) {
    pieces.added.replace(pieces.added.find(from), from.size(), to);
  };
  strip("\"lstrip\": false", "\"lstrip\": true");
  EXPECT_EQ(Parts(pieces.Load(), "a \u3000\n<s>\ta"), "a|<s>|<9>|a|");
  strip("\"rstrip\": false", "\"rstrip\": true");
  EXPECT_EQ(Parts(pieces.Load(), "a \u3000\n<s>\t\u00a0a <s> <s>"), "a|<s>|a|<s>|<s>|");
  EXPECT_EQ(Parts(pieces.Load(), "<s>\u200ba"), "<s>|<226>|<128>|<139>|a|");
}

TEST(Pieces, Metaspace) {
  Pieces pieces;
  pieces.normalizer = "null";
  const auto parts = [&](std::string_view fields, std::string_view text) {
    pieces.pre_tokenizer = Spaces(fields);
    return Parts(pieces.Load(), text);
  };
  const std::string_view always = R"("prepend_scheme": "always", "split": false)";
  EXPECT_EQ(parts(always, "a<s>ab a"), "_a|<s>|_|ab|_a|");
  EXPECT_EQ(parts(always, " a\u2581a"), "_a|_a|");  // begins with it already
  EXPECT_EQ(parts(R"("prepend_scheme": "first", "split": false)", "a<s>a a"), "_a|<s>|a|_a|");
  EXPECT_EQ(parts(R"("prepend_scheme": "first", "split": false)", "<s>a"), "<s>|a|");
  EXPECT_EQ(parts(R"("prepend_scheme": "never")", "a a"), "a|_a|");
  // The older spelling; "always" and splitting where nothing else is said.
  EXPECT_EQ(parts(R"("add_prefix_space": true)", "b a<s>a"), "_|b|_a|<s>|_a|");
  EXPECT_EQ(parts(R"("str_rep": "▁", "add_prefix_space": false, "prepend_scheme": "never")", "a"), "a|");
  // Words apart: with whole words, what a piece is shows.
  pieces.model_fields += R"("ignore_merges": true, )";
  EXPECT_EQ(parts(R"("prepend_scheme": "never", "split": true)", "<s>\u2581a\u2581\u2581a"), "<s>|_a|_|_a|");
}

TEST(Pieces, ASpecialTokensNameIsTextUnlessParsed) {
  Pieces merged;
  merged.added = testing::Added("ab", 261, true);
  EXPECT_EQ(Parts(merged.Load(), "ab", kText), "_a|b|");
  EXPECT_EQ(Parts(merged.Load(), "ab", kParse), "ab|");
  Pieces pieces;
  pieces.normalizer = "null";
  pieces.model_fields += R"("ignore_merges": true, )";
  EXPECT_EQ(Parts(pieces.Load(), "<s>", kText), "<60>|<115>|<62>|");
  EXPECT_EQ(Parts(pieces.Load(), "ab", kText), "ab|");
}

TEST(Pieces, OnlyTheFirstSpaceOfATextIsStripped) {
  const auto tokenizer = Pieces{}.Load();
  ASSERT_TRUE(tokenizer.ok());
  const auto both = [&](const Ids& ids, bool special = false) {
    std::string whole = tokenizer->Decode(ids, special);
    EXPECT_EQ(Streamed(*tokenizer, ids, special), whole);
    return whole;
  };
  EXPECT_EQ(both({260, 260}), "a a");
  EXPECT_EQ(both({257, 257, 258}), " a");
  EXPECT_EQ(both({258, 257}), "a ");
  EXPECT_EQ(both({262, 260}), "a");
  EXPECT_EQ(both({262, 260}, true), "<s> a");
  EXPECT_EQ(both({' ' + 1, 260}), " a");  // a space from a byte is one too
  EXPECT_EQ(both({-1, 1 << 20, 260}), "a");
  EXPECT_EQ(both({0xE5 + 1, 0xAD + 1, 0x97 + 1, '\n' + 1}), "\u5b57\n");
  EXPECT_EQ(both({}), "");
  StreamDecoder stream(*tokenizer);
  EXPECT_EQ(stream.Push(257), "");
  EXPECT_EQ(stream.Push(0xE5 + 1), "");
  EXPECT_EQ(stream.Push(0xAD + 1), "");
  EXPECT_EQ(stream.Push(0x97 + 1), "\u5b57");
  EXPECT_EQ(stream.Push(260), " a");
}

TEST(Pieces, MetaspaceDecodesTheFirstTokenWithoutItsSpaces) {
  Pieces pieces;
  pieces.decoder = Spaces(R"("prepend_scheme": "first")");
  pieces.added += ", " + testing::Added("\u2581\u2581b\u2581", 263, false);
  const auto tokenizer = pieces.Load();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->Decode(Ids{260, 260}), "a a");
  EXPECT_EQ(tokenizer->Decode(Ids{263, 263}), "b  b ");
  EXPECT_EQ(tokenizer->Decode(Ids{262, 257, 260}), " a");
  EXPECT_EQ(tokenizer->Decode(Ids{262, 260}, true), "<s> a");
  EXPECT_EQ(tokenizer->Decode(Ids{11}), "<0x0A>");  // it knows no bytes
  EXPECT_EQ(Streamed(*tokenizer, {262, 257, 260}, false), " a");
  pieces.decoder = Spaces(R"("prepend_scheme": "never")");
  EXPECT_EQ(pieces.Load()->Decode(Ids{260}), " a");
}

TEST(Pieces, StreamsAreWhatDecodingGives) {
  const auto tokenizer = Tokenizer::Load(std::string(MLA_SOURCE_DIR) + "/tests/text/byte_fallback");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_TRUE(tokenizer->add_bos());
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  std::mt19937 random(6);
  int whole_texts = 0;
  for (int i = 0; i < 3000; ++i) {
    Ids ids;
    for (unsigned n = random() % 12; n > 0; --n) {
      // Mostly pieces; a byte token alone is seldom a character.
      const unsigned id = random() % 20 == 0 ? random() % 260 : 259 + random() % 1750;
      ids.push_back(static_cast<std::int32_t>(id));
    }
    for (const bool special : {false, true}) {
      const std::string whole = tokenizer->Decode(ids, special);
      if (io::ValidUtf8Prefix(whole) != whole.size()) continue;
      ++whole_texts;
      ASSERT_EQ(Streamed(*tokenizer, ids, special), whole);
    }
  }
  EXPECT_GT(whole_texts, 3000);
}

TEST(Pieces, LongTextsOfOneKind) {
  const auto tokenizer = Tokenizer::Load(std::string(MLA_SOURCE_DIR) + "/tests/text/byte_fallback");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  for (const std::string unit : {"a", " ", "\u5b57", "the"}) {
    std::string text;
    while (text.size() < std::size_t{1} << 20) text += unit;
    const auto ids = tokenizer->Encode(text);
    ASSERT_TRUE(ids.ok());
    ASSERT_EQ(tokenizer->Decode(*ids), text);
  }
}

void Refused(const Pieces& pieces, std::string_view expected) {
  const auto result = pieces.Load();
  const std::string message = result.ok() ? "accepted" : result.error().message;
  EXPECT_NE(message.find(expected), std::string::npos) << "wanted: " << expected << "\nfound:  " << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

Pieces With(std::string Pieces::*member, std::string_view text) {
  Pieces pieces;
  pieces.*member = text;
  return pieces;
}

TEST(Pieces, RefusesNormalizersByName) {
  const auto refused = [](std::string_view text, std::string_view expected) {
    Refused(With(&Pieces::normalizer, text), expected);
  };
  refused(R"({"type": "NFKC"})", "normalizer.type: expected Prepend, Replace or a Sequence of them, found \"NFKC\"");
  refused(R"({"type": "Sequence", "normalizers": 1})", "normalizer.normalizers: expected an array of at most 8");
  refused(R"({"type": "Sequence", "normalizers": [1]})", "normalizer.normalizers[0]: expected an object");
  refused(R"({"type": "Prepend"})", "normalizer.prepend: expected a string");
  refused(R"({"type": "Prepend", "prepend": "12345678901234567"})",
          "normalizer.prepend: expected at most 16 bytes, found 17");
  refused(R"({"type": "Replace", "pattern": {"Regex": " +"}, "content": "x"})",
          "normalizer.pattern: expected {\"String\"");
  refused(R"({"type": "Replace", "pattern": {"String": ""}, "content": "x"})", "normalizer.pattern");
  refused(R"({"type": "Replace", "pattern": {"String": " "}})", "normalizer.content");
  refused(R"({"type": "Replace", "pattern": {"String": " "}, "content": "12345678901234567"})", "at most 16 bytes");
  Pieces both;
  both.pre_tokenizer = Spaces("\"split\": false");
  Refused(both, "normalizer: expected null beside a Metaspace pre-tokenizer");
  Pieces nothing;
  nothing.normalizer = R"({"type": "Replace", "pattern": {"String": "x"}, "content": ""})";
  nothing.added = testing::Added("x", 263, false, true);
  Refused(nothing, "expected contents that the normalizer leaves something of, found id 263");
}

TEST(Pieces, RefusesPreTokenizersByName) {
  const auto refused = [](std::string_view text, std::string_view expected) {
    Pieces pieces = With(&Pieces::pre_tokenizer, text);
    pieces.normalizer = "null";
    Refused(pieces, expected);
  };
  refused(std::string(testing::kByteLevel),
          "pre_tokenizer.type: expected Split, Digits, Metaspace or a Sequence of them, found \"ByteLevel\"");
  refused(R"({"type": "Metaspace"})", "pre_tokenizer.replacement");
  refused(R"({"type": "Metaspace", "replacement": "ab"})", "pre_tokenizer.replacement: expected one character");
  refused(R"({"type": "Metaspace", "replacement": ""})", "pre_tokenizer.replacement: expected one character");
  refused(Spaces(R"("prepend_scheme": "sometimes")"), "pre_tokenizer.prepend_scheme: expected first, always or never");
  refused(Spaces(R"("prepend_scheme": null)"), "pre_tokenizer.prepend_scheme");
  refused(Spaces(R"("add_prefix_space": false)"), "expected \"never\" beside add_prefix_space false");
  refused(Spaces(R"("split": 1)"), "pre_tokenizer.split");
  refused(Spaces(R"("odd": 1)"), "\"odd\"");
  refused(R"({"type": "Sequence", "pretokenizers": [)" + Spaces("\"split\": true") + "]}", "pretokenizers[0].type");
}

TEST(Pieces, RefusesDecodersByName) {
  const auto refused = [](std::string_view steps, std::string_view expected) {
    Refused(With(&Pieces::decoder, R"({"type": "Sequence", "decoders": [)" + std::string(steps) + "]}"), expected);
  };
  Refused(With(&Pieces::decoder, "null"), "decoder: expected a ByteLevel, a Metaspace or a Sequence, found null");
  Refused(With(&Pieces::decoder, R"({"type": "Fuse"})"), "decoder.type: expected ByteLevel, Metaspace or a Sequence");
  refused(R"({"type": "BPEDecoder"})",
          "decoder.decoders[0].type: expected Replace, ByteFallback, Fuse, Strip, in this order");
  refused(R"({"type": "Fuse"}, {"type": "ByteFallback"})", "found \"ByteFallback\" after Fuse");
  refused(R"({"type": "Strip", "content": " ", "start": 1, "stop": 0})", "found \"Strip\"");
  refused(R"({"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 1})", "stop: expected 0, found 1");
  refused(R"({"type": "Fuse"}, {"type": "Strip", "content": "x", "start": 1, "stop": 0})", "content: expected \" \"");
  refused(R"({"type": "Fuse"}, {"type": "Strip", "content": " ", "start": -1, "stop": 0})", "start: expected a number");
  refused(R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})",
          "expected no more bytes than the pattern");
}

TEST(Pieces, RefusesModelsByName) {
  Refused(With(&Pieces::model_fields, R"("byte_fallback": false, )"), "model: expected an unk_token, or byte_fallback");
  Refused(With(&Pieces::model_fields, R"("unk_token": "<none>", )"),
          "model.unk_token: expected a token of the vocabulary");
  Refused(With(&Pieces::model_fields, R"("fuse_unk": 1, "unk_token": "<unk>", )"), "model.fuse_unk");
  Pieces unknown;
  unknown.model_fields = R"("fuse_unk": true, "unk_token": "<unk>", )";
  EXPECT_EQ(Parts(unknown.Load(), "ax\u5b57a"), "_a|unk|a|");
}

// Every front of a file, and every file with one byte changed, gives a tokenizer or an error.
TEST(Pieces, TruncatedAndChangedFilesDoNoHarm) {
  const std::string json = Pieces{}.Json();
  for (std::size_t n = 0; n < json.size(); n += 31) {
    EXPECT_FALSE(testing::SmallTokenizer::LoadText(json.substr(0, n)).ok());
  }
  for (std::size_t at = 0; at < json.size(); at += 29) {
    std::string changed = json;
    changed[at] = "{}[]\",:0-9x("[at / 29 % 12];
    const auto tokenizer = testing::SmallTokenizer::LoadText(changed);
    if (!tokenizer.ok()) continue;
    const auto ids = tokenizer->Encode("ab <s>\u5b57", kParse);
    if (ids.ok()) static_cast<void>(tokenizer->Decode(*ids));
  }
}

}  // namespace
}  // namespace mla
