#include "text/token_decoder.h"

#include <optional>

#include "text/byte_level.h"

namespace mla::text {
namespace {

std::optional<int> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  if (lower >= 'a' && lower <= 'f') return lower - 'a' + 10;
  return std::nullopt;
}

// Of <0xNN>.
std::optional<char> ByteOf(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  const std::optional<int> high = HexDigit(token[3]);
  const std::optional<int> low = HexDigit(token[4]);
  if (!high || !low) return std::nullopt;
  return static_cast<char>(*high * 16 + *low);
}

}  // namespace

std::string TokenDecoder::BytesOf(std::string_view token) const {
  if (kind == Kind::kByteLevel) return FromByteLevel(token);
  std::string bytes(token);
  if (kind == Kind::kBytes) return bytes;
  for (const Replacement& replacement : replacements) bytes = Replaced(bytes, replacement);
  if (const std::optional<char> byte = byte_fallback ? ByteOf(bytes) : std::nullopt) return {*byte};
  return bytes;
}

std::string TokenDecoder::FirstBytesOf(std::string_view token) const {
  return BytesOf(dropped_at_start.empty() ? std::string(token) : Replaced(token, {dropped_at_start, {}}));
}

}  // namespace mla::text
