// One output of a request: its ids turned into text, cut at stop texts, with the log-probabilities of what is shown.
#ifndef MLA_SERVER_CHOICE_H_
#define MLA_SERVER_CHOICE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "mla/engine.h"
#include "mla/tokenizer.h"
#include "server/json_writer.h"
#include "server/reply.h"
#include "server/stop_strings.h"

namespace mla::server {

// A token and where its text lies in the output (or in echo and output).
struct ShownToken {
  std::int32_t id = 0;
  std::optional<float> logprob;  // nothing: the first of a prompt
  std::vector<TokenLogprob> top;
  std::int64_t begin = 0;  // bytes
  std::int64_t end = 0;
  std::int64_t characters = 0;  // before it
};

// What a token, or the end, has made certain.
struct Shown {
  std::string text;
  std::vector<ReplyPart> parts;  // of chat: the text taken apart
  std::vector<ShownToken> tokens;
};

class Choice {
 public:
  struct Options {
    std::vector<std::string> stop;
    std::optional<ReplyParser::Options> chat;
    bool keep_tokens = false;  // for log-probabilities
  };
  // `tokenizer` outlives it.
  Choice(const Tokenizer& tokenizer, Options options);

  // The prompt's tokens before any output: shown as they are, and no stop text is looked for.
  Shown Echo(const std::vector<std::int32_t>& prompt);
  Shown Push(std::int32_t id, float logprob, const std::vector<TokenLogprob>& top);
  Shown Finish();
  // A stop text is whole: nothing more is shown.
  bool stopped() const { return stop_.stopped(); }
  std::int64_t calls() const { return reply_ ? reply_->calls() : 0; }

 private:
  void Note(ShownToken token, std::string_view piece);
  Shown Release(std::string text, bool at_end);

  const Tokenizer* tokenizer_;
  bool keep_tokens_;
  StreamDecoder decoder_;
  StopStrings stop_;
  std::optional<ReplyParser> reply_;
  std::deque<ShownToken> held_;
  std::int64_t decoded_ = 0;     // bytes
  std::int64_t characters_ = 0;  // of them
  std::int64_t shown_ = 0;       // bytes
};

// OpenAI's two forms of log-probabilities. `alternatives`: 0 leaves the list of likeliest tokens out of the first form.
void WriteTextLogprobs(const Tokenizer& tokenizer, const std::vector<ShownToken>& tokens, std::int64_t alternatives,
                       JsonWriter* json);
void WriteChatLogprobs(const Tokenizer& tokenizer, const std::vector<ShownToken>& tokens, JsonWriter* json);

}  // namespace mla::server

#endif  // MLA_SERVER_CHOICE_H_
