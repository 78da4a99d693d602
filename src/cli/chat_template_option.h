// --template: how conversations are written.
#ifndef MLA_CLI_CHAT_TEMPLATE_OPTION_H_
#define MLA_CLI_CHAT_TEMPLATE_OPTION_H_

#include <string>

#include "mla/chat.h"
#include "mla/result.h"

namespace CLI {
class App;
}

namespace mla::cli {

struct ChatTemplateOptions {
  std::string name;       // of the model's templates or the program's, or a file; "": the model's own
  std::string variables;  // JSON
};

// --template and --variables.
void AddChatTemplateFlags(CLI::App& command, ChatTemplateOptions* options);

// The template, and in *settings what renderings are to be given of it. One without names where nothing was asked for
// and the model has none.
Result<ChatTemplate> LoadChatTemplate(const std::string& model, const ChatTemplateOptions& options,
                                      ChatInput* settings);

}  // namespace mla::cli

#endif  // MLA_CLI_CHAT_TEMPLATE_OPTION_H_
