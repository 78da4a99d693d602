// A template's source -> tokens, with white space already controlled as trim_blocks and lstrip_blocks do.
#ifndef MLA_CHAT_LEXER_H_
#define MLA_CHAT_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mla/result.h"

namespace mla::chat {

struct Token {
  enum class Kind : std::uint8_t {
    kData,           // text outside of tags
    kVariableBegin,  // {{
    kVariableEnd,    // }}
    kBlockBegin,     // {%
    kBlockEnd,       // %}
    kName,
    kString,  // its value, escapes resolved
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  int line = 1;
  std::string text;
  std::int64_t integer = 0;
  double number = 0;
};

// Errors begin with "line N: ". `source` is valid UTF-8.
Result<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace mla::chat

#endif  // MLA_CHAT_LEXER_H_
