#include "text/pattern.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "io/quote.h"
#include "text/unicode_later.h"
#include "text/utf8.h"

namespace mla::text {
namespace {

constexpr int kMaxDepth = 100;
constexpr std::size_t kMaxPatternBytes = 64 << 10;

// Unicode's White_Space, which is what \s means; and all that it is not.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNoSpaces =
    R"(\x{0}-\x{8}\x{E}-\x{1F}\x{21}-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027})"
    R"(\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";

// General categories whose members of Unicode 14 all kept theirs (Mn lost one; C holds what is not assigned yet).
constexpr std::array<std::string_view, 33> kCategories = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mc", "Me", "N", "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"};
constexpr std::array<std::string_view, 4> kScripts = {"Han", "Hiragana", "Katakana", "Hangul"};

std::string CodePoint(char32_t c) { return fmt::format("\\x{{{:X}}}", static_cast<std::uint32_t>(c)); }

bool IsLetter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsDigit(char32_t c) { return c >= '0' && c <= '9'; }

// The inside of a set for a property's name, or nothing where the name is not known.
std::optional<std::string> PropertySet(std::string_view name) {
  const bool script = std::find(kScripts.begin(), kScripts.end(), name) != kScripts.end();
  if (!script && std::find(kCategories.begin(), kCategories.end(), name) == kCategories.end()) return std::nullopt;
  // A script's bare name would mean its extensions, in PCRE2.
  std::string set = fmt::format("\\p{{{}{}}}", script ? "sc:" : "", name);
  for (const LaterRange& later : LaterRanges()) {
    const bool member =
        later.property == name || (name.size() == 1 && later.property.size() == 2 && later.property.starts_with(name));
    if (member) set += CodePoint(later.first) + "-" + CodePoint(later.last);
  }
  return set;
}

// The inside of a set for what `c` matches without regard to case. Three letters have a third form in Unicode.
std::string Folded(char32_t c) {
  if (!IsLetter(c)) return CodePoint(c);
  const char32_t lower = c | 0x20;
  std::string set = CodePoint(lower) + CodePoint(lower & ~char32_t{0x20});
  if (lower == 's') set += CodePoint(0x17F);
  if (lower == 'k') set += CodePoint(0x212A);
  return set;
}

// What an escape stands for: one code point, or a set (its inside, negated or not).
struct Escape {
  bool is_set = false;
  char32_t code_point = 0;
  std::string set;
  bool negated = false;
};

// One side of && in a set, or a set without &&.
struct SetOperand {
  std::string inside;
  bool negated = false;
  bool nested = false;  // it was written as a set of its own

  std::string Text() const { return (negated ? "[^" : "[") + inside + "]"; }
};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> Run() {
    if (pattern_.size() > kMaxPatternBytes) {
      return Error{fmt::format("expected at most {} bytes, found {}", kMaxPatternBytes, pattern_.size())};
    }
    MLA_RETURN_IF_ERROR(Alternatives(0, false));
    if (!AtEnd()) return Fail("a ')' without its '('");
    if (alternatives_ == 1 && !first_run_.empty()) return "(?:" + out_ + ")|" + first_run_ + "++(?C1)(*SKIP)(*FAIL)";
    return std::move(out_);
  }

