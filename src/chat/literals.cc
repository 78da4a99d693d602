#include "chat/literals.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "chat/marked_text.h"
#include "text/utf8.h"

namespace mla::chat {
namespace {

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

// Bytes of the digits of `base` that `text` begins with, underscores between them included.
std::size_t DigitsIn(std::string_view text, int base) {
  std::size_t end = 0;
  while (end < text.size()) {
    const std::size_t digit = text[end] == '_' && end > 0 ? end + 1 : end;
    if (digit >= text.size() || DigitOf(text[digit]) >= base) break;
    end = digit + 1;
  }
  return end;
}

std::string WithoutUnderscores(std::string_view text) {
  std::string digits(text);
  std::erase(digits, '_');
  return digits;
}

std::optional<std::int64_t> ToInt(std::string_view digits, int base) {
  const std::string plain = WithoutUnderscores(digits);
  std::int64_t value = 0;
  const auto [end, fault] = std::from_chars(plain.data(), plain.data() + plain.size(), value, base);
  if (fault != std::errc() || end != plain.data() + plain.size()) return std::nullopt;
  return value;
}

std::optional<double> ToDouble(std::string_view text) {
  const std::string plain = WithoutUnderscores(text);
  double value = 0;
  const auto [end, fault] = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  if (fault != std::errc() || end != plain.data() + plain.size()) return std::nullopt;
  return value;
}

// Bytes of a fraction, an exponent or both behind digits; 0 where there is none.
std::size_t FloatTail(std::string_view text) {
  std::size_t at = 0;
  if (at + 1 < text.size() && text[at] == '.' && DigitOf(text[at + 1]) < 10) at += 1 + DigitsIn(text.substr(1), 10);
  std::size_t exponent = at;
  if (exponent < text.size() && (text[exponent] == 'e' || text[exponent] == 'E')) {
    ++exponent;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    const std::size_t digits = DigitsIn(text.substr(exponent), 10);
    if (digits > 0) return exponent + digits;
  }
  return at;
}

// \x, \u and \U: so many hexadecimal digits at the front of `text`.
Result<char32_t> ReadHex(std::string_view text, std::size_t digits) {
  if (text.size() < digits || DigitsIn(text.substr(0, digits), 16) < digits ||
      text.substr(0, digits).find('_') != std::string_view::npos) {
    return Error{"an escape with too few hexadecimal digits"};
  }
  const auto value = static_cast<char32_t>(*ToInt(text.substr(0, digits), 16));
  if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return Error{"an escape that is no character"};
  return value;
}

}  // namespace

Result<Number> ReadNumber(std::string_view text, bool may_be_float) {
  int base = 10;
  std::size_t prefix = 0;
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int other = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (other != 0 && DigitOf(text[2]) < other) {
      base = other;
      prefix = 2;
    }
  }
  Number number;
  const std::size_t digits = DigitsIn(text.substr(prefix), base);
  number.bytes = prefix + digits;
  const std::size_t tail = base == 10 && may_be_float ? FloatTail(text.substr(digits)) : 0;
  if (tail > 0) {
    number.is_float = true;
    number.bytes += tail;
    const auto value = ToDouble(text.substr(0, number.bytes));
    if (!value) return Error{"a number beyond every double"};
    number.number = *value;
    return number;
  }
  const auto value = ToInt(text.substr(prefix, digits), base);
  if (!value) return Error{"a whole number of more than 63 bits"};
  number.integer = *value;
  return number;
}

Result<std::string> Unescape(std::string_view inside) {
  static constexpr std::string_view kFrom = "abfnrtv\\'\"";
  static constexpr std::string_view kTo = "\a\b\f\n\r\t\v\\'\"";
  std::string out;
  for (std::size_t i = 0; i < inside.size();) {
    if (inside[i] != '\\' || i + 1 == inside.size()) {
      out += inside[i++];
      continue;
    }
    const char c = inside[i + 1];
    i += 2;
    if (const std::size_t known = kFrom.find(c); known != std::string_view::npos) {
      out += kTo[known];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      MLA_ASSIGN_OR_RETURN(const char32_t code, ReadHex(inside.substr(i), digits));
      text::AppendUtf8(code, out);
      i += digits;
    } else if (c >= '0' && c <= '7') {
      std::size_t digits = 0;
      char32_t code = static_cast<char32_t>(c - '0');
      for (; digits < 2 && i + digits < inside.size() && DigitOf(inside[i + digits]) < 8; ++digits) {
        code = code * 8 + static_cast<char32_t>(inside[i + digits] - '0');
      }
      text::AppendUtf8(code, out);
      i += digits;
    } else if (c == 'N') {
      return Error{"an escape that names a character: write the character"};
    } else if (c != '\n') {  // a line feed behind a backslash goes
      out += '\\';
      out += c;
    }
  }
  return out;
}

std::optional<std::int64_t> ParseInt(std::string_view text, int base) {
  const TextRange inner = Stripped(text, nullptr, true, true);
  text = text.substr(inner.begin, inner.end - inner.begin);
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  if (text.empty() || DigitsIn(text, base) != text.size()) return std::nullopt;
  return ToInt((negative ? "-" : "") + std::string(text), base);
}

std::optional<double> ParseFloat(std::string_view text) {
  const TextRange inner = Stripped(text, nullptr, true, true);
  text = text.substr(inner.begin, inner.end - inner.begin);
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  std::size_t digits = DigitsIn(text, 10);
  // Python reads .5 and 5. too; std::from_chars wants a digit before the dot.
  std::string whole(text);
  if (digits == 0) {
    whole.insert(0, 1, '0');
    digits = 1;
    if (text.size() < 2 || text[0] != '.' || DigitOf(text[1]) > 9) return std::nullopt;
  } else if (digits < text.size() && text[digits] == '.' &&
             (digits + 1 == text.size() || DigitOf(text[digits + 1]) > 9)) {
    whole.erase(digits, 1);
  }
  if (digits + FloatTail(std::string_view(whole).substr(digits)) != whole.size()) return std::nullopt;
  return ToDouble((negative ? "-" : "") + whole);
}

}  // namespace mla::chat
