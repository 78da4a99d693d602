// What an engine has seen of conversations, so that their next turns begin with the very ids: a reply's text, encoded
// anew, might be cut into other tokens than the model drew, and its rows would not be found.
#ifndef MLA_CHAT_SEEN_TURNS_H_
#define MLA_CHAT_SEEN_TURNS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "mla/chat.h"
#include "mla/result.h"
#include "mla/tokenizer.h"

namespace mla::chat {

// A rendered conversation with a reply behind it, which no template wrote, and the ids of both.
struct SeenTurn {
  ChatText text;
  std::vector<std::int32_t> ids;
};

// A prompt, and the ids that it was given, with a reply behind them.
SeenTurn WithReply(SeenTurn prompt, std::string_view text, std::span<const std::int32_t> ids);

// The ids of a conversation that goes on from a turn: those seen, and those of the rest. Nothing where the template
// writes what was seen in another way, or marks other parts of it as its own; or where no special token comes next: a
// text is cut there anyway, and elsewhere its beginning may be encoded in another way than its middle. Fails as the
// tokenizer does.
Result<std::optional<std::vector<std::int32_t>>> GoOnFrom(const SeenTurn& seen, const Tokenizer& tokenizer,
                                                          const ChatText& now);

// The turns of several conversations, the least recently used of them forgotten first. Thread-safe.
class SeenTurns {
 public:
  // At most so many turns, of so many bytes of text and ids together.
  SeenTurns(std::size_t most_turns, std::size_t most_bytes) : most_turns_(most_turns), most_bytes_(most_bytes) {}

  // A prompt with its ids, and the ids of its output. A reply with special tokens is not remembered: its text could
  // be somebody's words as well. Turns that this one goes on from are forgotten.
  void Add(const Tokenizer& tokenizer, const SeenTurn& prompt, std::span<const std::int32_t> reply);
  // The ids of a rendered conversation, from the longest turn on that it goes on from; else as EncodeChat, which also
  // says how it fails.
  Result<std::vector<std::int32_t>> Encode(const Tokenizer& tokenizer, const ChatText& now);
  std::size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::size_t most_turns_;
  std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  std::list<std::shared_ptr<const SeenTurn>> turns_;  // the most recently used first
};

}  // namespace mla::chat

#endif  // MLA_CHAT_SEEN_TURNS_H_
