// A value as JSON, as Python's json.dumps writes it.
#ifndef MLA_CHAT_JSON_TEXT_H_
#define MLA_CHAT_JSON_TEXT_H_

#include <optional>
#include <string>
#include <string_view>

#include "chat/value.h"

namespace mla::chat {

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of a level; nothing: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// All of it untrusted: where quotes and escapes stand in a text from outside, they come with it. Fails on what has no
// JSON.
Status AppendJson(const Value& value, const JsonStyle& style, Heap* heap, MarkedTextBuilder* out);

}  // namespace mla::chat

#endif  // MLA_CHAT_JSON_TEXT_H_
