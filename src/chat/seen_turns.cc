#include "chat/seen_turns.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "text/ranges.h"

namespace mla::chat {
namespace {

bool Begins(const SeenTurn& seen, const ChatText& now) {
  if (!now.text.starts_with(seen.text.text)) return false;
  const std::vector<TextRange> before = text::Clipped(now.trusted, 0, seen.text.text.size());
  return std::equal(before.begin(), before.end(), seen.text.trusted.begin(), seen.text.trusted.end(),
                    [](const TextRange& a, const TextRange& b) { return a.begin == b.begin && a.end == b.end; });
}

std::size_t BytesOf(const SeenTurn& turn) {
  return turn.text.text.size() + turn.text.trusted.size() * sizeof(TextRange) + turn.ids.size() * sizeof(std::int32_t);
}

using MaybeIds = std::optional<std::vector<std::int32_t>>;

// Precondition: Begins.
Result<MaybeIds> GoOn(const SeenTurn& seen, const Tokenizer& tokenizer, const ChatText& now) {
  const std::size_t begin = seen.text.text.size();
  const std::vector<TextRange> trusted = text::Clipped(now.trusted, begin, now.text.size());
  MLA_ASSIGN_OR_RETURN(const auto rest, tokenizer.Encode(std::string_view(now.text).substr(begin), trusted));
  if (rest.empty() || !tokenizer.IsSpecial(rest[0])) return MaybeIds();
  MaybeIds ids = seen.ids;
  ids->insert(ids->end(), rest.begin(), rest.end());
  return ids;
}

}  // namespace

SeenTurn WithReply(SeenTurn prompt, std::string_view text, std::span<const std::int32_t> ids) {
  prompt.text.text += text;
  prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
  return prompt;
}

Result<MaybeIds> GoOnFrom(const SeenTurn& seen, const Tokenizer& tokenizer, const ChatText& now) {
  if (seen.ids.empty() || !Begins(seen, now)) return MaybeIds();
  return GoOn(seen, tokenizer, now);
}

void SeenTurns::Add(const Tokenizer& tokenizer, const SeenTurn& prompt, std::span<const std::int32_t> reply) {
  if (std::any_of(reply.begin(), reply.end(), [&](std::int32_t id) { return tokenizer.IsSpecial(id); })) return;
  auto turn = std::make_shared<const SeenTurn>(WithReply(prompt, tokenizer.Decode(reply), reply));
  const std::lock_guard<std::mutex> lock(mutex_);
  turns_.remove_if([&](const auto& other) {
    if (!turn->text.text.starts_with(other->text.text)) return false;
    bytes_ -= BytesOf(*other);
    return true;
  });
  bytes_ += BytesOf(*turn);
  turns_.push_front(std::move(turn));
  while (turns_.size() > most_turns_ || bytes_ > most_bytes_) {
    bytes_ -= BytesOf(*turns_.back());
    turns_.pop_back();
  }
}

Result<std::vector<std::int32_t>> SeenTurns::Encode(const Tokenizer& tokenizer, const ChatText& now) {
  std::shared_ptr<const SeenTurn> longest;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto found = turns_.end();
    for (auto it = turns_.begin(); it != turns_.end(); ++it) {
      const bool longer = found == turns_.end() || (*it)->text.text.size() > (*found)->text.text.size();
      if (longer && Begins(**it, now)) found = it;
    }
    if (found != turns_.end()) {
      turns_.splice(turns_.begin(), turns_, found);
      longest = *found;
    }
  }
  if (longest) {
    MLA_ASSIGN_OR_RETURN(MaybeIds ids, GoOn(*longest, tokenizer, now));
    if (ids) return *std::move(ids);
  }
  return EncodeChat(tokenizer, now);
}

std::size_t SeenTurns::size() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return turns_.size();
}

}  // namespace mla::chat
