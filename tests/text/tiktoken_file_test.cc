// Folders with a tiktoken.model: what is read, and what is refused, by name.
#include "text/tiktoken_file.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "io/file.h"
#include "mla/tokenizer.h"
#include "testing/temp_dir.h"
#include "text/small_tokenizer.h"

namespace mla {
namespace {

using Ids = std::vector<std::int32_t>;

// Worked out from RFC 4648, not from the library.
std::string Base64(std::string_view bytes) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    unsigned group = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      group = group << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      out += at + i > bytes.size() ? '=' : kDigits[group >> (18 - 6 * i) & 63];
    }
  }
  return out;
}

// Id b is byte b, then the words.
std::string Model(const std::vector<std::string>& words = {}) {
  std::string lines;
  for (int byte = 0; byte < 256; ++byte) {
    lines += Base64(std::string(1, static_cast<char>(byte))) + " " + std::to_string(byte) + "\n";
  }
  for (std::size_t i = 0; i < words.size(); ++i) lines += Base64(words[i]) + " " + std::to_string(256 + i) + "\n";
  return lines;
}

constexpr std::string_view kClass = R"("tokenizer_class": "TikTokenTokenizer")";
constexpr std::string_view kMap = R"("auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", null]})";

std::string Config(std::string_view added = {}, std::string_view fields = {}) {
  return "{" + std::string(kClass) + ", " + std::string(fields) + "\"added_tokens_decoder\": {" + std::string(added) +
         "}}";
}

Result<Tokenizer> Load(std::string_view model, std::string_view config, std::string_view code = {}) {
  const testing::TempDir dir;
  dir.Write("tiktoken.model", model);
  if (!config.empty()) dir.Write("tokenizer_config.json", config);
  if (!code.empty()) dir.Write("tokenization_kimi.py", code);
  return Tokenizer::Load(dir.path());
}

void RefusedFile(const Result<Tokenizer>& result, std::string_view expected) {
  const std::string message = result.ok() ? "accepted" : result.error().message;
  EXPECT_NE(message.find(expected), std::string::npos) << "wanted: " << expected << "\nfound:  " << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_TRUE(message.starts_with('/')) << message;
}

TEST(TiktokenFile, ReservedAndNamedSpecialTokens) {
  const auto tokenizer = Load(Model({"ab", "a b"}), Config(R"("258": {"content": "[BOS]", "special": true},
      "260": {"content": "<|call|>", "special": false, "lstrip": false}, "513": {"content": "[PAD]"})",
                                                           R"("bos_token": "[BOS]", "eos_token": {"content": "[PAD]"},
      "auto_map": {"AutoTokenizer": "someone/repo--tokenization_moonshot.TikTokenTokenizer"}, )"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->vocab_size(), 258 + 256);
  EXPECT_EQ(tokenizer->bos_id(), 258);
  EXPECT_EQ(tokenizer->eos_id(), 513);
  EXPECT_FALSE(tokenizer->add_bos());
  EXPECT_TRUE(tokenizer->IsSpecial(258) && tokenizer->IsSpecial(259) && tokenizer->IsSpecial(513));
  EXPECT_FALSE(tokenizer->IsSpecial(260) || tokenizer->IsSpecial(257));
  EXPECT_EQ(tokenizer->TokenBytes(259), "<|reserved_token_259|>");
  EXPECT_EQ(tokenizer->TokenBytes(0xC3), "\xC3");
  const auto parsed = tokenizer->Encode("ab[BOS]<|call|><|reserved_token_512|>", kParse);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, (Ids{256, 258, 260, 512}));
  EXPECT_EQ(tokenizer->Decode(*parsed), "ab<|call|>");
  const auto text = tokenizer->Encode("[BOS]ab");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, (Ids{'[', 'B', 'O', 'S', ']', 256}));
}

