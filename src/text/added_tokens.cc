#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace mla::text {

namespace {

bool IsSpace(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace

std::size_t SpacesAtStart(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = NextUtf8(text.substr(at));
    if (!IsSpace(step.code_point)) break;
    at += step.bytes;
  }
  return at;
}

std::size_t SpacesAtEnd(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t begin = end - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!IsSpace(NextUtf8(text.substr(begin)).code_point)) break;
    end = begin;
  }
  return text.size() - end;
}

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : entries_(std::move(tokens)) {
  std::sort(entries_.begin(), entries_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  for (const AddedToken& entry : entries_) ++first_byte_[static_cast<unsigned char>(entry.content[0]) + std::size_t{1}];
  for (std::size_t i = 1; i < first_byte_.size(); ++i) first_byte_[i] += first_byte_[i - 1];
}

std::optional<AddedTokenFinder::Found> AddedTokenFinder::Find(std::string_view text, std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    const auto byte = static_cast<unsigned char>(text[begin]);
    auto low = entries_.begin() + first_byte_[byte];
    auto high = entries_.begin() + first_byte_[byte + std::size_t{1}];
    std::optional<Found> longest;
    // [low, high) are the entries whose first `length` bytes stand at `begin`; a whole one sorts first among them.
    for (std::size_t length = 1; low != high; ++length) {
      if (low->content.size() == length) {
        longest = Found{begin, begin + length, low->id, low->lstrip, low->rstrip};
        ++low;
      }
      if (begin + length == text.size()) break;
      const auto next = static_cast<unsigned char>(text[begin + length]);
      const auto at = [length](const AddedToken& entry) { return static_cast<unsigned char>(entry.content[length]); };
      low = std::partition_point(low, high, [&](const AddedToken& entry) { return at(entry) < next; });
      high = std::partition_point(low, high, [&](const AddedToken& entry) { return at(entry) == next; });
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace mla::text
