#include "text/added_tokens.h"

#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace mla::text {
namespace {

std::vector<AddedToken> Tokens(const std::set<std::string>& contents) {
  std::vector<AddedToken> tokens;
  for (const std::string& content : contents) tokens.push_back({content, static_cast<std::int32_t>(tokens.size())});
  return tokens;
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
