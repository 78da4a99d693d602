// Texts that know which of their bytes the template itself wrote.
#ifndef MLA_CHAT_MARKED_TEXT_H_
#define MLA_CHAT_MARKED_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chat/heap.h"
#include "mla/tokenizer.h"

namespace mla::chat {

// Valid UTF-8. Bytes outside of `trusted` came from messages, tools or variables, or it is not clear where from. Ranges
// are in order, not empty, and don't touch.
struct MarkedText {
  std::string bytes;
  std::vector<TextRange> trusted;

  static MarkedText Trusted(std::string bytes);
  static MarkedText Untrusted(std::string bytes) { return {std::move(bytes), {}}; }
};

// Appends to a text; what it holds counts on the heap.
class MarkedTextBuilder {
 public:
  explicit MarkedTextBuilder(Heap* heap) : heap_(heap) {}
  ~MarkedTextBuilder() { Uncount(); }
  MarkedTextBuilder(const MarkedTextBuilder&) = delete;
  MarkedTextBuilder& operator=(const MarkedTextBuilder&) = delete;

  void Append(const MarkedText& text) { Append(text, 0, text.bytes.size()); }
  // Bytes [begin, end) of a text.
  void Append(const MarkedText& text, std::size_t begin, std::size_t end);
  void AppendUntrusted(std::string_view bytes);
  std::size_t size() const { return text_.bytes.size(); }
  MarkedText Take();

 private:
  void Count(std::size_t bytes, std::size_t ranges);
  void Uncount();

  Heap* heap_;
  std::int64_t counted_ = 0;
  MarkedText text_;
};

// Characters are code points, as Python's.
std::size_t CharacterCount(std::string_view text);
// The byte where character `index` begins; text.size() where there are fewer.
std::size_t ByteOfCharacter(std::string_view text, std::size_t index);
// Bytes of the character that begins at `at`.
std::size_t CharacterBytes(std::string_view text, std::size_t at);

// What Python's str.isspace takes for white space; `at` begins a character.
bool IsSpaceAt(std::string_view text, std::size_t at);
// [begin, end) of the text without white space at its ends, or without characters of `set` where that is not null.
TextRange Stripped(std::string_view text, const std::string_view* set, bool left, bool right);

}  // namespace mla::chat

#endif  // MLA_CHAT_MARKED_TEXT_H_
