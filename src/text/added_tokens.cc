#include "text/added_tokens.h"

#include <algorithm>

namespace mla::text {

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens) {
  for (const AddedToken& token : tokens) entries_.push_back({token.content, token.id});
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.content < b.content; });
  for (const Entry& entry : entries_) ++first_byte_[static_cast<unsigned char>(entry.content[0]) + std::size_t{1}];
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
        longest = Found{begin, begin + length, low->id};
        ++low;
      }
      if (begin + length == text.size()) break;
      const auto next = static_cast<unsigned char>(text[begin + length]);
      const auto at = [length](const Entry& entry) { return static_cast<unsigned char>(entry.content[length]); };
      low = std::partition_point(low, high, [&](const Entry& entry) { return at(entry) < next; });
      high = std::partition_point(low, high, [&](const Entry& entry) { return at(entry) == next; });
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace mla::text