TEST(TiktokenFile, LinesOfOtherForms) {
  const std::string good = Model();
  EXPECT_TRUE(Load(good, Config()).ok());
  EXPECT_TRUE(Load(good.substr(0, good.size() - 1), Config()).ok());  // no newline at the end
  std::string windows = good + "\n\n";
  for (std::size_t at = 0; (at = windows.find('\n', at)) != std::string::npos; at += 2) windows.insert(at, "\r");
  EXPECT_TRUE(Load(windows, Config()).ok());
  const std::string expected =
      "/tiktoken.model: line 257: expected a token in base64, a space and a rank below 16777216";
  for (const std::string line :
       {"YWI=",      "YWI=256",   "YWI=  256", "YWI=\t256",  "YWI= 256 ",     "YWI= 256 1",
        "YWI= -1",   "YWI= +256", "YWI= 0256", "YWI= 0x100", "YWI= 16777216", "YWI= 99999999999999999999",
        "YWI= ",     " 256",      "= 256",     "==== 256",   "YWI 256",       "YW=I 256",
        "YWI== 256", "YW*= 256",  "YWJ= 256",  "YW-_ 256",   "YR== 256",      "\xFF\xFF\xFF\xFF 256"}) {
    RefusedFile(Load(good + line + "\n", Config()), expected);
  }
  RefusedFile(Load("{\"model\": 1}", Config()), "line 1: expected a token in base64");
}

TEST(TiktokenFile, TokensAndRanksOnceEach) {
  RefusedFile(Load(Model({"ab", "ab"}), Config()),
              "line 258: expected each token and each rank once, found the token of line 257 again");
  RefusedFile(Load(Model() + "YWI= 7\n", Config()),
              "line 257: expected each token and each rank once, found rank 7 of line 8 again");
  RefusedFile(Load(Model() + "YWI= 257\n", Config()), "expected the ranks 0 to 257, found none of 256");
  RefusedFile(Load(Model() + "YWI= 16777215\n", Config()), "expected the ranks 0 to 16777215, found none of 256");
  std::string reordered = Model({"ab"});
  reordered = reordered.substr(reordered.find('\n') + 1) + reordered.substr(0, reordered.find('\n') + 1);
  EXPECT_TRUE(Load(reordered, Config()).ok());
}

TEST(TiktokenFile, BytesAndLengths) {
  std::string model = Model();
  model.replace(0, model.find(' '), Base64("xy"));
  RefusedFile(Load(model, Config()),
              "/tiktoken.model: expected a token for each of the 256 bytes, found none for 0x00");
  RefusedFile(Load("", Config()), "for each of the 256 bytes");
  RefusedFile(Load(Model({std::string(5000, 'a')}), Config()),
              "expected tokens of at most 512 bytes, found one of 5000 with id 256");
}

// Whatever is cut off, the ids of the special tokens no longer follow the vocabulary.
TEST(TiktokenFile, TruncatedFiles) {
  const std::string model = Model({"ab", "abc"});
  const std::string config = Config(R"("258": {"content": "[BOS]"}, "513": {"content": "[PAD]"})");
  ASSERT_TRUE(Load(model, config).ok());
  for (std::size_t cut = 2; cut < model.size(); cut += 37) {
    EXPECT_FALSE(Load(model.substr(0, model.size() - cut), config).ok()) << cut;
  }
}

TEST(TiktokenFile, OtherClassesAreRefusedByName) {
  RefusedFile(Load(Model(), ""), "/tokenizer_config.json: tokenizer_class: expected \"TikTokenTokenizer\"");
  RefusedFile(Load(Model(), "{}"), "found nothing");
  RefusedFile(Load(Model(), R"({"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": {}})"),
              "found \"GPT2Tokenizer\"");
  RefusedFile(Load(Model(), R"({"tokenizer_class": 3})"), "found 3");
  RefusedFile(Load(Model(), "[]"), "tokenizer_class");
  RefusedFile(
      Load(Model(), Config({}, R"("auto_map": {"AutoTokenizer": ["tokenization_other.TikTokenTokenizer", null]}, )")),
      "auto_map.AutoTokenizer: expected tokenization_kimi.TikTokenTokenizer or "
      "tokenization_moonshot.TikTokenTokenizer, found \"tokenization_other.TikTokenTokenizer\"");
  RefusedFile(Load(Model(), Config({}, R"("auto_map": {"AutoTokenizer": ["../x.TikTokenTokenizer"]}, )")), "auto_map");
}

