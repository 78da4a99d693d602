// Ranges of a text, as the parts of a piece of it.
#ifndef MLA_TEXT_RANGES_H_
#define MLA_TEXT_RANGES_H_

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "mla/tokenizer.h"

namespace mla::text {

// The ranges' parts in text[begin, end), counted from there.
inline std::vector<TextRange> Clipped(std::span<const TextRange> ranges, std::size_t begin, std::size_t end) {
  std::vector<TextRange> clipped;
  for (const TextRange& range : ranges) {
    const std::size_t from = std::max(range.begin, begin);
    const std::size_t to = std::min(range.end, end);
    if (from < to) clipped.push_back({from - begin, to - begin});
  }
  return clipped;
}

}  // namespace mla::text

#endif  // MLA_TEXT_RANGES_H_
