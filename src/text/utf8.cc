#include "text/utf8.h"

namespace mla::text {
namespace {

// Of a leading byte: the number of bytes that follow (-1: no character begins so), and the range of the first of them.
// The ranges shut out overlong forms (E0, F0), surrogates (ED) and code points above U+10FFFF (F4).
struct Lead {
  int following;
  unsigned char low;
  unsigned char high;
};

Lead LeadOf(unsigned char byte) {
  if (byte < 0x80) return {0, 0, 0};
  if (byte < 0xC2) return {-1, 0, 0};
  if (byte < 0xE0) return {1, 0x80, 0xBF};
  if (byte < 0xF0)
    return {2, static_cast<unsigned char>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(byte == 0xED ? 0x9F : 0xBF)};
  if (byte < 0xF5)
    return {3, static_cast<unsigned char>(byte == 0xF0 ? 0x90 : 0x80),
            static_cast<unsigned char>(byte == 0xF4 ? 0x8F : 0xBF)};
  return {-1, 0, 0};
}

}  // namespace

Utf8Step NextUtf8(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const Lead lead = LeadOf(first);
  if (lead.following < 0) return {Utf8Kind::kBroken, 1, 0};
  if (lead.following == 0) return {Utf8Kind::kCharacter, 1, first};
  char32_t code_point = first & (0x3FU >> lead.following);
  for (int i = 1; i <= lead.following; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (at == text.size()) return {Utf8Kind::kUnfinished, at, 0};
    const auto byte = static_cast<unsigned char>(text[at]);
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {Utf8Kind::kBroken, at, 0};
    code_point = (code_point << 6) | (byte & 0x3FU);
  }
  return {Utf8Kind::kCharacter, static_cast<std::size_t>(lead.following) + 1, code_point};
}

void AppendUtf8(char32_t code_point, std::string& out) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace mla::text
