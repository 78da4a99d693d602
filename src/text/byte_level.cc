#include "text/byte_level.h"

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace mla::text {
namespace {

constexpr char32_t kAlphabetEnd = 0x144;  // one past the last character: 68 bytes are not printable

struct Alphabet {
  std::array<std::array<char, 2>, 256> text{};
  std::array<std::uint8_t, 256> length{};
  std::array<std::int16_t, kAlphabetEnd> byte_of{};  // -1: not in the alphabet
};

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte_of) byte = -1;
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t code_point = StandsForItself(byte) ? static_cast<char32_t>(byte) : next++;
    const auto at = static_cast<std::size_t>(byte);
    if (code_point < 0x80) {
      alphabet.text[at] = {static_cast<char>(code_point), 0};
      alphabet.length[at] = 1;
    } else {
      alphabet.text[at] = {static_cast<char>(0xC0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 0x3F))};
      alphabet.length[at] = 2;
    }
    alphabet.byte_of[code_point] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::string_view ByteCharacter(unsigned char byte) { return {kAlphabet.text[byte].data(), kAlphabet.length[byte]}; }

std::string ToByteLevel(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char byte : bytes) out += ByteCharacter(static_cast<unsigned char>(byte));
  return out;
}

std::string FromByteLevel(std::string_view token) {
  std::string out;
  out.reserve(token.size());
  for (std::string_view rest = token; !rest.empty();) {
    const Utf8Step step = NextUtf8(rest);
    if (step.kind != Utf8Kind::kCharacter || step.code_point >= kAlphabetEnd ||
        kAlphabet.byte_of[step.code_point] < 0) {
      return std::string(token);
    }
    out.push_back(static_cast<char>(kAlphabet.byte_of[step.code_point]));
    rest.remove_prefix(step.bytes);
  }
  return out;
}

}  // namespace mla::text
