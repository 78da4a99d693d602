#include "cli/conversation.h"

#include <algorithm>
#include <utility>

#include "text/ranges.h"

namespace mla::cli {

Conversation::Conversation(const ChatTemplate& chat, const Tokenizer& tokenizer, ChatInput settings)
    : chat_(chat), tokenizer_(tokenizer), settings_(std::move(settings)) {}

void Conversation::SetSystem(std::optional<std::string> text) {
  system_ = std::move(text);
  seen_ids_.clear();
}

void Conversation::Reset() {
  messages_.clear();
  seen_ids_.clear();
}

void Conversation::Set(std::vector<ChatMessage> messages) {
  system_.reset();
  messages_ = std::move(messages);
  seen_ids_.clear();
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
  seen_ = std::move(written).value();
  seen_ids_.assign(ids.begin(), ids.end());
  return true;
}

std::vector<ChatMessage> Conversation::messages() const {
  std::vector<ChatMessage> all;
  if (system_) all.push_back({"system", *system_});
  all.insert(all.end(), messages_.begin(), messages_.end());
  return all;
}

bool Conversation::Continues(const ChatText& now) const {
  if (seen_ids_.empty() || !now.text.starts_with(seen_.text)) return false;
  const std::vector<TextRange> before = text::Clipped(now.trusted, 0, seen_.text.size());
  return std::equal(before.begin(), before.end(), seen_.trusted.begin(), seen_.trusted.end(),
                    [](const TextRange& a, const TextRange& b) { return a.begin == b.begin && a.end == b.end; });
}

Result<std::vector<std::int32_t>> Conversation::Prompt(const std::string& user) {
  asked_ = {"user", user};
  std::vector<ChatMessage> all = messages();
  all.push_back(asked_);
  ChatInput input = settings_;
  input.messages = ChatMessagesJson(all);
  MLA_ASSIGN_OR_RETURN(prompt_, chat_.Render(input));
  if (Continues(prompt_)) {
    const std::size_t begin = seen_.text.size();
    const std::vector<TextRange> trusted = text::Clipped(prompt_.trusted, begin, prompt_.text.size());
    MLA_ASSIGN_OR_RETURN(const auto rest, tokenizer_.Encode(std::string_view(prompt_.text).substr(begin), trusted));
    // At a special token a text is cut anyway; elsewhere its beginning may be encoded in another way than its middle.
    if (!rest.empty() && tokenizer_.IsSpecial(rest[0])) {
      prompt_ids_ = seen_ids_;
      prompt_ids_.insert(prompt_ids_.end(), rest.begin(), rest.end());
      return prompt_ids_;
    }
  }
  MLA_ASSIGN_OR_RETURN(prompt_ids_, EncodeChat(tokenizer_, prompt_));
  return prompt_ids_;
}

void Conversation::AddReply(const std::string& text, std::span<const std::int32_t> ids) {
  messages_.push_back(asked_);
  messages_.push_back({"assistant", text});
  seen_ = prompt_;
  seen_.text += text;
  seen_ids_ = prompt_ids_;
  seen_ids_.insert(seen_ids_.end(), ids.begin(), ids.end());
}

}  // namespace mla::cli
