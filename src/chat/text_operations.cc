#include "chat/text_operations.h"

#include <algorithm>

namespace mla::chat {
namespace {

bool IsAsciiLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char Upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

Value Part(const MarkedText& text, std::size_t begin, std::size_t end, Heap* heap) {
  MarkedTextBuilder out(heap);
  out.Append(text, begin, end);
  return Value::Text(heap, out.Take());
}

Value Strip(const MarkedText& text, const std::string_view* set, bool left, bool right, Heap* heap) {
  heap->SpendBytes(text.bytes.size() * (set == nullptr ? 1 : 1 + set->size() / 8));
  const TextRange kept = Stripped(text.bytes, set, left, right);
  return Part(text, kept.begin, kept.end, heap);
}

Value Replace(const MarkedText& text, std::string_view from, const MarkedText& to, std::int64_t most, Heap* heap) {
  heap->SpendBytes(text.bytes.size());
  MarkedTextBuilder out(heap);
  std::size_t at = 0;
  for (std::int64_t count = 0; count != most && heap->ok(); ++count) {
    if (from.empty()) {  // between all characters, and at both ends
      out.Append(to);
      if (at == text.bytes.size()) return Value::Text(heap, out.Take());
      const std::size_t end = at + CharacterBytes(text.bytes, at);
      out.Append(text, at, end);
      at = end;
      continue;
    }
    const std::size_t found = text.bytes.find(from, at);
    if (found == std::string::npos) break;
    out.Append(text, at, found);
    out.Append(to);
    at = found + from.size();
  }
  out.Append(text, at, text.bytes.size());
  return Value::Text(heap, out.Take());
}

Result<Value> ChangeCase(const MarkedText& text, Case to, bool jinja_words, Heap* heap) {
  MarkedText changed = text;
  bool begins = true;
  for (char& c : changed.bytes) {
    if (static_cast<unsigned char>(c) >= 0x80) return Error{"upper and lower case are supported for ASCII texts"};
    const bool upper = to == Case::kUpper || (to != Case::kLower && begins);
    const char before = c;
    c = upper ? Upper(c) : Lower(c);
    if (to == Case::kTitle) {
      static constexpr std::string_view kBorders = "-({[<";
      begins = jinja_words
                   ? IsSpaceAt(std::string_view(&before, 1), 0) || kBorders.find(before) != std::string_view::npos
                   : !IsAsciiLetter(before);
    } else {
      begins = false;
    }
  }
  return Value::Text(heap, std::move(changed));
}

Result<Value> JoinTexts(std::span<const Value> values, const MarkedText& separator, Heap* heap) {
  MarkedTextBuilder out(heap);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!heap->ok()) return heap->Fault();
    if (i > 0) out.Append(separator);
    MLA_RETURN_IF_ERROR(AppendText(values[i], heap, &out));
  }
  return Value::Text(heap, out.Take());
}

}  // namespace mla::chat