 private:
  bool AtEnd() const { return at_ == pattern_.size(); }
  bool Sees(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool Take(std::string_view text) {
    if (!Sees(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t Next() {
    const Utf8Step step = NextUtf8(pattern_.substr(at_));
    at_ += step.bytes;
    return step.code_point;
  }
  Error Fail(std::string_view what) const { return Error{fmt::format("at byte {}: not supported: {}", at_, what)}; }

  Status Alternatives(int depth, bool fold);
  Status Atom(int depth, bool fold);
  Status Group(int depth, bool fold);
  Status Literal(char32_t c, bool fold);
  Status Set(bool fold);
  Status NestedSet(SetOperand& operand);
  void Intersect(bool negated, const std::vector<SetOperand>& operands);
  Status SetItem(bool fold, std::string& set);
  Status Quantifier(bool fold);
  Status Interval();
  Result<std::optional<char32_t>> SetCodePoint(std::string& set);
  Result<Escape> ParseEscape();
  Result<Escape> ParseProperty(bool negated);
  Result<char32_t> ParseHex(std::size_t min_digits, std::size_t max_digits);

  std::string_view pattern_;
  std::size_t at_ = 0;
  std::string out_;
  bool repeatable_ = false;   // the last atom may have a quantifier
  bool last_is_set_ = false;  // ... and was a set, which begins at last_begin_ of out_
  std::size_t last_begin_ = 0;
  char32_t folded_ = 0;    // the letter just before, in (?i:...), in lower case
  int alternatives_ = 1;   // of the whole pattern
  std::string first_run_;  // the set C of a pattern that begins C+ or C*
};

Status Translator::Alternatives(int depth, bool fold) {
  if (depth > kMaxDepth) return Fail(fmt::format("groups nested deeper than {}", kMaxDepth));
  bool first = depth == 0;
  while (!AtEnd() && !Sees(")")) {
    if (Take("|")) {
      out_ += '|';
      folded_ = 0;
      first = false;
      if (depth == 0) ++alternatives_;
      continue;
    }
    MLA_RETURN_IF_ERROR(Atom(depth, fold));
    const std::size_t end = out_.size();
    const std::size_t begin = last_begin_;
    const bool is_set = last_is_set_;
    const bool run = Sees("+") || Sees("*");
    MLA_RETURN_IF_ERROR(Quantifier(fold));
    // Greedy: nothing follows the '+' or '*'.
    if (first && is_set && run && out_.size() == end + 1) first_run_ = out_.substr(begin, end - begin);
    first = false;
  }
  return {};
}

Status Translator::Atom(int depth, bool fold) {
  last_begin_ = out_.size();
  last_is_set_ = false;
  repeatable_ = true;
  if (Sees("[")) return Set(fold);
  if (Sees("(")) return Group(depth, fold);
  if (Sees("\\")) {
    if (Take("\\A")) {
      out_ += "\\A";
    } else if (Take("\\z")) {
      out_ += "\\z";
    } else {
      MLA_ASSIGN_OR_RETURN(const Escape escape, ParseEscape());
      if (!escape.is_set) return Literal(escape.code_point, fold);
      if (fold) return Fail("a set's escape inside (?i:...)");
      out_ += (escape.negated ? "[^" : "[") + escape.set + "]";
      last_is_set_ = true;
      return {};
    }
    repeatable_ = false;
    return {};
  }
  const std::string_view special = "*+?{";
  if (special.find(pattern_[at_]) != std::string_view::npos)
    return Fail("a quantifier with nothing to repeat, or a '{' without a backslash");
  if (Take("^")) {
    out_ += "(?:(?<=\\n)(?!\\z)|\\A)";
    repeatable_ = false;
  } else if (Take("$")) {
    out_ += "(?=\\n|\\z)";
    repeatable_ = false;
  } else if (Take(".")) {
    if (fold) return Fail("'.' inside (?i:...)");
    out_ += "[^\\n]";
    last_is_set_ = true;
  } else {
    return Literal(Next(), fold);
  }
  return {};
}

Status Translator::Literal(char32_t c, bool fold) {
  if (!fold) {
    out_ += IsLetter(c) || IsDigit(c) ? std::string(1, static_cast<char>(c)) : CodePoint(c);
    return {};
  }
  if (c >= 0x80) return Fail("a character beyond ASCII inside (?i:...)");
  // Unicode folds single characters to these pairs (sharp s and the f and st ligatures), and Oniguruma follows it.
  const char32_t lower = IsLetter(c) ? (c | 0x20) : c;
  const bool pair = (folded_ == 's' && (lower == 's' || lower == 't')) ||
                    (folded_ == 'f' && (lower == 'f' || lower == 'i' || lower == 'l'));
  if (pair) return Fail("ss, st, ff, fi or fl inside (?i:...)");
  folded_ = lower;
  out_ += "[" + Folded(c) + "]";
  return {};
}

Status Translator::Group(int depth, bool fold) {
  static constexpr std::array<std::string_view, 6> kOpenings = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
  const auto* opening =
      std::find_if(kOpenings.begin(), kOpenings.end(), [this](std::string_view o) { return Sees(o); });
  bool inner_fold = fold;
  bool looks = false;
  if (Take("(?i:")) {
    out_ += "(?:";
    inner_fold = true;
  } else if (opening != kOpenings.end()) {
    Take(*opening);
    out_ += *opening;
    looks = *opening != "(?:" && *opening != "(?>";
  } else if (Sees("(?") || Sees("(*")) {
    return Fail("a group that begins " + io::Quoted(pattern_.substr(at_, 3)));
  } else {
    Take("(");
    out_ += "(?:";  // captures are never read
  }
  folded_ = 0;
  const std::size_t begin = last_begin_;
  MLA_RETURN_IF_ERROR(Alternatives(depth + 1, inner_fold));
  if (!Take(")")) return Fail("a '(' without its ')'");
  out_ += ')';
  folded_ = 0;
  last_begin_ = begin;
  last_is_set_ = false;
  repeatable_ = !looks;
  return {};
}

Status Translator::Quantifier(bool fold) {
  if (AtEnd() || std::string_view("*+?{").find(pattern_[at_]) == std::string_view::npos) return {};
  if (!repeatable_) return Fail("a quantifier on an assertion");
  if (fold) return Fail("a quantifier inside (?i:...)");
  if (Sees("{")) {
    MLA_RETURN_IF_ERROR(Interval());
    if (Sees("+") || Sees("?")) return Fail("'+' or '?' after {n,m}");
  } else {
    out_ += pattern_[at_++];
    if (Sees("+") || Sees("?")) out_ += pattern_[at_++];  // possessive and lazy, the same in both
  }
  if (Sees("*") || Sees("+") || Sees("?") || Sees("{")) return Fail("a quantifier on a quantifier");
  return {};
}

Status Translator::Interval() {
  const auto number = [this]() -> std::optional<int> {
    std::optional<int> value;
    while (!AtEnd() && IsDigit(static_cast<unsigned char>(pattern_[at_])) && value.value_or(0) < 100000) {
      value = value.value_or(0) * 10 + (pattern_[at_++] - '0');
    }
    return value;
  };
  Take("{");
  const std::optional<int> low = number();
  const bool comma = Take(",");
  const std::optional<int> high = comma ? number() : low;
  if (!Take("}") || (!low && !high)) return Fail("a '{' that begins no {n}, {n,}, {,m} or {n,m}");
  if (low && high && *low > *high) return Fail("{n,m} with n > m");
  out_ += fmt::format("{{{}", low.value_or(0));
  if (comma) out_ += high ? fmt::format(",{}", *high) : ",";
  out_ += '}';
  return {};
}

Status Translator::Set(bool fold) {
  Take("[");
  const bool negated = Take("^");
  if (fold && negated) return Fail("a negated set inside (?i:...)");
  if (Sees("]")) return Fail("a set that begins with ']'");
  std::vector<SetOperand> operands(1);
  while (!Sees("]")) {
    if (AtEnd()) return Fail("a '[' without its ']'");
    SetOperand& operand = operands.back();
    if (Sees("&&")) {
      if (fold) return Fail("&& inside (?i:...)");
      if (operand.inside.empty()) return Fail("&& with nothing before it");
      Take("&&");
      operands.emplace_back();
    } else if (operand.nested || (Sees("[") && !operand.inside.empty())) {
      return Fail("a set inside a set beside other characters, or a '[' in a set without a backslash");
    } else if (Sees("[")) {
      MLA_RETURN_IF_ERROR(NestedSet(operand));
    } else {
      if (Sees("-") && operands.size() > 1 && operand.inside.empty()) return Fail("a '-' right after &&");
      MLA_RETURN_IF_ERROR(SetItem(fold, operand.inside));
    }
  }
  if (operands.back().inside.empty()) return Fail("&& with nothing after it");
  Take("]");
  folded_ = 0;
  if (operands.size() > 1) {
    Intersect(negated, operands);
    return {};
  }
  if (operands[0].nested) return Fail("a set inside a set, without &&");
  out_ += SetOperand{operands[0].inside, negated}.Text();
  last_is_set_ = true;
  return {};
}

// A side of &&.
Status Translator::NestedSet(SetOperand& operand) {
  Take("[");
  if (Sees(":")) return Fail("a set that begins with [:");
  operand.nested = true;
  operand.negated = Take("^");
  if (Sees("]")) return Fail("a set that begins with ']'");
  while (!Take("]")) {
    if (AtEnd()) return Fail("a '[' without its ']'");
    if (Sees("[") || Sees("&&")) return Fail("a set in a set in a set, or && in a set in a set");
    MLA_RETURN_IF_ERROR(SetItem(false, operand.inside));
  }
  return {};
}

// PCRE2 knows no &&: each side but one becomes an assertion. The '^' of the whole set binds last.
void Translator::Intersect(bool negated, const std::vector<SetOperand>& operands) {
  std::string both;
  for (std::size_t i = 1; i < operands.size(); ++i) {
    both += (operands[i].negated ? "(?![" : "(?=[") + operands[i].inside + "])";
  }
  both += operands[0].Text();
  out_ += negated ? "(?:(?!" + both + ")[\\x{0}-\\x{10FFFF}])" : "(?:" + both + ")";
}

// A single code point, or nothing where the item was a set of its own, which is appended.
Result<std::optional<char32_t>> Translator::SetCodePoint(std::string& set) {
  if (!Sees("\\")) return std::optional<char32_t>(Next());
  MLA_ASSIGN_OR_RETURN(const Escape escape, ParseEscape());
  if (!escape.is_set) return std::optional<char32_t>(escape.code_point);
  if (!escape.negated) {
    set += escape.set;
  } else if (escape.set == kSpaces) {
    set += kNoSpaces;
  } else {
    return Fail("a negated escape in a set");
  }
  return std::optional<char32_t>();
}

Status Translator::SetItem(bool fold, std::string& set) {
  const bool dash_at_front = Sees("-") && set.empty();
  if (Sees("-") && !dash_at_front && !Sees("-]")) return Fail("a '-' in a set without a backslash, not at an end");
  const std::size_t before = set.size();
  MLA_ASSIGN_OR_RETURN(const std::optional<char32_t> first, SetCodePoint(set));
  if (!first) {
    if (fold) return Fail("a set's escape inside (?i:...)");
    if (Sees("-") && !Sees("-]")) return Fail("a range that begins with a set");
    MLA_CHECK_LT(before, set.size());
    return {};
  }
  const bool range = Sees("-") && !Sees("-]") && !dash_at_front;
  if (!range) {
    if (fold && *first >= 0x80) return Fail("a character beyond ASCII inside (?i:...)");
    set += fold ? Folded(*first) : CodePoint(*first);
    return {};
  }
  Take("-");
  if (fold) return Fail("a range inside (?i:...)");
  if (AtEnd() || Sees("[") || Sees("&&")) return Fail("a range without an end");
  MLA_ASSIGN_OR_RETURN(const std::optional<char32_t> last, SetCodePoint(set));
  if (!last) return Fail("a range that ends with a set");
  if (*last < *first) return Fail("a range that runs backwards");
  set += CodePoint(*first) + "-" + CodePoint(*last);
  return {};
}

Result<char32_t> Translator::ParseHex(std::size_t min_digits, std::size_t max_digits) {
  char32_t value = 0;
  std::size_t digits = 0;
  for (; digits < max_digits && !AtEnd(); ++digits) {
    const char32_t c = static_cast<unsigned char>(pattern_[at_]);
    const char32_t lower = IsLetter(c) ? (c | 0x20) : c;
    if (!IsDigit(c) && !(lower >= 'a' && lower <= 'f')) break;
    value = value * 16 + (IsDigit(c) ? c - '0' : lower - 'a' + 10);
    ++at_;
  }
  if (digits < min_digits || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
    return Fail("a hexadecimal escape that names no character");
  }
  return value;
}

Result<Escape> Translator::ParseProperty(bool negated) {
  if (!Take("{")) return Fail("\\p without braces");
  if (Take("^")) negated = !negated;
  const std::size_t end = pattern_.find('}', at_);
  if (end == std::string_view::npos) return Fail("\\p{ without its '}'");
  const std::string_view name = pattern_.substr(at_, end - at_);
  std::optional<std::string> set = PropertySet(name);
  if (!set) return Fail("the property " + io::Quoted(name));
  at_ = end + 1;
  return Escape{true, 0, std::move(*set), negated};
}

Result<Escape> Translator::ParseEscape() {
  Take("\\");
  if (AtEnd()) return Fail("a '\\' at the end");
  const char32_t c = Next();
  const auto code_point = [](char32_t value) { return Escape{false, value, {}, false}; };
  switch (c) {
    case 't': return code_point('\t');
    case 'n': return code_point('\n');
    case 'r': return code_point('\r');
    case 'f': return code_point('\f');
    case 'v': return code_point('\v');
    case 'a': return code_point('\a');
    case 'e': return code_point(0x1B);
    case 's': return Escape{true, 0, std::string(kSpaces), false};
    case 'S': return Escape{true, 0, std::string(kSpaces), true};
    case 'd': return Escape{true, 0, PropertySet("Nd").value(), false};
    case 'D': return Escape{true, 0, PropertySet("Nd").value(), true};
    case 'h': return Escape{true, 0, "0-9A-Fa-f", false};
    case 'H': return Escape{true, 0, "0-9A-Fa-f", true};
    case 'p': return ParseProperty(false);
    case 'P': return ParseProperty(true);
    case 'u': {
      MLA_ASSIGN_OR_RETURN(const char32_t value, ParseHex(4, 4));
      return code_point(value);
    }
    case 'x': {
      const bool braces = Take("{");
      MLA_ASSIGN_OR_RETURN(const char32_t value, braces ? ParseHex(1, 8) : ParseHex(2, 2));
      if (braces && !Take("}")) return Fail("\\x{ without its '}'");
      // Without braces Oniguruma reads a byte, and bytes from 80 up would be parts of a character.
      if (!braces && value >= 0x80) return Fail("\\x80 and up without braces");
      return code_point(value);
    }
    default: break;
  }
  if (IsLetter(c) || IsDigit(c) || c >= 0x80) {
    std::string name;
    AppendUtf8(c, name);
    return Fail(fmt::format("the escape \\{}", name));
  }
  return code_point(c);
}

}  // namespace

Result<std::string> TranslatePattern(std::string_view pattern) { return Translator(pattern).Run(); }

std::string TranslateLiteral(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    out += CodePoint(step.code_point);
    text.remove_prefix(step.bytes);
  }
  return out;
}

}  // namespace mla::text
