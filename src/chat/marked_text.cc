#include "chat/marked_text.h"

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace mla::chat {
namespace {

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U; }

// The beginning of the character that ends before `end`.
std::size_t CharacterBefore(std::string_view text, std::size_t end) {
  --end;
  while (end > 0 && IsContinuation(text[end])) --end;
  return end;
}

bool Holds(std::string_view set, std::string_view character) {
  for (std::size_t at = 0; at < set.size(); at += CharacterBytes(set, at)) {
    if (set.substr(at, CharacterBytes(set, at)) == character) return true;
  }
  return false;
}

}  // namespace

MarkedText MarkedText::Trusted(std::string bytes) {
  MarkedText text{std::move(bytes), {}};
  if (!text.bytes.empty()) text.trusted.push_back({0, text.bytes.size()});
  return text;
}

void MarkedTextBuilder::Count(std::size_t bytes, std::size_t ranges) {
  const auto more = static_cast<std::int64_t>(bytes + ranges * sizeof(TextRange));
  counted_ += more;
  heap_->Take(more);
  heap_->SpendBytes(bytes + ranges * sizeof(TextRange));
}

void MarkedTextBuilder::Uncount() {
  heap_->GiveBack(counted_);
  counted_ = 0;
}

void MarkedTextBuilder::Append(const MarkedText& text, std::size_t begin, std::size_t end) {
  const std::size_t base = text_.bytes.size();
  text_.bytes.append(text.bytes, begin, end - begin);
  auto range = std::partition_point(text.trusted.begin(), text.trusted.end(),
                                    [&](const TextRange& r) { return r.end <= begin; });
  std::size_t added = 0;
  for (; range != text.trusted.end() && range->begin < end; ++range) {
    const std::size_t first = base + std::max(range->begin, begin) - begin;
    const std::size_t last = base + std::min(range->end, end) - begin;
    if (first == last) continue;
    if (!text_.trusted.empty() && text_.trusted.back().end == first) {
      text_.trusted.back().end = last;
    } else {
      text_.trusted.push_back({first, last});
      ++added;
    }
  }
  Count(end - begin, added);
}

void MarkedTextBuilder::AppendUntrusted(std::string_view bytes) {
  text_.bytes.append(bytes);
  Count(bytes.size(), 0);
}

MarkedText MarkedTextBuilder::Take() {
  Uncount();
  return std::exchange(text_, {});
}

std::size_t CharacterCount(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !IsContinuation(c); }));
}

std::size_t ByteOfCharacter(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    if (IsContinuation(text[at])) continue;
    if (index == 0) return at;
    --index;
  }
  return at;
}

std::size_t CharacterBytes(std::string_view text, std::size_t at) {
  std::size_t bytes = 1;
  while (at + bytes < text.size() && IsContinuation(text[at + bytes])) ++bytes;
  return bytes;
}

bool IsSpaceAt(std::string_view text, std::size_t at) {
  const char32_t c = text::NextUtf8(text.substr(at)).code_point;
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

TextRange Stripped(std::string_view text, const std::string_view* set, bool left, bool right) {
  const auto goes = [&](std::size_t at, std::size_t bytes) {
    return set == nullptr ? IsSpaceAt(text, at) : Holds(*set, text.substr(at, bytes));
  };
  TextRange kept{0, text.size()};
  while (left && kept.begin < kept.end) {
    const std::size_t bytes = CharacterBytes(text, kept.begin);
    if (!goes(kept.begin, bytes)) break;
    kept.begin += bytes;
  }
  while (right && kept.begin < kept.end) {
    const std::size_t last = CharacterBefore(text, kept.end);
    if (!goes(last, kept.end - last)) break;
    kept.end = last;
  }
  return kept;
}

}  // namespace mla::chat
