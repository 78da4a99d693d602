#include "text/encoder.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <string>
#include <vector>

#include "text/ranges.h"

namespace mla::text {

Status Encoder::AsText(std::string_view text) {
  MLA_ASSIGN_OR_RETURN(const std::string normalized, parts_.normalizer.Apply(text));
  return Words(normalized, true);
}

Status Encoder::Parse(std::string_view text) {
  const TextRange whole{0, text.size()};
  return ParseWithin(text, {&whole, 1});
}

Status Encoder::ParseWithin(std::string_view text, std::span<const TextRange> ranges) {
  return Tokens(text, ranges, parts_.first_pass, [&](std::string_view part, bool at_start) -> Status {
    // Each part is normalized by itself: a prefix comes after every added token.
    const auto begin = static_cast<std::size_t>(part.data() - text.data());
    // A text of many tokens and many ranges is not clipped again for each part where nothing is looked for in it.
    std::vector<TextRange> inner;
    if (!parts_.second_pass.empty()) inner = Clipped(ranges, begin, begin + part.size());
    MLA_ASSIGN_OR_RETURN(const std::string normalized, parts_.normalizer.Apply(part, &inner));
    return Tokens(normalized, inner, parts_.second_pass,
                  [&](std::string_view words, bool first) { return Words(words, at_start && first); });
  });
}

// Appends the finder's tokens in the ranges, and calls rest(part, whether the text begins with it) on what is between
// them.
template <class Rest>
Status Encoder::Tokens(std::string_view text, std::span<const TextRange> ranges, const AddedTokenFinder& finder,
                       Rest rest) {
  std::size_t done = 0;
  for (const TextRange& range : ranges) {
    while (const auto found = finder.Find(text.substr(0, range.end), std::max(done, range.begin))) {
      const std::string_view before = text.substr(done, found->begin - done);
      const std::size_t kept = before.size() - (found->lstrip ? SpacesAtEnd(before) : 0);
      if (kept > 0) MLA_RETURN_IF_ERROR(rest(before.substr(0, kept), done == 0));
      ids_.push_back(found->id);
      done = found->end + (found->rstrip ? SpacesAtStart(text.substr(found->end)) : 0);
    }
  }
  if (done == text.size()) return {};
  return rest(text.substr(done), done == 0);
}

// Text without added tokens.
Status Encoder::Words(std::string_view normalized, bool at_start) {
  MLA_RETURN_IF_ERROR(parts_.pre_tokenizer.Split(normalized, at_start, pieces_));
  // Words repeat. A table of recent ones spares their merges; its size goes with the text's, so that filling it does
  // too.
  seen_.assign(std::min(std::bit_ceil(normalized.size() / 16 + 1), std::size_t{8192}), {});
  for (const std::string_view word : pieces_.pieces) Word(word);
  return {};
}

void Encoder::Word(std::string_view word) {
  Seen& seen = seen_[std::hash<std::string_view>()(word) & (seen_.size() - 1)];
  if (seen.word == word) {
    for (std::size_t i = 0; i < seen.count; ++i) {
      const std::int32_t id = ids_[seen.first + i];
      ids_.push_back(id);
    }
    return;
  }
  const std::size_t first = ids_.size();
  parts_.bpe.Encode(word, merges_, ids_);
  seen = {word, first, ids_.size() - first};
}

}  // namespace mla::text
