// Where a checkpoint keeps its chat templates, and the special tokens that they may name.
#ifndef MLA_CHAT_TEMPLATE_FILES_H_
#define MLA_CHAT_TEMPLATE_FILES_H_

#include <string>
#include <utility>
#include <vector>

#include "io/json.h"
#include "mla/result.h"

namespace mla::chat {

struct TemplateSource {
  std::string name;
  std::string text;
  std::string where;  // for messages
};

struct TemplateFiles {
  std::vector<TemplateSource> templates;                    // "default" first, the others by name; may be empty
  std::vector<std::pair<std::string, std::string>> tokens;  // bos_token, ...: their texts
  std::vector<std::pair<std::string, std::vector<std::string>>> token_lists;  // additional_special_tokens
};

// Fails where a file that is there can't be read or has another form.
Result<TemplateFiles> ReadTemplateFiles(const std::string& dir);

}  // namespace mla::chat

#endif  // MLA_CHAT_TEMPLATE_FILES_H_
