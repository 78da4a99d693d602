// Code points that Unicode assigned after version 14, up to 16. PCRE2 10.42 knows version 14; the tokenizers library's
// Oniguruma knows 16, so a pattern's \p{...} is widened by these to mean the same in both.
#ifndef MLA_TEXT_UNICODE_LATER_H_
#define MLA_TEXT_UNICODE_LATER_H_

#include <span>
#include <string_view>

namespace mla::text {

struct LaterRange {
  std::string_view property;  // a two-letter general category, or a script
  char32_t first;
  char32_t last;
};

// Static storage. U+1171E moved from Mn to Mc, and is here as Mc.
std::span<const LaterRange> LaterRanges();

}  // namespace mla::text

#endif  // MLA_TEXT_UNICODE_LATER_H_
