#include "text/added_tokens.h"

#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "text/normalizer.h"

namespace mla::text {
namespace {

std::vector<AddedToken> Tokens(const std::set<std::string>& contents) {
  std::vector<AddedToken> tokens;
  for (const std::string& content : contents) tokens.push_back({content, static_cast<std::int32_t>(tokens.size())});
  return tokens;
}

// What each byte of a text becomes, worked out byte by byte: a range of the result is what its own bytes became, with
// the replaced parts that it holds whole. A prefix goes with the first character.
TEST(AddedTokens, RangesGoThroughANormalizerAsTheirBytesDo) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    const Replacement step{std::string(1 + random() % 3, 'a'), std::string(random() % 4, 'X')};
    Normalizer normalizer;
    normalizer.AddReplace(step);
    normalizer.AddPrepend("__");
    std::string text;
    for (unsigned m = 1 + random() % 12; m > 0; --m) text += "ab"[random() % 2];
    TextRange range{random() % (text.size() + 1), 0};
    range.end = range.begin + random() % (text.size() + 1 - range.begin);
    std::string expected;  // a byte for each of the result: in the range or not
    for (std::size_t at = 0; at < text.size();) {
      const bool replaced = text.compare(at, step.from.size(), step.from) == 0;
      const std::size_t bytes = replaced ? step.from.size() : 1;
      const bool within = range.begin <= at && at + bytes <= range.end;
      expected += std::string(replaced ? step.to.size() : 1, within ? '1' : '0');
      at += bytes;
    }
    std::vector<TextRange> ranges = {range};
    const auto result = normalizer.Apply(text, &ranges);
    ASSERT_TRUE(result.ok());
    std::string found(result->size(), '0');
    for (const TextRange& r : ranges) found.replace(r.begin, r.end - r.begin, r.end - r.begin, '1');
    EXPECT_EQ(found, expected.empty() ? "" : std::string(2, expected[0]) + expected)
        << text << " " << range.begin << " " << range.end;
  }
}

TEST(AddedTokens, LeftmostThenLongestAgainstATrialOfEveryPlace) {
  std::mt19937 random(2);
  int found_some = 0;
  for (int round = 0; round < 3000; ++round) {
    std::set<std::string> contents;
    for (unsigned n = random() % 8; n > 0; --n) {
      std::string content;
      for (unsigned m = 1 + random() % 5; m > 0; --m) content += "ab\xC3"[random() % 3];
      contents.insert(content);
    }
    const std::vector<AddedToken> tokens = Tokens(contents);
    const AddedTokenFinder finder(tokens);
    std::string text;
    for (unsigned m = random() % 20; m > 0; --m) text += "ab\xC3"[random() % 3];
    const std::size_t from = random() % (text.size() + 1);
    const AddedToken* best = nullptr;
    std::size_t at = from;
    for (; at < text.size() && best == nullptr; ++at) {
      for (const AddedToken& token : tokens) {
        const bool here = text.compare(at, token.content.size(), token.content) == 0;
        if (here && (best == nullptr || token.content.size() > best->content.size())) best = &token;
      }
    }
    const auto found = finder.Find(text, from);
    ASSERT_EQ(found.has_value(), best != nullptr);
    if (best == nullptr) continue;
    ++found_some;
    EXPECT_EQ(found->begin, at - 1);
    EXPECT_EQ(found->end, at - 1 + best->content.size());
    EXPECT_EQ(found->id, best->id);
  }
  EXPECT_GT(found_some, 1000);
}

}  // namespace
}  // namespace mla::text
