#include "chat/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "chat/literals.h"
#include "chat/marked_text.h"
#include "io/quote.h"

namespace mla::chat {
namespace {

// Longest first.
constexpr std::array<std::string_view, 28> kOperators = {"==", "!=", ">=", "<=", "//", "**", "+", "-", "*", "/",
                                                         "%",  "~",  "[",  "]",  "(",  ")",  "{", "}", "<", ">",
                                                         "=",  ".",  ":",  "|",  ",",  ";",  "!", "&"};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool BeginsName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool ContinuesName(char c) { return BeginsName(c) || IsDigit(c); }

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      const std::size_t tag = NextTag();
      if (tag == source_.size()) {
        AddData(at_, tag);
        at_ = tag;
        break;
      }
      MLA_RETURN_IF_ERROR(TakeTag(tag));
    }
    Add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  Error Fail(std::string_view what) const { return Error{fmt::format("line {}: {}", line_, what)}; }

  Token& Add(Token::Kind kind, std::string text) {
    Token& token = tokens_.emplace_back();
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    return token;
  }

  // Moves on, counting lines.
  void MoveTo(std::size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  bool Has(std::size_t at, std::string_view word) const { return source_.compare(at, word.size(), word) == 0; }

  std::size_t SkipSpace(std::size_t at) const {
    while (at < source_.size() && IsSpaceAt(source_, at)) at += CharacterBytes(source_, at);
    return at;
  }

  std::size_t NextTag() const {
    for (std::size_t at = at_;; ++at) {
      at = source_.find('{', at);
      if (at == std::string::npos || at + 1 >= source_.size()) return source_.size();
      if (source_[at + 1] == '{' || source_[at + 1] == '%' || source_[at + 1] == '#') return at;
    }
  }

  void AddData(std::size_t begin, std::size_t end) {
    if (end > begin) Add(Token::Kind::kData, source_.substr(begin, end - begin));
  }

  // The end of the text before a tag whose inside begins at `inside`: what '-' takes, or what lstrip_blocks does at a
  // line's beginning, where the tag is no {{.
  std::size_t DataEnd(std::size_t begin, std::size_t tag, std::size_t inside, bool variable) const {
    const char sign = inside < source_.size() ? source_[inside] : '\0';
    const std::string_view text(source_.data() + begin, tag - begin);
    if (sign == '-') return begin + Stripped(text, nullptr, false, true).end;
    if (sign == '+' || variable) return tag;
    const std::size_t newline = text.rfind('\n');
    const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (line_begin == 0 && !line_starting_) return tag;
    const std::string_view indent = text.substr(line_begin);
    return Stripped(indent, nullptr, true, false).begin == indent.size() ? begin + line_begin : tag;
  }

  // Where the text goes on behind a tag's end, which is at `at`, with its sign before it: '-' takes all white space,
  // and of the ends that are not }} each takes a line feed.
  std::size_t AfterEnd(std::size_t at, char sign, bool variable) const {
    at += 2;
    if (sign == '-') return SkipSpace(at);
    if (sign != '+' && !variable && at < source_.size() && source_[at] == '\n') ++at;
    return at;
  }

  void PassEnd(std::size_t to) {
    MoveTo(to);
    line_starting_ = source_[to - 1] == '\n';
  }

  Status TakeTag(std::size_t tag) {
    const char type = source_[tag + 1];
    const std::size_t inside = tag + 2;
    AddData(at_, DataEnd(at_, tag, inside, type == '{'));
    MoveTo(tag);
    std::size_t begin = inside;
    if (begin < source_.size() && (source_[begin] == '-' || source_[begin] == '+')) ++begin;
    if (type == '#') return TakeComment(begin);
    if (type == '%') {
      const std::size_t word = SkipSpace(begin);
      if (Has(word, "raw")) {
        const std::size_t end = SkipSpace(word + 3);
        if (Has(end, "%}") || Has(end, "-%}")) return TakeRaw(end);
      }
    }
    Add(type == '{' ? Token::Kind::kVariableBegin : Token::Kind::kBlockBegin, "");
    MoveTo(begin);
    return TakeInside(type == '{');
  }

  Status TakeComment(std::size_t inside) {
    const std::size_t end = source_.find("#}", inside);
    if (end == std::string::npos) return Fail("a comment without an end");
    const char sign = end > inside && (source_[end - 1] == '-' || source_[end - 1] == '+') ? source_[end - 1] : '\0';
    PassEnd(AfterEnd(end, sign, false));
    return {};
  }

  // `end` is at the sign or the end of {% raw %}, behind which a line feed stays.
  Status TakeRaw(std::size_t end) {
    MoveTo(source_[end] == '-' ? SkipSpace(end + 3) : end + 2);
    line_starting_ = source_[at_ - 1] == '\n';
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      std::size_t word = tag + 2;
      if (word < source_.size() && (source_[word] == '-' || source_[word] == '+')) ++word;
      word = SkipSpace(word);
      if (!Has(word, "endraw")) continue;
      std::size_t close = SkipSpace(word + 6);
      const char sign = close < source_.size() ? source_[close] : '\0';
      if (sign == '-' || sign == '+') ++close;
      if (!Has(close, "%}")) continue;
      AddData(at_, DataEnd(at_, tag, tag + 2, false));
      PassEnd(AfterEnd(close, sign, false));
      return {};
    }
    return Fail("raw without endraw");
  }

