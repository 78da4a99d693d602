#include "cli/conversation.h"

#include <utility>

namespace mla::cli {

Conversation::Conversation(const ChatTemplate& chat, const Tokenizer& tokenizer, ChatInput settings)
    : chat_(chat), tokenizer_(tokenizer), settings_(std::move(settings)) {}

void Conversation::SetSystem(std::optional<std::string> text) {
  system_ = std::move(text);
  seen_.ids.clear();
}

void Conversation::Reset() {
  messages_.clear();
  seen_.ids.clear();
}

void Conversation::Set(std::vector<ChatMessage> messages) {
  system_.reset();
  messages_ = std::move(messages);
  seen_.ids.clear();
}

bool Conversation::Recall(std::span<const std::int32_t> ids) {
  if (messages_.empty() || messages_.back().role != "assistant") return false;
  ChatInput input = settings_;
  std::vector<ChatMessage> all = messages();
  const std::string reply = all.back().content.value_or("");
  all.pop_back();
  input.messages = ChatMessagesJson(all);
  Result<ChatText> written = chat_.Render(input);
  if (!written.ok()) return false;
  written->text += reply;
  if (tokenizer_.Decode(ids, true) != written->text) return false;
  seen_ = {std::move(written).value(), {ids.begin(), ids.end()}};
  return true;
}

std::vector<ChatMessage> Conversation::messages() const {
  std::vector<ChatMessage> all;
  if (system_) all.push_back({"system", *system_});
  all.insert(all.end(), messages_.begin(), messages_.end());
  return all;
}

Result<std::vector<std::int32_t>> Conversation::Prompt(const std::string& user) {
  asked_ = {"user", user};
  std::vector<ChatMessage> all = messages();
  all.push_back(asked_);
  ChatInput input = settings_;
  input.messages = ChatMessagesJson(all);
  MLA_ASSIGN_OR_RETURN(prompt_.text, chat_.Render(input));
  MLA_ASSIGN_OR_RETURN(std::optional<std::vector<std::int32_t>> ids, chat::GoOnFrom(seen_, tokenizer_, prompt_.text));
  if (ids) {
    prompt_.ids = *std::move(ids);
  } else {
    MLA_ASSIGN_OR_RETURN(prompt_.ids, EncodeChat(tokenizer_, prompt_.text));
  }
  return prompt_.ids;
}

void Conversation::AddReply(const std::string& text, std::span<const std::int32_t> ids) {
  messages_.push_back(asked_);
  messages_.push_back({"assistant", text});
  seen_ = chat::WithReply(prompt_, text, ids);
}

}  // namespace mla::cli
