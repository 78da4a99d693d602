// A conversation's JSON -> the values that a template is given.
#ifndef MLA_CHAT_CONVERSATION_H_
#define MLA_CHAT_CONVERSATION_H_

#include <cstdint>
#include <string_view>

#include "chat/value.h"
#include "io/json.h"
#include "mla/result.h"

namespace mla::chat {

// How a template writes a tool call's arguments.
enum class ToolArguments : std::uint8_t {
  kAsGiven,
  kText,    // as JSON's text
  kObject,  // as a mapping
};

// Any JSON, none of it trusted.
Value FromJson(const io::JsonValue& json, Heap* heap);

// The list `messages`. Unless `as_given`, contents and arguments are brought to one form (mla/chat.h). Fails, naming
// the message, on what is no array of objects with a role, and on content that is no text.
Result<Value> MessagesFromJson(const io::JsonValue& json, bool as_given, ToolArguments arguments, Heap* heap);

// The list `tools`; fails on what is no array of objects.
Result<Value> ToolsFromJson(const io::JsonValue& json, Heap* heap);

}  // namespace mla::chat

#endif  // MLA_CHAT_CONVERSATION_H_
