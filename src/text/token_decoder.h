// What a token's spelling stands for in a text.
#ifndef MLA_TEXT_TOKEN_DECODER_H_
#define MLA_TEXT_TOKEN_DECODER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/replace.h"

namespace mla::text {

// Plain data; const functions may be called from several threads at once.
struct TokenDecoder {
  enum class Kind : std::uint8_t {
    kByteLevel,  // spelled in the byte-level alphabet
    kBytes,      // the bytes themselves
    kPieces      // characters, by the steps below
  };
  Kind kind = Kind::kBytes;

  // kPieces
  std::vector<Replacement> replacements;  // none makes a token longer
  bool byte_fallback = false;             // <0xNN> is one byte
  std::int32_t strip_spaces = 0;          // as many spaces are taken from the very start of a text, if they are there
  std::string dropped_at_start;  // what the first token of a text loses, wherever it stands in it; may be empty

  // The bytes of a token inside a text.
  std::string BytesOf(std::string_view token) const;
  // The bytes of a token that comes first. strip_spaces is about the text and not done here.
  std::string FirstBytesOf(std::string_view token) const;
};

}  // namespace mla::text

#endif  // MLA_TEXT_TOKEN_DECODER_H_
