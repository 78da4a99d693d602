#include "text/bpe.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "text/small_tokenizer.h"

namespace mla::text {
namespace {

using Words = std::vector<std::string>;

std::vector<BpeEntry> Entries(const Words& words) {
  std::vector<BpeEntry> entries;
  entries.reserve(256 + words.size());
  for (int byte = 0; byte < 256; ++byte) entries.push_back({testing::ByteLetter(byte), byte});
  for (const std::string& word : words) entries.push_back({word, static_cast<std::int32_t>(entries.size())});
  return entries;
}

std::vector<std::int32_t> Encode(const Bpe& bpe, std::string_view word) {
  Bpe::Scratch scratch;
  std::vector<std::int32_t> ids;
  bpe.Encode(word, scratch, ids);
  return ids;
}

// The definition: again and again, the pair of the lowest rank, and of those the leftmost.
Words Slowly(const std::string& word, const std::map<Bpe::Merge, std::size_t>& ranks) {
  Words parts;
  for (const char c : word) parts.emplace_back(1, c);
  while (true) {
    std::size_t best = ranks.size() + 1000;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find({parts[i], parts[i + 1]});
      if (found != ranks.end() && found->second < best) {
        best = found->second;
        at = i;
      }
    }
    if (best == ranks.size() + 1000) return parts;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(Bpe, AgreesWithTheDefinitionOnRandomVocabularies) {
  std::mt19937 random(1);
  const auto below = [&random](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  int merged = 0;
  for (int round = 0; round < 200; ++round) {
    Words words = {"a", "b", "c"};
    words.reserve(40);  // merges point at them
    std::vector<Bpe::Merge> merges;
    for (std::size_t i = 1 + below(30); i > 0; --i) {
      const Bpe::Merge merge = {words[below(words.size())], words[below(words.size())]};
      const std::string result = std::string(merge.first).append(merge.second);
      if (result.size() > 8) continue;
      merges.push_back(merge);
      if (std::find(words.begin(), words.end(), result) == words.end()) words.push_back(result);
    }
    std::shuffle(merges.begin(), merges.end(), random);
    std::map<Bpe::Merge, std::size_t> ranks;
    for (std::size_t i = 0; i < merges.size(); ++i) ranks[merges[i]] = i;  // of a doubled one, the later
    const auto bpe = Bpe::Make(Entries(Words(words.begin() + 3, words.end())), merges, false, "test");
    ASSERT_TRUE(bpe.ok()) << bpe.error().message;
    for (int i = 0; i < 50; ++i) {
      std::string word;
      for (std::size_t n = 1 + below(40); n > 0; --n) word += static_cast<char>('a' + below(3));
      std::vector<std::int32_t> expected;
      for (const std::string& part : Slowly(word, ranks)) expected.push_back(bpe->Find(part));
      ASSERT_EQ(Encode(*bpe, word), expected) << word;
      merged += expected.size() < word.size() ? 1 : 0;
    }
  }
  EXPECT_GT(merged, 5000);  // else nothing was tested
}

TEST(Bpe, WholeWordsComeBeforeMerges) {
  const std::vector<Bpe::Merge> merges = {{"a", "b"}};
  const auto with = Bpe::Make(Entries({"ab", "abc", "abcd"}), merges, true, "test");
  const auto without = Bpe::Make(Entries({"ab", "abc", "abcd"}), merges, false, "test");
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_EQ(Encode(*with, "abc"), (std::vector<std::int32_t>{257}));
  EXPECT_EQ(Encode(*without, "abc"), (std::vector<std::int32_t>{256, 'c'}));
  EXPECT_EQ(Encode(*with, "abcc"), (std::vector<std::int32_t>{256, 'c', 'c'}));
}

TEST(Bpe, AWordOfAMegabyteMergesToTheEnd) {
  Words words;
  std::vector<Bpe::Merge> merges;
  const std::string longest(1024, 'a');
  for (std::size_t half = 1; half < longest.size(); half *= 2) {
    const auto part = std::string_view(longest).substr(0, half);
    merges.emplace_back(part, part);
    words.push_back(longest.substr(0, 2 * half));
  }
  const auto bpe = Bpe::Make(Entries(words), merges, false, "test");
  ASSERT_TRUE(bpe.ok());
  const auto ids = Encode(*bpe, std::string(std::size_t{1} << 20, 'a'));
  EXPECT_EQ(ids, std::vector<std::int32_t>(1024, 265));
}

// All bytes in a random order among the words: ids are ranks.
std::vector<BpeEntry> Ranked(Words words, std::mt19937& random) {
  for (int byte = 0; byte < 256; ++byte) words.emplace_back(1, static_cast<char>(byte));
  std::shuffle(words.begin(), words.end(), random);
  std::vector<BpeEntry> entries;
  for (const std::string& word : words) entries.push_back({word, static_cast<std::int32_t>(entries.size())});
  return entries;
}

// tiktoken's rule: of all neighbours whose concatenation is a token, the lowest rank, and of those the leftmost.
std::vector<std::int32_t> RankedSlowly(const std::string& word, const std::map<std::string, std::int32_t>& ranks) {
  if (const auto whole = ranks.find(word); whole != ranks.end()) return {whole->second};
  Words parts;
  for (const char c : word) parts.emplace_back(1, c);
  while (true) {
    std::int32_t best = -1;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + parts[i + 1]);
      if (found == ranks.end() || (best >= 0 && found->second >= best)) continue;
      best = found->second;
      at = i;
    }
    if (best < 0) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  std::vector<std::int32_t> ids;
  for (const std::string& part : parts) ids.push_back(ranks.at(part));
  return ids;
}

TEST(Bpe, RankedAgreesWithTheDefinitionOnRandomVocabularies) {
  std::mt19937 random(2);
  int merged = 0;
  int whole = 0;
  for (int round = 0; round < 200; ++round) {
    std::map<std::string, std::int32_t> ranks;
    Words words;
    for (unsigned n = random() % 40; n > 0; --n) {
      std::string word;
      for (unsigned m = 2 + random() % 6; m > 0; --m) word += static_cast<char>('a' + random() % 3);
      if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
    }
    const std::vector<BpeEntry> entries = Ranked(words, random);
    for (const BpeEntry& entry : entries) ranks[entry.token] = entry.id;
    const auto bpe = Bpe::MakeRanked(entries, "test");
    ASSERT_TRUE(bpe.ok()) << bpe.error().message;
    for (int i = 0; i < 60; ++i) {
      std::string word;
      for (unsigned n = 1 + random() % 40; n > 0; --n) word += static_cast<char>('a' + random() % 3);
      if (i < 20 && !words.empty()) word = words[random() % words.size()];
      const std::vector<std::int32_t> expected = RankedSlowly(word, ranks);
      ASSERT_EQ(Encode(*bpe, word), expected) << word;
      merged += expected.size() > 1 && expected.size() < word.size() ? 1 : 0;
      whole += expected.size() == 1 ? 1 : 0;
    }
  }
  EXPECT_GT(merged, 3000);
  EXPECT_GT(whole, 1000);
}

TEST(Bpe, RankedWordOfAMegabyteMergesToTheEnd) {
  std::mt19937 random(3);
  Words words;
  for (std::string half = "aa"; half.size() <= 512; half += half) words.push_back(half);
  std::vector<BpeEntry> entries = Ranked({}, random);
  for (const std::string& word : words) entries.push_back({word, static_cast<std::int32_t>(entries.size())});
  const auto bpe = Bpe::MakeRanked(entries, "test");
  ASSERT_TRUE(bpe.ok());
  EXPECT_EQ(Encode(*bpe, std::string(std::size_t{1} << 20, 'a')), std::vector<std::int32_t>(2048, 264));
}

TEST(Bpe, RankedRefusals) {
  std::mt19937 random(4);
  const auto message = [](std::vector<BpeEntry> entries) {
    const auto bpe = Bpe::MakeRanked(std::move(entries), "F");
    return bpe.ok() ? std::string("accepted") : bpe.error().message;
  };
  std::vector<BpeEntry> entries = Ranked({std::string(Bpe::kLongestRanked, 'a')}, random);
  EXPECT_EQ(message(entries), "accepted");
  EXPECT_EQ(message(Ranked({std::string(Bpe::kLongestRanked + 1, 'a')}, random))
                .rfind("F: expected tokens of at most 512 bytes, found one of 513", 0),
            0U);
  const auto last = std::find_if(entries.begin(), entries.end(), [](const BpeEntry& e) { return e.token == "\x7F"; });
  last->token = "\x7F\x7F";
  EXPECT_EQ(message(entries), "F: expected a token for each of the 256 bytes, found none for 0x7f");
}

// Ids are places in `words`.
Result<Bpe> OfCharacters(const Words& words, const std::vector<Bpe::Merge>& merges,
                         const Bpe::UnknownCharacters& unknown, bool whole_words = false) {
  std::vector<BpeEntry> entries;
  for (const std::string& word : words) entries.push_back({word, static_cast<std::int32_t>(entries.size())});
  return Bpe::MakeOfCharacters(std::move(entries), merges, whole_words, unknown, "F");
}

// The entries of a word, with '|' after each.
std::string Parts(const Result<Bpe>& bpe, const Words& words, std::string_view word) {
  EXPECT_TRUE(bpe.ok()) << bpe.error().message;
  if (!bpe.ok()) return "";
  std::string parts;
  for (const std::int32_t id : Encode(*bpe, word)) parts += words[static_cast<std::size_t>(id)] + "|";
  return parts;
}

TEST(Bpe, UnknownCharactersBecomeBytesOrTheUnknownToken) {
  const Words words = {"a", "b", "ab", "<unk>", "<0xC3>", "<0xA9>", "<unk>a", "<0xC3><0xA9>", "\u5b57"};
  const std::vector<Bpe::Merge> merges = {{"a", "b"}, {"<0xC3>", "<0xA9>"}, {"<unk>", "a"}};
  const std::string text = "ab\u00e9\u0416\u0416\u5b57";
  EXPECT_EQ(Parts(OfCharacters(words, merges, {true, "<unk>", true}), words, text), "ab|<0xC3><0xA9>|<unk>|\u5b57|");
  EXPECT_EQ(Parts(OfCharacters(words, merges, {true, "<unk>", false}), words, text),
            "ab|<0xC3><0xA9>|<unk>|<unk>|\u5b57|");
  EXPECT_EQ(Parts(OfCharacters(words, merges, {false, "<unk>", true}), words, text), "ab|<unk>|\u5b57|");
  EXPECT_EQ(Parts(OfCharacters(words, merges, {false, "<unk>", true}), words, "\u0416ab"), "<unk>|ab|");
  EXPECT_EQ(Parts(OfCharacters(words, merges, {false, "<unk>", true}), words, "\u0416aa"), "<unk>a|a|");
  // As the tokenizers library does: bytes overtake an unknown token that waits for its neighbours.
  EXPECT_EQ(Parts(OfCharacters(words, merges, {true, "<unk>", true}), words, "\u0416\u00e9b"), "<0xC3><0xA9>|<unk>|b|");
}

TEST(Bpe, EveryCharacterNeedsAnEntry) {
  Words words = {"a"};
  const auto message = [&](const Bpe::UnknownCharacters& unknown) {
    const auto bpe = OfCharacters(words, {}, unknown);
    return bpe.ok() ? std::string("accepted") : bpe.error().message;
  };
  EXPECT_EQ(message({false, "", false}),
            "F: model: expected an unk_token, or byte_fallback with all of <0x00> to <0xFF> in the vocabulary, found "
            "neither");
  EXPECT_EQ(message({false, "<unk>", false}),
            "F: model.unk_token: expected a token of the vocabulary, found \"<unk>\"");
  for (int byte = 0; byte < 256; ++byte) {
    if (byte == 0xAB) {
      EXPECT_NE(message({true, "", false}).find("found 85 of them missing"), std::string::npos);
    }
    const std::string digits = "0123456789ABCDEF";
    words.push_back(
        {'<', '0', 'x', digits[static_cast<std::size_t>(byte / 16)], digits[static_cast<std::size_t>(byte % 16)], '>'});
  }
  EXPECT_EQ(message({true, "", false}), "accepted");
  EXPECT_EQ(Parts(OfCharacters(words, {}, {true, "", false}), words, "a\n\u5b57"), "a|<0x0A>|<0xE5>|<0xAD>|<0x97>|");
}

TEST(Bpe, WordsOfCharactersAsAWhole) {
  const Words words = {"a", "b", "c", "ab", "abc", "<unk>"};
  auto bpe = OfCharacters(words, {{"a", "b"}}, {false, "<unk>", false}, true);
  EXPECT_EQ(Parts(bpe, words, "abc"), "abc|");
  bpe->KeepOutOfText({4});
  EXPECT_EQ(Parts(bpe, words, "abc"), "ab|c|");
  bpe->KeepOutOfText({3});
  EXPECT_EQ(Parts(bpe, words, "abab"), "a|b|a|b|");
}

// A text without spaces is one word there.
TEST(Bpe, AWordOfAMegabyteOfCharacters) {
  Words words = {"\u5b57", "\u6f22", "\u5b57\u6f22", "<unk>"};
  std::vector<Bpe::Merge> merges = {{words[0], words[1]}};
  std::string text;
  for (int i = 0; i < 1 << 18; ++i) text += words[2];
  const auto bpe = OfCharacters(words, merges, {false, "<unk>", false});
  ASSERT_TRUE(bpe.ok());
  EXPECT_EQ(Encode(*bpe, text), std::vector<std::int32_t>(1 << 18, 2));
}

TEST(Bpe, RefusesMergesOutsideTheVocabulary) {
  const auto message = [](const std::vector<Bpe::Merge>& merges) {
    const auto bpe = Bpe::Make(Entries({"ab", "cd"}), merges, false, "F");
    return bpe.ok() ? std::string("accepted") : bpe.error().message;
  };
  EXPECT_EQ(message({{"a", "b"}}), "accepted");
  EXPECT_NE(message({{"a", "b"}, {"xy", "a"}})
                .find("F: model.merges[1]: expected both parts and the result in the vocabulary, found no \"xy\""),
            std::string::npos);
  EXPECT_NE(message({{"a", "xy"}}).find("found no \"xy\""), std::string::npos);
  EXPECT_NE(message({{"ab", "cd"}}).find("found no \"abcd\""), std::string::npos);
  EXPECT_NE(message({{"", "ab"}}).find("found no \"\""), std::string::npos);
}

TEST(Bpe, RefusesAVocabularyWithoutAByte) {
  for (const std::size_t byte : {std::size_t{0}, std::size_t{'a'}, std::size_t{' '}, std::size_t{255}}) {
    std::vector<BpeEntry> entries = Entries({});
    entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(byte));
    const auto bpe = Bpe::Make(std::move(entries), {}, false, "F");
    ASSERT_FALSE(bpe.ok());
    EXPECT_NE(bpe.error().message.find("F: model.vocab: expected all 256 characters"), std::string::npos);
  }
}

}  // namespace
}  // namespace mla::text
