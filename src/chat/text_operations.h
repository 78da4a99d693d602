// What filters and methods do to texts, keeping who wrote which character.
#ifndef MLA_CHAT_TEXT_OPERATIONS_H_
#define MLA_CHAT_TEXT_OPERATIONS_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "chat/value.h"
#include "mla/result.h"

namespace mla::chat {

// Without white space, or characters of `set`, at its ends.
Value Strip(const MarkedText& text, const std::string_view* set, bool left, bool right, Heap* heap);

// Each `from` becomes `to`, the leftmost first, `most` times; below 0: all.
Value Replace(const MarkedText& text, std::string_view from, const MarkedText& to, std::int64_t most, Heap* heap);

enum class Case : std::uint8_t { kUpper, kLower, kCapitalize, kTitle };
// Of texts in ASCII: fails on others, whose rules depend on the language. `kTitle` as Python's str.title; with
// `jinja_words` as Jinja's filter, for which an apostrophe begins no word.
Result<Value> ChangeCase(const MarkedText& text, Case to, bool jinja_words, Heap* heap);

// The texts of the values, with `separator` between.
Result<Value> JoinTexts(std::span<const Value> values, const MarkedText& separator, Heap* heap);

// Bytes [begin, end) as a value.
Value Part(const MarkedText& text, std::size_t begin, std::size_t end, Heap* heap);

}  // namespace mla::chat

#endif  // MLA_CHAT_TEXT_OPERATIONS_H_
