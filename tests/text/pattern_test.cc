#include "text/pattern.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "text/regex.h"
#include "text/utf8.h"

namespace mla::text {
namespace {

// All matches, with '|' after each.
std::string Matches(std::string_view pattern, std::string_view text) {
  const auto pcre = TranslatePattern(pattern);
  if (!pcre.ok()) return "refused: " + pcre.error().message;
  const auto regex = Regex::Compile(*pcre, pattern);
  if (!regex.ok()) return "does not compile: " + regex.error().message;
  RegexMatcher matcher;
  matcher.StartText(text.size());
  std::string out;
  for (std::size_t from = 0; from <= text.size();) {
    const auto found = matcher.Find(*regex, text, from);
    if (!found.ok()) return "failed: " + found.error().message;
    if (!found->has_value()) break;
    out += std::string(text.substr((*found)->begin, (*found)->end - (*found)->begin)) + "|";
    from = std::max((*found)->end, from + ((*found)->begin == (*found)->end ? 1 : 0));
  }
  return out;
}

bool Contains(std::string_view set, char32_t c) {
  std::string text;
  AppendUtf8(c, text);
  return Matches(set, text) == text + "|";
}

// What Oniguruma, in Ruby's syntax, finds (tools/tokenizer_vectors.py --patterns compares many more).
TEST(Pattern, MeansWhatOnigurumaMeans) {
  EXPECT_EQ(Matches("\\s+$", "a  \n  \n b "), "  \n  | |");
  EXPECT_EQ(Matches("^.", "ab\ncd\n"), "a|c|");
  EXPECT_EQ(Matches("\\n^", "a\n"), "");  // no line begins at the end
  EXPECT_EQ(Matches("a$", "a\nba"), "a|a|");
  EXPECT_EQ(Matches("a{,2}b", "aaab"), "aab|");
  EXPECT_EQ(Matches("\\h+\\v", "fg1\v"), "1\v|");
  EXPECT_EQ(Matches("(?i:'s|'T)", "'s'S'\u017F't"), "'s|'S|'\u017F|'t|");
  EXPECT_EQ(Matches("(?i:k)", "kK\u212A"), "k|K|\u212A|");
  EXPECT_EQ(Matches("[^\\S\\n]+", " \t\n x"), " \t| |");
  EXPECT_EQ(Matches("[!-/:-~\\-\\]]+", "a!]-b"), "a!]-b|");
  EXPECT_EQ(Matches("[-a]+", "b-a"), "-a|");
  EXPECT_EQ(Matches("\\u0061\\x62\\x{63}", "abc"), "abc|");
  EXPECT_EQ(Matches("(ab|a)+?b", "aabb"), "aabb|");
  EXPECT_EQ(Matches("a.b", "a\nba\u00e9b"), "a\u00e9b|");
  EXPECT_EQ(Matches("\\p{^L}+", "a12b"), "12|");
}

TEST(Pattern, SpacesAreUnicodesWhiteSpace) {
  for (const char32_t c :
       {0x9, 0xA, 0xB, 0xC, 0xD, 0x20, 0x85, 0xA0, 0x1680, 0x2000, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}) {
    EXPECT_TRUE(Contains("\\s", c) && !Contains("\\S", c) && !Contains("[\\S]", c)) << static_cast<int>(c);
  }
  // PCRE2 takes U+180E for a space; the others are often taken for one.
  for (const char32_t c : {0x8, 0xE, 0x1C, 0x1D, 0x1E, 0x1F, 0x180E, 0x200B, 0x2060, 0xFEFF}) {
    EXPECT_TRUE(!Contains("\\s", c) && Contains("\\S", c) && Contains("[\\S]", c)) << static_cast<int>(c);
  }
}

TEST(Pattern, KnowsTheCharactersOfUnicode16) {
  EXPECT_TRUE(Contains("\\p{S}", 0x1FA77));   // pink heart, 15
  EXPECT_TRUE(Contains("\\p{So}", 0x1FAE9));  // face with bags under eyes, 16
  EXPECT_FALSE(Contains("[^\\p{S}]", 0x1FA77));
  EXPECT_FALSE(Contains("\\P{S}", 0x1FA77));
  EXPECT_TRUE(Contains("\\p{L}", 0x31350));  // CJK extension H, 15
  EXPECT_TRUE(Contains("\\p{Han}", 0x31350));
  EXPECT_TRUE(Contains("\\p{N}", 0x1E4F0));
  EXPECT_TRUE(Contains("\\d", 0x1E4F0));
  EXPECT_FALSE(Contains("\\p{N}", 0x1E4FA));  // nothing is there yet
  // A script, not its extensions: the ideographic comma is used with Han and belongs to none.
  EXPECT_FALSE(Contains("\\p{Han}", 0x3001));
}

// Each character of a text, asked by a set with && and by the two sides of it.
TEST(Pattern, IntersectionsOfSets) {
  const std::string text = "abcABC12 -\u00e9\u0301\u5b57\u3005\u3007\u02b0\u01c5&]";
  struct Case {
    std::string both;
    std::string first;
    std::string second;
    bool negated = false;
  };
  int members = 0;
  for (const Case& c : std::vector<Case>{{"[\\p{Lo}\\p{Lm}&&[^\\p{Han}]]", "[\\p{Lo}\\p{Lm}]", "[^\\p{Han}]"},
                                         {"[\\p{L}&&\\p{Han}]", "[\\p{L}]", "[\\p{Han}]"},
                                         {"[^\\p{L}&&[^a-c]]", "[\\p{L}]", "[^a-c]", true},
                                         {"[[^a]&&[a-c]]", "[^a]", "[a-c]"},
                                         {"[a-c&&b-z\\u00e9]", "[a-c]", "[b-z\\u00e9]"},
                                         {"[\\S&&[^\\p{L}]]", "[\\S]", "[^\\p{L}]"}}) {
    for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(NextUtf8(rest).bytes)) {
      const char32_t character = NextUtf8(rest).code_point;
      const bool expected = (Contains(c.first, character) && Contains(c.second, character)) != c.negated;
      EXPECT_EQ(Contains(c.both, character), expected) << c.both << " " << static_cast<unsigned>(character);
      members += expected ? 1 : 0;
    }
  }
  EXPECT_GT(members, 20);
  EXPECT_EQ(Matches("[\\p{L}&&[^\\p{Han}]]+", "ab\u5b57cd"), "ab|cd|");
  EXPECT_EQ(Matches("[a-c&&[^b]&&[^c]]{2}", "aabaca"), "aa|");
  EXPECT_EQ(Matches("[&a]+&&", "a&b&&"), "");
  EXPECT_EQ(Matches("[&a]+", "a&b"), "a&|");
}

TEST(Pattern, RefusesByNameWhatItCannotKeep) {
  for (const std::string pattern : {"\\w",
                                    "\\W",
                                    "\\b",
                                    "\\B",
                                    "\\G",
                                    "\\Z",
                                    "\\R",
                                    "\\X",
                                    "\\K",
                                    "\\1",
                                    "\\k<a>",
                                    "(?<a>b)",
                                    "(?i)a",
                                    "(?m:a)",
                                    "(?x:a)",
                                    "(?#a)",
                                    "(*UTF)a",
                                    "(?i:ss)",
                                    "(?i:fi)",
                                    "(?i:\u00e9)",
                                    "(?i:[a-z])",
                                    "(?i:[^a])",
                                    "(?i:a+)",
                                    "(?i:.)",
                                    "(?i:\\s)",
                                    "(?i:[\\s])",
                                    "[a[b]]",
                                    "[[:alpha:]]",
                                    "[a&&[:alpha:]]",
                                    "[[a]]",
                                    "[a&&]",
                                    "[&&a]",
                                    "[a&&[b]c]",
                                    "[a&&c[b]]",
                                    "[a&&[b&&c]]",
                                    "[a&&[b[c]]]",
                                    "[a&&-b]",
                                    "[!-&&b]",
                                    "(?i:[a&&b])",
                                    "[a&&b",
                                    "[a&&[b",
                                    "[]a]",
                                    "[a",
                                    "[",
                                    "[^",
                                    "[a-",
                                    "[b-a]",
                                    "[a-c-e]",
                                    "[\\s-z]",
                                    "[a-\\s]",
                                    "[\\P{L}]",
                                    "[\\b]",
                                    "[\\D]",
                                    "(a",
                                    "a)",
                                    "*a",
                                    "a|*",
                                    "a**",
                                    "a{2}?",
                                    "a{2}+",
                                    "a{2,1}",
                                    "a{x",
                                    "a{,}",
                                    "{",
                                    "(?=a)*",
                                    "^*",
                                    "$+",
                                    "\\A?",
                                    "\\p",
                                    "\\pL",
                                    "\\p{",
                                    "\\p{Mn}",
                                    "\\p{C}",
                                    "\\p{Klingon}",
                                    "\\",
                                    "\\x",
                                    "\\x{}",
                                    "\\x{110000}",
                                    "\\x{D800}",
                                    "\\xFF",
                                    "\\u12",
                                    "\\\u00e9"}) {
    const auto result = TranslatePattern(pattern);
    EXPECT_FALSE(result.ok()) << pattern << " became " << *result;
    if (result.ok()) continue;
    EXPECT_NE(result.error().message.find("not supported"), std::string::npos) << result.error().message;
  }
}

TEST(Pattern, RefusesWhatIsTooMuch) {
  EXPECT_FALSE(TranslatePattern(std::string(100'000, 'a')).ok());
  EXPECT_FALSE(TranslatePattern(std::string(30'000, '(') + std::string(30'000, ')')).ok());
  const std::string bomb = "(?:(?:(?:(?:a{1000}){1000}){1000}){1000})";
  const auto pcre = TranslatePattern(bomb);
  ASSERT_TRUE(pcre.ok());
  EXPECT_FALSE(Regex::Compile(*pcre, bomb).ok());
}

TEST(Pattern, ARunThatFailedOnceIsSkipped) {
  EXPECT_NE(TranslatePattern("\\s+$")->find("(*SKIP)"), std::string::npos);
  // Quadratic without the skip: half a million million steps.
  EXPECT_EQ(Matches("\\s+$", std::string(std::size_t{1} << 20, ' ') + "a"), "");
  // Where another alternative could match inside the run there is no skip.
  for (const std::string pattern : {"\\s+$|b", "b|\\s+$", "\\s+?$", "\\s++$", "(?:\\s+|b)$", "a\\s+$"}) {
    EXPECT_EQ(TranslatePattern(pattern)->find("(*SKIP)"), std::string::npos) << pattern;
  }
  EXPECT_EQ(Matches("[ab]+c", "abab abc"), "abc|");
  EXPECT_EQ(Matches("[ab]*c", "abab cabc"), "c|abc|");
  EXPECT_EQ(Matches("[ab]+(?<=b)c", "aac abc"), "abc|");
}

TEST(Pattern, TooManyStepsAreAnErrorNotAHang) {
  const std::string result = Matches("(?:a|a)+b(?=c)|(?:a|aa)+d", std::string(60, 'a') + "b");
  EXPECT_EQ(result.rfind("failed: the pattern", 0), 0U) << result;
  EXPECT_NE(result.find("limit"), std::string::npos) << result;
}

// Each costs the text's square or more: by scans alone, which no count of steps sees, by backtracking, by a few starts
// of a square each, in lookahead and lookbehind's company.
TEST(Pattern, ATextsCostIsBounded) {
  const std::string a(std::size_t{1} << 16, 'a');
  for (const std::string pattern :
       {"a*b|x", "(?:a|b)*c|x", "[a-z]+(?=[0-9])|x", "a*a*b", "(?<=a)a+b", "a+?b|x", "(?>a+)b|x", "x|a*\\z(?!.)y"}) {
    const std::string result = Matches(pattern, a);
    EXPECT_NE(result.find("the step limit of a text of 65536 bytes is spent"), std::string::npos)
        << pattern << ": " << result.substr(0, 200);
  }
}

// The text is searched in windows: whatever lies across their borders is found as in one piece. The oracle is the same
// text cut by hand.
TEST(Pattern, WindowsHideNothing) {
  for (std::size_t before = 240; before < 272; ++before) {
    const std::string head(before, 'x');
    EXPECT_EQ(Matches("\\d+", head + "12345 6"), "12345|6|");
    EXPECT_EQ(Matches("a*(?=b)|b", head + "aaab"), "aaa||") << before;
    EXPECT_EQ(Matches("ab\\z", head + "abab"), "ab|");
    EXPECT_EQ(Matches("ab$", head + "ab\nab"), "ab|ab|");
    EXPECT_EQ(Matches("(?<=x)\u00e9+", head + "\u00e9\u00e9 \u00e9"), "\u00e9\u00e9|");
    EXPECT_EQ(Matches("x+", head + head + "y" + head), head + head + "|" + head + "|");
    EXPECT_EQ(Matches("y?(?!x)z|z", head + "yzz"), "yz|z|");
    EXPECT_EQ(Matches("\\s+$", head + "  a  "), "  |");
  }
  // Empty matches, one at each place.
  EXPECT_EQ(Matches("y*", std::string(1000, 'x')), std::string(1001, '|'));
  const std::string spaces(1000, ' ');
  EXPECT_EQ(Matches("\\s+(?!\\S)|\\s+", spaces + "a"), std::string(999, ' ') + "| |");
  // A heavy start among light ones, each tried alone: found all the same.
  std::string heavy;
  for (int i = 0; i < 20; ++i) heavy += std::string(60, 'a') + "b ";
  std::string expected;
  for (int i = 0; i < 20; ++i) expected += std::string(60, 'a') + "b|";
  EXPECT_EQ(Matches("(?:a|b)*a(?:a|b)*b(?= )", heavy), expected);
}

TEST(Pattern, LongRepeatsOfGroupsMatch) {
  std::string text;
  for (int i = 0; i < (1 << 18); ++i) text += "abba";
  EXPECT_EQ(Matches("(?:ab|ba)+", text), text + "|");
  // Whatever can't be matched one by one in linear time is not tried again from every start.
  EXPECT_EQ(Matches("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", std::string(std::size_t{1} << 20, ' ') + "a"),
            std::string((std::size_t{1} << 20) - 1, ' ') + "| |");
}

}  // namespace
}  // namespace mla::text
