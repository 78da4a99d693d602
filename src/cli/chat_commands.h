// What a line that begins with a slash asks of `mla chat`.
#ifndef MLA_CLI_CHAT_COMMANDS_H_
#define MLA_CLI_CHAT_COMMANDS_H_

#include <string>
#include <string_view>
#include <vector>

#include "cli/conversation.h"
#include "mla/chat.h"
#include "mla/engine.h"
#include "mla/result.h"

namespace mla::cli {

enum class LineKind { kMessage, kCommand, kQuit };

// Runs `line` where it is a command; what it has to say goes to `answer`. "//x" is the message "/x", and is cut to it.
// What was computed of a conversation is saved and loaded with it, beside its file (docs/cache-files.md). Fails where
// the command is unknown or could not be done; the conversation is then as before.
Result<LineKind> RunCommand(std::string* line, Conversation* conversation, Engine* engine, std::string* answer);

// Messages as a JSON array, one a line, and back: objects of "role" and "content" alone. Writing replaces a file only
// when all of the new one is there.
Status SaveMessages(const std::string& path, const std::vector<ChatMessage>& messages);
Result<std::vector<ChatMessage>> LoadMessages(const std::string& path);

}  // namespace mla::cli

#endif  // MLA_CLI_CHAT_COMMANDS_H_
