// Conversations as the checkpoint's own chat template writes them.
#ifndef MLA_CHAT_H_
#define MLA_CHAT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mla/result.h"
#include "mla/tokenizer.h"

namespace mla {

// What a template is given. JSON as an OpenAI request has it.
struct ChatInput {
  // An array of objects with a "role", and "content": a string, null, or a list of {"type": "text", "text": ...}.
  // Other members ("name", "tool_calls", "tool_call_id", "reasoning_content", ...) reach the template as they are.
  std::string messages;
  std::string tools;      // an array of objects; "" for none
  std::string variables;  // further variables, such as {"enable_thinking": false}: an object; "" for none
  // The name of one of several templates; "": "tool_use" where there are tools and such a template, else "default".
  std::string template_name;
  // Whether the text ends with what opens the assistant's turn.
  bool add_generation_prompt = true;
  // Messages reach the template exactly as they are written above. Otherwise they are first brought to what templates
  // are written for: content that is a list of texts becomes one string, with line feeds between; absent content
  // becomes null; a tool call's arguments become a JSON string or an object, whichever this template can write (found
  // out when it was loaded).
  bool as_given = false;
  // What strftime_now tells, in seconds since 1970; nothing: the system's clock. Always in local time.
  std::optional<std::int64_t> now;
};

// A rendered conversation. What a template wrote by itself is trusted: added tokens (<｜User｜>) are meant there, and
// only there. What came from messages, tools and variables stays text, whatever it looks like and whichever filters it
// passed. The roles system, user, assistant, tool and developer alone are the template's words: it builds tokens of
// them.
struct ChatText {
  std::string text;                // valid UTF-8
  std::vector<TextRange> trusted;  // in order; not empty, and neither overlapping nor touching each other
};

// Immutable once loaded; const functions may be called from several threads at once.
class ChatTemplate {
 public:
  // Reads what transformers reads: DIR/chat_template.jinja and DIR/additional_chat_templates/*.jinja where they are
  // there, else "chat_template" of DIR/tokenizer_config.json: a string, or a list of {"name", "template"}. The special
  // tokens that templates may name (bos_token, eos_token, ...) are those of tokenizer_config.json.
  //
  // A folder without a template loads, and names() is empty. Fails where a file can't be read, and where the template
  // that is used by default is no valid Jinja or uses what this interpreter lacks, naming it and its line
  // (docs/chat.md); that of other templates is told by Render.
  static Result<ChatTemplate> Load(const std::string& dir);
  // With the template `source` in place of the folder's; `where` names it in messages, for example its path.
  static Result<ChatTemplate> Load(const std::string& dir, std::string_view source, std::string_view where);

  // Templates that come with the program, for models that have none: their source, or "" where the name is none of
  // them. "plain": turns that begin with "User: " and "Assistant: ", with blank lines between.
  static std::string_view BuiltIn(std::string_view name);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Of the folder's templates: "default" first, where there is one of that name. Empty: there is no template.
  const std::vector<std::string>& names() const;

  // Fails, in one line that names the fault, on JSON of another form than above, a message's part that is no text, an
  // unknown template_name, no template at all, what the template itself refuses (raise_exception) and what Python would
  // (adding a string to none), and where it would take more steps, depth, memory or output than any conversation does.
  Result<ChatText> Render(const ChatInput& input) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The ids of a rendered conversation. Added tokens are parsed where the text is trusted. As transformers does, no BOS
// is added: templates write their own, so there is one and never two. Fails as Tokenizer::Encode.
Result<std::vector<std::int32_t>> EncodeChat(const Tokenizer& tokenizer, const ChatText& chat);

// A message in C++, for those who have no JSON at hand.
struct ChatMessage {
  std::string role;                    // "system", "user", "assistant", "tool", ...; valid UTF-8, as all texts here
  std::optional<std::string> content;  // nothing: null
};
// ChatInput::messages of them.
std::string ChatMessagesJson(std::span<const ChatMessage> messages);

}  // namespace mla

#endif  // MLA_CHAT_H_
