#include "text/replace.h"

#include <cstddef>

namespace mla::text {

std::string Replaced(std::string_view text, const Replacement& replacement) {
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t at = 0; (at = text.find(replacement.from, done)) != std::string_view::npos;) {
    out += text.substr(done, at - done);
    out += replacement.to;
    done = at + replacement.from.size();
  }
  out += text.substr(done);
  return out;
}

}  // namespace mla::text
