#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "io/quote.h"
#include "mla/tokenizer.h"
#include "testing/temp_dir.h"
#include "text/small_tokenizer.h"

namespace mla {
namespace {

using Ids = std::vector<std::int32_t>;
using testing::Added;
using testing::SmallTokenizer;

// What a decoder sends for the ids; each part must be valid UTF-8.
std::string Stream(const Tokenizer& tokenizer, const Ids& ids, bool with_special = false) {
  StreamDecoder decoder(tokenizer, with_special);
  std::string text;
  const auto add = [&text](const std::string& part) {
    EXPECT_EQ(io::ValidUtf8Prefix(part), part.size()) << ::testing::PrintToString(part);
    text += part;
  };
  for (const std::int32_t id : ids) add(decoder.Push(id));
  add(decoder.Finish());
  EXPECT_EQ(decoder.Finish(), "");
  return text;
}

TEST(StreamDecoder, EveryWayToCutATextGivesTheText) {
  const std::string text = "a\u00e9\u5b57\U0001F44D";
  SmallTokenizer small;
  for (std::size_t begin = 0; begin < text.size(); ++begin) {
    for (std::size_t end = begin + 2; end <= text.size(); ++end) small.words.push_back(text.substr(begin, end - begin));
  }
  const auto tokenizer = small.Load();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto id_of = [&](std::size_t begin, std::size_t end) -> std::int32_t {
    if (end - begin == 1) return static_cast<unsigned char>(text[begin]);
    std::int32_t id = 256;
    while (tokenizer->TokenBytes(id) != text.substr(begin, end - begin)) ++id;
    return id;
  };
  for (unsigned cuts = 0; cuts < 1U << (text.size() - 1); ++cuts) {
    Ids ids;
    std::size_t begin = 0;
    for (std::size_t at = 1; at <= text.size(); ++at) {
      if (at < text.size() && (cuts >> (at - 1) & 1U) == 0) continue;
      ids.push_back(id_of(begin, at));
      begin = at;
    }
    ASSERT_EQ(tokenizer->Decode(ids), text);
    ASSERT_EQ(Stream(*tokenizer, ids), text) << cuts;
  }
}

TEST(StreamDecoder, ACharacterComesWithItsLastByte) {
  const auto tokenizer = SmallTokenizer{}.Load();
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.Push(0xF0), "");
  EXPECT_EQ(decoder.Push(0x9F), "");
  EXPECT_EQ(decoder.Push(0x91), "");
  EXPECT_EQ(decoder.Push(0x8D), "\U0001F44D");
  EXPECT_EQ(decoder.Push('a'), "a");
  EXPECT_EQ(decoder.Push(-1), "");
  EXPECT_EQ(decoder.Push(1 << 30), "");
  EXPECT_EQ(decoder.Finish(), "");
}

// The examples of the Unicode Standard, section 3.9 (tables 3-8 to 3-11), with x for U+FFFD.
TEST(StreamDecoder, BrokenBytesAsUnicodeRecommends) {
  const auto tokenizer = SmallTokenizer{}.Load();
  const auto decode = [&](const std::string& bytes) {
    Ids ids;
    for (const char byte : bytes) ids.push_back(static_cast<unsigned char>(byte));
    std::string text = Stream(*tokenizer, ids);
    for (std::size_t at = 0; (at = text.find("\uFFFD", at)) != std::string::npos;) text.replace(at, 3, "x");
    return text;
  };
  EXPECT_EQ(decode("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
                   "A"),
            "xxxxxxxxA");
  EXPECT_EQ(decode("\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
                   "A"),
            "xxxxxxxxA");
  EXPECT_EQ(decode("\xF4\x91\x92\x93\xFF"
                   "A\x80\xBF"
                   "B"),
            "xxxxxAxxB");
  EXPECT_EQ(decode("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                   "A"),
            "xxxxA");
  EXPECT_EQ(decode("\xE5\xAD"), "x");
  EXPECT_EQ(decode("\xE5\xAD\xE5"), "xx");
  EXPECT_EQ(decode("\xF0\x9F\x91\xE5\xAD\x97"), "x\u5b57");
}

TEST(StreamDecoder, ASpecialTokenEndsWhatWasBegun) {
  SmallTokenizer small;
  small.added = "[" + Added("<s>", 256, true) + ", " + Added("<t>", 257, false) + "]";
  const auto tokenizer = small.Load();
  EXPECT_EQ(Stream(*tokenizer, {'a', 256, 'b'}), "ab");
  EXPECT_EQ(Stream(*tokenizer, {'a', 256, 'b'}, true), "a<s>b");
  EXPECT_EQ(Stream(*tokenizer, {0xC3, 256, 0xA9}), "\uFFFD\uFFFD");
  EXPECT_EQ(Stream(*tokenizer, {0xC3, 256, 0xA9}, true), "\uFFFD<s>\uFFFD");
  EXPECT_EQ(Stream(*tokenizer, {0xC3, 257, 0xA9}), "\uFFFD<t>\uFFFD");
}

TEST(StreamDecoder, RandomIdsGiveValidText) {
  const auto tokenizer = Tokenizer::Load(testing::DemoDir());
  ASSERT_TRUE(tokenizer.ok());
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    Ids ids;
    for (unsigned n = random() % 30; n > 0; --n) ids.push_back(static_cast<std::int32_t>(random() % 300) - 2);
    const std::string streamed = Stream(*tokenizer, ids);
    const std::string whole = tokenizer->Decode(ids);
    if (io::ValidUtf8Prefix(whole) == whole.size() && streamed.find("\uFFFD") == std::string::npos) {
      ASSERT_EQ(streamed, whole);
    }
  }
}

TEST(Tokenizer, SeveralThreadsMayEncodeAtOnce) {
  const auto tokenizer = Tokenizer::Load(testing::DemoDir());
  ASSERT_TRUE(tokenizer.ok());
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += "The quick brown fox " + std::to_string(i * 7919) + "  <\uFF5CUser\uFF5C> \u4f60\u597d\n";
  const auto expected = tokenizer->Encode(text, Tokenizer::AddedTokens::kParse);
  ASSERT_TRUE(expected.ok());
  std::vector<std::thread> threads;
  std::vector<int> same(4, 0);
  for (std::size_t t = 0; t < same.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const auto ids = tokenizer->Encode(text, Tokenizer::AddedTokens::kParse);
        same[t] += ids.ok() && *ids == *expected && Stream(*tokenizer, *ids, true) == text ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<int>(4, 20));
}

}  // namespace
}  // namespace mla
