// A chat model's output, taken apart: reasoning, content, and tool calls, as they come.
#ifndef MLA_SERVER_REPLY_H_
#define MLA_SERVER_REPLY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mla::server {

// A piece of a reply. Texts are what is new.
struct ReplyPart {
  enum class Kind : std::uint8_t { kReasoning, kContent, kCallBegin, kCallArguments };
  Kind kind = Kind::kContent;
  std::string text;  // of kCallBegin: the function's name
  std::int64_t call = 0;
  std::string call_id;  // kCallBegin: as the model wrote it, "" where it wrote none
};

// Formats, by their markers: <think>...</think>, with or without its opening; DeepSeek-V3's and R1's
// "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\nARGUMENTS\n```<｜tool▁call▁end｜>", V3.1's
// "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>ARGUMENTS<｜tool▁call▁end｜>", and Kimi K2's
// "<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>ARGUMENTS<|tool_call_end|>".
class ReplyParser {
 public:
  struct Options {
    bool in_reasoning = false;  // the prompt ended with <think>
    bool tools = false;         // tool calls are parsed; else their markers stay text
  };
  explicit ReplyParser(Options options);

  // What is certain now that `piece` has come. Never keeps back more than a marker's length, but for a call's name.
  std::vector<ReplyPart> Push(std::string_view piece);
  // The rest: what was kept back is what it looks like.
  std::vector<ReplyPart> Finish();
  std::int64_t calls() const { return calls_; }

  // Whether a special token, of that text, is one of the markers.
  static bool IsMarker(std::string_view token);

 private:
  enum class State : std::uint8_t {
    kStart,
    kReasoning,
    kContent,
    kBetweenCalls,
    kName,
    kFenced,
    kArguments,
    kAfterFence
  };

  bool Advance(std::vector<ReplyPart>* parts, bool at_end);
  bool Start(std::vector<ReplyPart>* parts, bool at_end);
  bool Name(std::vector<ReplyPart>* parts);
  bool UpTo(std::string_view marker, State next, ReplyPart::Kind kind, std::vector<ReplyPart>* parts);
  void Emit(ReplyPart::Kind kind, std::size_t bytes, std::vector<ReplyPart>* parts);

  bool tools_;
  State state_;
  std::string held_;
  std::int64_t calls_ = 0;
  bool kimi_ = false;
  bool skip_space_ = false;
};

}  // namespace mla::server

#endif  // MLA_SERVER_REPLY_H_
