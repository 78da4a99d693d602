// Python's literals.
#ifndef MLA_CHAT_LITERALS_H_
#define MLA_CHAT_LITERALS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "mla/result.h"

namespace mla::chat {

struct Number {
  bool is_float = false;
  std::int64_t integer = 0;
  double number = 0;
  std::size_t bytes = 0;
};

// The number that `text` begins with, at a digit: 12, 1_000, 0x1f, 0o17, 0b11 and, where they may be, 1.5 and 1e9.
// Fails on a whole number of more than 63 bits.
Result<Number> ReadNumber(std::string_view text, bool may_be_float);

// The inside of a quoted text with its escapes resolved; one that Python does not know stays as it is. Fails on half
// a surrogate pair, which is no character, and on names of characters.
Result<std::string> Unescape(std::string_view inside);

// int(text): white space around it, a sign, digits with single underscores between them. Nothing where it is none.
std::optional<std::int64_t> ParseInt(std::string_view text, int base);
// float(text), likewise.
std::optional<double> ParseFloat(std::string_view text);

}  // namespace mla::chat

#endif  // MLA_CHAT_LITERALS_H_