  // The end of the tag at at_, or npos. An end inside brackets is no end.
  bool AtEnd(bool variable) const {
    if (!brackets_.empty()) return false;
    const std::string_view end = variable ? "}}" : "%}";
    return Has(at_, end) || (Has(at_, "-") && Has(at_ + 1, end)) || (!variable && Has(at_, "+") && Has(at_ + 1, end));
  }

  Status TakeInside(bool variable) {
    brackets_.clear();
    for (;;) {
      MoveTo(SkipSpace(at_));
      if (at_ == source_.size()) return Fail(variable ? "{{ without its }}" : "{% without its %}");
      if (AtEnd(variable)) {
        const char sign = source_[at_];
        Add(variable ? Token::Kind::kVariableEnd : Token::Kind::kBlockEnd, "");
        const std::size_t end = sign == '-' || sign == '+' ? at_ + 1 : at_;
        PassEnd(AfterEnd(end, sign, variable));
        return {};
      }
      MLA_RETURN_IF_ERROR(TakeToken());
    }
  }

  Status TakeToken() {
    const char c = source_[at_];
    if (IsDigit(c)) return TakeNumber();
    if (BeginsName(c)) {
      std::size_t end = at_;
      while (end < source_.size() && ContinuesName(source_[end])) ++end;
      Add(Token::Kind::kName, source_.substr(at_, end - at_));
      at_ = end;
      return {};
    }
    if (c == '\'' || c == '"') return TakeString(c);
    for (const std::string_view word : kOperators) {
      if (!Has(at_, word)) continue;
      MLA_RETURN_IF_ERROR(Balance(c));
      Add(Token::Kind::kOperator, std::string(word));
      at_ += word.size();
      return {};
    }
    return Fail(fmt::format("the character {} has no meaning here",
                            io::Quoted(source_.substr(at_, CharacterBytes(source_, at_)))));
  }

  Status Balance(char c) {
    if (c == '(' || c == '[' || c == '{') brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c != ')' && c != ']' && c != '}') return {};
    if (brackets_.empty() || brackets_.back() != c) return Fail(fmt::format("a '{}' that nothing opened", c));
    brackets_.pop_back();
    return {};
  }

  Status TakeNumber() {
    // After a dot digits are a name of what they are asked of: items.0.1
    const bool member = !tokens_.empty() && tokens_.back().kind == Token::Kind::kOperator && tokens_.back().text == ".";
    const Result<Number> number = ReadNumber(std::string_view(source_).substr(at_), !member);
    if (!number.ok()) return Fail(number.error().message);
    Token& token =
        Add(number->is_float ? Token::Kind::kFloat : Token::Kind::kInteger, source_.substr(at_, number->bytes));
    token.integer = number->integer;
    token.number = number->number;
    at_ += number->bytes;
    return {};
  }

  Status TakeString(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Fail("a text without its closing quote");
    Result<std::string> value = Unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1));
    if (!value.ok()) return Fail(value.error().message);
    Add(Token::Kind::kString, std::move(value).value());
    MoveTo(end + 1);
    return {};
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // whether at_ is where a line begins
  std::string brackets_;       // those that are open, as what closes them
  std::vector<Token> tokens_;
};

// Line ends become line feeds, and one at the end goes.
std::string Normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    const bool pair = source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n';
    if (pair) continue;
    text += source[i] == '\r' ? '\n' : source[i];
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

Result<std::vector<Token>> Tokenize(std::string_view source) { return Lexer(Normalized(source)).Run(); }

}  // namespace mla::chat
