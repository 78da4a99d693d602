// The byte-level alphabet of GPT-2: each of the 256 bytes written as one printable character, so that a vocabulary of
// byte strings is a vocabulary of texts. Printable Latin-1 bytes stand for themselves; the others, in order, are
// U+0100 and up (a space is U+0120).
#ifndef MLA_TEXT_BYTE_LEVEL_H_
#define MLA_TEXT_BYTE_LEVEL_H_

#include <string>
#include <string_view>

namespace mla::text {

// The character (in UTF-8) that stands for each byte; views of static storage.
std::string_view ByteCharacter(unsigned char byte);

// The alphabet's spelling of some bytes.
std::string ToByteLevel(std::string_view bytes);

// The bytes that a vocabulary entry (valid UTF-8) stands for. An entry with a character outside the alphabet stands
// for itself, as a whole.
std::string FromByteLevel(std::string_view token);

}  // namespace mla::text

#endif  // MLA_TEXT_BYTE_LEVEL_H_
