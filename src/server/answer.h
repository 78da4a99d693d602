// An answer in the making: the choices of one HTTP request, sent at their end or as they come.
#ifndef MLA_SERVER_ANSWER_H_
#define MLA_SERVER_ANSWER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "mla/tokenizer.h"
#include "server/choice.h"
#include "server/engine_loop.h"
#include "server/http.h"
#include "server/metrics.h"

namespace mla::server {

// What an answer needs to know of its request.
struct AnswerOptions {
  bool chat = false;
  bool echo = false;
  bool stream = false;
  bool include_usage = false;
  std::optional<std::int64_t> logprobs;
  std::int64_t samples = 1;  // of each prompt
  std::string id;            // "cmpl-...", "chatcmpl-..."
  std::string model;
  std::int64_t created = 0;  // seconds since 1970
  std::vector<std::string> stop;
  std::optional<ReplyParser::Options> reply;
  std::function<void(std::span<const std::int32_t>)> replied;  // ChatPrompt's
};

class Answer {
 public:
  // `tokenizer` and `metrics` outlive it. `prompts`: their ids; choice p * samples + s is of prompt p.
  Answer(const Tokenizer& tokenizer, Metrics& metrics, std::shared_ptr<Exchange> exchange, AnswerOptions options,
         std::vector<std::vector<std::int32_t>> prompts);

  // An event of prompt `prompt`. True where that prompt needs no more tokens: its ticket may be cancelled.
  bool OnEvent(std::int64_t prompt, const LoopEvent& event);
  // Ends it with an error, whether or not a stream has begun.
  void Fail(const ApiError& error);
  bool ended() const { return ended_; }
  // HTTP's, or 499 where the client has left.
  int status() const { return status_; }
  void Leave() { ended_ = true, status_ = 499; }

  std::int64_t prompt_tokens() const;
  std::int64_t output_tokens() const;
  std::int64_t cached_tokens() const;
  double seconds() const { return Since(arrived_); }
  const std::string& id() const { return options_.id; }
  bool stream() const { return options_.stream; }

 private:
  struct Output {
    explicit Output(Choice c) : choice(std::move(c)) {}
    Choice choice;
    std::string text;
    std::string reasoning;
    std::vector<ReplyPart> calls;  // name and id, with whole arguments in `arguments`
    std::vector<std::string> arguments;
    std::vector<ShownToken> tokens;
    std::vector<std::int32_t> ids;  // where `replied` is to be told
    std::int64_t generated = 0;
    std::string finish;  // "" until it has ended
    Clock::time_point last;
    bool opened = false;  // chat, streamed: the role is told
  };

  void Begin();
  void OnToken(std::int64_t index, const LoopEvent& event);
  void OnFinished(std::int64_t prompt, const LoopEvent& event);
  void TellReply(std::int64_t index, std::size_t closing);
  void EndChoice(std::int64_t index, std::string reason);
  void Keep(std::int64_t index, Shown shown);
  void Stream(std::int64_t index, const Shown& shown, bool last);
  void EndIfDone();

  void WriteHead(std::string_view object, JsonWriter* json) const;
  void WriteUsage(JsonWriter* json) const;
  void WriteDelta(std::int64_t index, const ReplyPart* part, JsonWriter* json) const;
  void WriteMessage(const Output& output, JsonWriter* json) const;
  void SendChunk(std::int64_t index, const ReplyPart* part, std::string_view text,
                 const std::vector<ShownToken>& tokens, bool last);
  std::string Whole() const;
  std::string CallId(const ReplyPart& call, std::int64_t index) const;

  const Tokenizer* tokenizer_;
  Metrics* metrics_;
  std::shared_ptr<Exchange> exchange_;
  AnswerOptions options_;
  std::vector<std::vector<std::int32_t>> prompts_;
  std::vector<Output> outputs_;
  std::vector<std::int64_t> cached_;  // by prompt
  const Clock::time_point arrived_ = Clock::now();
  bool begun_ = false;
  bool ended_ = false;
  int status_ = 200;
};

}  // namespace mla::server

#endif  // MLA_SERVER_ANSWER_H_
