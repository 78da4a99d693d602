#include "text/normalizer.h"

#include <fmt/format.h>

namespace mla::text {
namespace {

std::size_t Count(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) ++count;
  return count;
}

// What becomes of ranges of `text` when the step is applied to it.
void MoveRanges(std::string_view text, const Replacement& step, std::vector<TextRange>& ranges) {
  std::size_t found = text.find(step.from);
  std::size_t shift = 0;  // by what is replaced before `found`, modulo 2^64
  // Where a position comes to lie; one inside of a replaced part comes to the end that makes the range smaller.
  const auto moved = [&](std::size_t position, bool is_begin) {
    while (found != std::string_view::npos && found + step.from.size() <= position) {
      shift += step.to.size() - step.from.size();
      found = text.find(step.from, found + step.from.size());
    }
    if (found == std::string_view::npos || position <= found) return position + shift;
    return found + shift + (is_begin ? step.to.size() : 0);
  };
  std::vector<TextRange> result;
  for (const TextRange& range : ranges) {
    const std::size_t begin = moved(range.begin, true);
    const std::size_t end = moved(range.end, false);
    if (begin < end) result.push_back({begin, end});
  }
  ranges = std::move(result);
}

}  // namespace

Result<std::string> Normalizer::Apply(std::string_view text, std::vector<TextRange>* ranges) const {
  std::string result(text);
  if (text.empty()) return result;
  for (const Replacement& step : steps_) {
    if (result.empty()) break;
    const std::size_t places = step.from.empty() ? 1 : Count(result, step.from);
    const std::size_t bytes = result.size() + places * step.to.size();
    if (bytes > kMaxBytes) {
      return Error{fmt::format("expected at most {} bytes after the normalizer, found up to {}", kMaxBytes, bytes)};
    }
    if (ranges != nullptr && step.from.empty()) {
      // What is put before a text belongs to its first character.
      for (TextRange& range : *ranges) {
        range = {range.begin == 0 ? 0 : range.begin + step.to.size(), range.end + step.to.size()};
      }
    } else if (ranges != nullptr) {
      MoveRanges(result, step, *ranges);
    }
    if (step.from.empty()) {
      result.insert(0, step.to);
    } else {
      result = Replaced(result, step);
    }
  }
  return result;
}

}  // namespace mla::text
