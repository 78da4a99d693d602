// UTF-8 by the book: what is a character, and how broken bytes group into the pieces that U+FFFD replaces.
#ifndef MLA_TEXT_UTF8_H_
#define MLA_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mla::text {

enum class Utf8Kind : std::uint8_t {
  kCharacter,  // a whole character
  kBroken,     // bytes that begin no character: a maximal subpart, replaced by one U+FFFD
  kUnfinished  // all that is left, and it may still become a character
};

// What stands at the front of a text, and how many bytes it is. `code_point` is set for kCharacter alone.
struct Utf8Step {
  Utf8Kind kind = Utf8Kind::kBroken;
  std::size_t bytes = 0;
  char32_t code_point = 0;
};

// `text` is not empty. Overlong forms, surrogates and code points above U+10FFFF are broken from the byte that makes
// them so (the maximal subparts of the Unicode Standard, section 3.9).
Utf8Step NextUtf8(std::string_view text);

// Appends the code point, which is no surrogate and at most U+10FFFF.
void AppendUtf8(char32_t code_point, std::string& out);

}  // namespace mla::text

#endif  // MLA_TEXT_UTF8_H_
