#include "io/quote.h"

#include <fmt/format.h>

namespace mla::io {
namespace {

// Bytes of the character that `text` begins with, 0 where it begins with no valid one (Unicode 15, table 3-7).
std::size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  std::size_t size = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    size = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    size = 3;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    size = 4;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  } else {
    return 0;
  }
  if (text.size() < size || byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < size; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  return size;
}

// U+0080 to U+009F are control characters too, and U+2028 and U+2029 break lines.
bool IsControl(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  if (character.size() == 2) return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
  return character == "\xe2\x80\xa8" || character == "\xe2\x80\xa9";
}

std::string Escape(std::string_view text, std::size_t max_characters, bool quotes) {
  std::string out;
  for (std::size_t i = 0, count = 0; i < text.size(); ++count) {
    if (count == max_characters) return out + "...";
    const std::size_t size = CharacterBytes(text.substr(i));
    const std::string_view character = text.substr(i, size == 0 ? 1 : size);
    if (size == 0 || IsControl(character)) {
      for (const char c : character) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      if (quotes && (character == "\"" || character == "\\")) out += '\\';
      out += character;
    }
    i += character.size();
  }
  return out;
}

}  // namespace

std::string Printable(std::string_view text, std::size_t max_characters) { return Escape(text, max_characters, false); }

std::string Quoted(std::string_view text, std::size_t max_characters) {
  return '"' + Escape(text, max_characters, true) + '"';
}

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::size_t ValidUtf8Prefix(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const std::size_t size = CharacterBytes(text.substr(i));
    if (size == 0) return i;
    i += size;
  }
  return i;
}

}  // namespace mla::io
