#include "text/utf8.h"

#include <array>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>

#include <gtest/gtest.h>

namespace mla::text {
namespace {

TEST(Utf8, EveryCodePointComesBack) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string bytes;
    AppendUtf8(c, bytes);
    const Utf8Step step = NextUtf8(bytes + "x");
    ASSERT_EQ(step.kind, Utf8Kind::kCharacter) << static_cast<std::uint32_t>(c);
    ASSERT_EQ(step.bytes, bytes.size());
    ASSERT_EQ(step.code_point, c);
  }
}

// By the definition: a character, or the longest front of one, or else a single byte.
TEST(Utf8, EverySequenceGroupsAsDefined) {
  std::unordered_set<std::string> whole;
  std::unordered_set<std::string> fronts;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string bytes;
    AppendUtf8(c, bytes);
    for (std::size_t n = 1; n < bytes.size(); ++n) fronts.insert(bytes.substr(0, n));
    whole.insert(std::move(bytes));
  }
  // Bytes on either side of every border that the tables of UTF-8 have.
  const std::array<int, 24> bytes = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2,
                                     0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF};
  const std::size_t n = bytes.size();
  for (std::size_t i = 0; i < n * n * n * n; ++i) {
    std::string text;
    for (std::size_t rest = i, k = 0; k < 4; ++k, rest /= n) text += static_cast<char>(bytes[rest % n]);
    Utf8Kind kind = Utf8Kind::kBroken;
    std::size_t size = 1;
    for (std::size_t k = 1; k <= 4; ++k) {
      if (fronts.count(text.substr(0, k)) != 0) size = k;
      if (whole.count(text.substr(0, k)) != 0) {
        kind = Utf8Kind::kCharacter;
        size = k;
        break;
      }
    }
    const Utf8Step step = NextUtf8(text);
    ASSERT_EQ(step.kind, kind) << ::testing::PrintToString(text);
    ASSERT_EQ(step.bytes, size) << ::testing::PrintToString(text);
  }
}

TEST(Utf8, WhatMayStillBecomeACharacterIsUnfinished) {
  for (const std::string text :
       {"\xC2", "\xE5", "\xE5\xAD", "\xF0", "\xF0\x9F", "\xF0\x9F\x91", "\xED\x9F", "\xF4\x8F\xBF"}) {
    const Utf8Step step = NextUtf8(text);
    EXPECT_EQ(step.kind, Utf8Kind::kUnfinished);
    EXPECT_EQ(step.bytes, text.size());
  }
  // Already broken, though short.
  for (const std::string text : {"\xC0", "\x80", "\xE0\x80", "\xED\xA0", "\xF4\x90", "\xF5"}) {
    EXPECT_EQ(NextUtf8(text).kind, Utf8Kind::kBroken);
    EXPECT_EQ(NextUtf8(text).bytes, 1U);
  }
}

}  // namespace
}  // namespace mla::text
