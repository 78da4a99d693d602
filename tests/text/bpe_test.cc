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
    std::vector<Bpe::Merge> merges;
    for (std::size_t i = 1 + below(30); i > 0; --i) {
      const Bpe::Merge merge = {words[below(words.size())], words[below(words.size())]};
      const std::string result = merge.first + merge.second;
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
  std::string half = "a";
  for (int i = 0; i < 10; ++i) {
    merges.emplace_back(half, half);
    half += half;
    words.push_back(half);
  }
  const auto bpe = Bpe::Make(Entries(words), merges, false, "test");
  ASSERT_TRUE(bpe.ok());
  const auto ids = Encode(*bpe, std::string(std::size_t{1} << 20, 'a'));
  EXPECT_EQ(ids, std::vector<std::int32_t>(1024, 265));
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
