// Replacing one text by another, as the normalizers and decoders of tokenizer.json do.
#ifndef MLA_TEXT_REPLACE_H_
#define MLA_TEXT_REPLACE_H_

#include <string>
#include <string_view>

namespace mla::text {

struct Replacement {
  std::string from;  // not empty
  std::string to;
};

// `text` with each place of `from` replaced: from the left, without overlaps.
std::string Replaced(std::string_view text, const Replacement& replacement);

}  // namespace mla::text

#endif  // MLA_TEXT_REPLACE_H_