TEST(TiktokenFile, TheClasssOwnCodeHoldsThePattern) {
  const std::string mapped = Config({}, std::string(kMap) + ", ");
  std::string code =
      "pat_str = \"|\".join([\n"
      R"py(r"""[\p{Han}]+""",)py"
      "\n"
      R"py(r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",)py"
      "\n"
      R"py(r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",)py"
      "\n"
      R"py(r"""\p{N}{1,3}""", r""" ?[^\s\p{L}\p{N}]+[\r\n]*""", r"""\s*[\r\n]+""", r"""\s+(?!\S)""", r"""\s+"""])py";
  EXPECT_TRUE(Load(Model(), mapped, code).ok());
  const auto changed = [&](std::string_view from, std::string_view to) {
    std::string other = code;
    other.replace(other.find(from), from.size(), to);
    return Load(Model(), mapped, other);
  };
  const std::string begin = "/tokenization_kimi.py: expected the split pattern of Kimi K2, found ";
  RefusedFile(changed("{1,3}", "{1,2}"), begin + R"py(no "\\p{N}{1,3}" in its place)py");
  // One more in front of another, and behind the last; the last two in the other order; the last one missing.
  RefusedFile(changed(R"py(r"""\p{N})py", R"py(r"""x""", r"""\p{N})py"),
              begin + R"py(no "\\p{N}{1,3}" in its place)py");
  RefusedFile(changed(R"py(r"""\s+"""])py", R"py(r"""\s+""", r"""x"""])py"),
              begin + "more behind its last alternative");
  RefusedFile(changed(R"py(r"""\s+(?!\S)""", r"""\s+"""])py", R"py(r"""\s+""", r"""\s+(?!\S)"""])py"),
              begin + R"py(no "\\s+(?!\\S)" in its place)py");
  RefusedFile(changed(R"py(, r"""\s+"""])py", "])"), begin + R"py(no "\\s+" in its place)py");
}

TEST(TiktokenFile, SpecialTokensOfOtherForms) {
  const auto refused = [](std::string_view added, std::string_view expected) {
    RefusedFile(Load(Model(), Config(added)), expected);
  };
  refused(R"("255": {"content": "x"})", "added_tokens_decoder.255: expected an id from 256 to 513, the 258 after");
  refused(R"("514": {"content": "x"})", "added_tokens_decoder.514: expected an id");
  refused(R"("0256": {"content": "x"})", "added_tokens_decoder.0256: expected an id");
  refused(R"("x": {"content": "x"})", "added_tokens_decoder.x: expected an id");
  refused(R"("256": "x")", "added_tokens_decoder.256: expected an object");
  refused(R"("256": {})", "added_tokens_decoder.256.content: expected a string");
  refused(R"("256": {"content": ""})", "added_tokens_decoder.256.content: expected 1 to 4096 bytes");
  refused(R"("256": {"content": "x", "special": 1})", "added_tokens_decoder.256.special");
  refused(R"("256": {"content": "x"}, "257": {"content": "x"})", "found \"x\" and \"x\"");
  // tiktoken leaves open which of the two it takes.
  refused(R"("256": {"content": "xy"}, "257": {"content": "x"})",
          "expected no content that another begins with (tiktoken takes either), found \"x\" and \"xy\"");
  refused(R"("256": {"content": "<|reserved_token_300|>"})", "expected no content that another begins with");
  RefusedFile(Load(Model(), "{" + std::string(kClass) + "}"),
              "added_tokens_decoder: expected an object, found nothing");
  RefusedFile(Load(Model(), Config({}, R"("bos_token": "[BOS]", )")), "bos_token: expected a token of the vocabulary");
}

// Moonlight's class counts 258 special ids, Kimi's 256: the last two are there where the config names them.
TEST(TiktokenFile, TwoMoreSpecialIdsWhereTheyAreNamed) {
  EXPECT_EQ(Load(Model(), Config())->vocab_size(), 512);
  const auto named = Load(Model(), Config(R"("513": {"content": "[PAD]", "special": true})"));
  ASSERT_TRUE(named.ok()) << named.error().message;
  EXPECT_EQ(named->vocab_size(), 514);
  EXPECT_EQ(*named->Encode("[PAD]", kParse), (Ids{513}));
  EXPECT_TRUE(named->IsSpecial(513));
}

TEST(TiktokenFile, LongTextsOfOneKind) {
  const auto tokenizer = Tokenizer::Load(std::string(MLA_SOURCE_DIR) + "/tests/text/tiktoken");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  for (const std::string unit : {"a", "A", " ", "\u5b57", "\u3042", "\u0301"}) {
    std::string text;
    while (text.size() < std::size_t{1} << 20) text += unit;
    const auto ids = tokenizer->Encode(text);
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    ASSERT_EQ(tokenizer->Decode(*ids), text);
  }
}

TEST(TiktokenFile, OnlySentencepiecesFile) {
  const testing::TempDir dir;
  dir.Write("tokenizer.model", "\x0a\x0b");
  RefusedFile(
      Tokenizer::Load(dir.path()),
      "/tokenizer.model: expected a tokenizer.json or tiktoken.model beside it, found neither; transformers, with");
}

}  // namespace
}  // namespace mla
