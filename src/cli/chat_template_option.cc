#include "cli/chat_template_option.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

#include "cli/text_input.h"

namespace mla::cli {

void AddChatTemplateFlags(CLI::App& c, ChatTemplateOptions* o) {
  c.add_option("--template", o->name,
               "How conversations are written: a name of the model's own templates, plain (User: and Assistant:), or a "
               "file; default: the model's");
  c.add_option("--variables", o->variables,
               "Further variables of the template, as a JSON object: {\"thinking\": true}");
}

Result<ChatTemplate> LoadChatTemplate(const std::string& model, const ChatTemplateOptions& o, ChatInput* settings) {
  settings->variables = o.variables;
  if (const std::string_view source = ChatTemplate::BuiltIn(o.name); !source.empty()) {
    return ChatTemplate::Load(model, source, "--template " + o.name);
  }
  MLA_ASSIGN_OR_RETURN(ChatTemplate own, ChatTemplate::Load(model));
  if (o.name.empty()) return own;
  if (std::find(own.names().begin(), own.names().end(), o.name) != own.names().end()) {
    settings->template_name = o.name;
    return own;
  }
  MLA_ASSIGN_OR_RETURN(const std::string source, ReadTextFile(o.name, "chat template"));
  return ChatTemplate::Load(model, source, o.name);
}

}  // namespace mla::cli
