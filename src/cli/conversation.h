// A conversation that grows turn by turn, and the ids that the engine has seen of it.
#ifndef MLA_CLI_CONVERSATION_H_
#define MLA_CLI_CONVERSATION_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chat/seen_turns.h"
#include "mla/chat.h"
#include "mla/result.h"
#include "mla/tokenizer.h"

namespace mla::cli {

class Conversation {
 public:
  // `chat` and `tokenizer` outlive it. `settings` is what renderings are given beside the messages.
  Conversation(const ChatTemplate& chat, const Tokenizer& tokenizer, ChatInput settings);

  // A message before all others, also after Reset; nothing: none.
  void SetSystem(std::optional<std::string> text);
  void Reset();
  // Replaces all messages.
  void Set(std::vector<ChatMessage> messages);
  // Ids that were once seen of the messages as they are, up to a reply that ends them: the next prompt goes on from
  // them. False, and nothing changes, where they are not what the template writes.
  bool Recall(std::span<const std::int32_t> ids);
  // All that was seen; empty before the first reply, and where messages have changed since.
  const std::vector<std::int32_t>& seen_ids() const { return seen_.ids; }
  // With the system's message, where there is one.
  std::vector<ChatMessage> messages() const;

  // The prompt's ids with a message of the user behind what there is. Where the template writes earlier turns as they
  // were seen, and a special token next, those are the ids that were seen, so that the engine finds their rows:
  // encoding the text anew might cut a reply into other tokens than the model did. The message counts once AddReply is
  // called. Fails as the template and the tokenizer do.
  Result<std::vector<std::int32_t>> Prompt(const std::string& user);
  // The reply to the last Prompt: its text, and its ids without the one that ended it.
  void AddReply(const std::string& text, std::span<const std::int32_t> ids);

 private:
  const ChatTemplate& chat_;
  const Tokenizer& tokenizer_;
  ChatInput settings_;
  std::optional<std::string> system_;
  std::vector<ChatMessage> messages_;
  // Of the last Prompt.
  ChatMessage asked_;
  chat::SeenTurn prompt_;
  // The last prompt that was answered, with its answer; empty where the messages are no longer those.
  chat::SeenTurn seen_;
};

}  // namespace mla::cli

#endif  // MLA_CLI_CONVERSATION_H_
