// Tokens -> Template. What this interpreter lacks ends here, by name and line, not in the middle of a conversation.
#ifndef MLA_CHAT_PARSER_H_
#define MLA_CHAT_PARSER_H_

#include <cstddef>
#include <string_view>

#include "chat/ast.h"
#include "mla/result.h"

namespace mla::chat {

// Of a template's source.
inline constexpr std::size_t kMostSourceBytes = std::size_t{1} << 20;

// Errors begin with "line N: " where they have one.
Result<Template> ParseTemplate(std::string_view source);

}  // namespace mla::chat

#endif  // MLA_CHAT_PARSER_H_
