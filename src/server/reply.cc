#include "server/reply.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "server/stop_strings.h"

namespace mla::server {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kEndThink = "</think>";
constexpr std::string_view kSection = "<｜tool▁calls▁begin｜>";
constexpr std::string_view kEndSection = "<｜tool▁calls▁end｜>";
constexpr std::string_view kCall = "<｜tool▁call▁begin｜>";
constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
constexpr std::string_view kEndCall = "<｜tool▁call▁end｜>";
constexpr std::string_view kKimiSection = "<|tool_calls_section_begin|>";
constexpr std::string_view kKimiEndSection = "<|tool_calls_section_end|>";
constexpr std::string_view kKimiCall = "<|tool_call_begin|>";
constexpr std::string_view kKimiArguments = "<|tool_call_argument_begin|>";
constexpr std::string_view kKimiEndCall = "<|tool_call_end|>";
constexpr std::string_view kFence = "```json\n";
constexpr std::string_view kEndFence = "\n```";
constexpr std::string_view kSpace = " \t\r\n";

std::string_view Trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

}  // namespace

bool ReplyParser::IsMarker(std::string_view token) {
  constexpr std::array kMarkers = {kThink,   kEndThink,    kSection,        kEndSection, kCall,          kSeparator,
                                   kEndCall, kKimiSection, kKimiEndSection, kKimiCall,   kKimiArguments, kKimiEndCall};
  return std::find(kMarkers.begin(), kMarkers.end(), token) != kMarkers.end();
}

ReplyParser::ReplyParser(Options options)
    : tools_(options.tools), state_(options.in_reasoning ? State::kReasoning : State::kStart) {
  skip_space_ = options.in_reasoning;
}

std::vector<ReplyPart> ReplyParser::Push(std::string_view piece) {
  std::vector<ReplyPart> parts;
  held_ += piece;
  while (Advance(&parts, false)) {
  }
  return parts;
}

std::vector<ReplyPart> ReplyParser::Finish() {
  std::vector<ReplyPart> parts;
  while (Advance(&parts, true)) {
  }
  const bool reasoning = state_ == State::kReasoning;
  const bool arguments = state_ == State::kArguments || state_ == State::kFenced;
  if (reasoning || state_ == State::kContent || arguments) {
    Emit(reasoning   ? ReplyPart::Kind::kReasoning
         : arguments ? ReplyPart::Kind::kCallArguments
                     : ReplyPart::Kind::kContent,
         held_.size(), &parts);
  }
  held_.clear();
  return parts;
}

void ReplyParser::Emit(ReplyPart::Kind kind, std::size_t bytes, std::vector<ReplyPart>* parts) {
  std::string text = held_.substr(0, bytes);
  held_.erase(0, bytes);
  // Line feeds beside the markers belong to the format.
  if (skip_space_) text.erase(0, std::min(text.find_first_not_of(kSpace), text.size()));
  if (text.empty()) return;
  skip_space_ = false;
  parts->push_back({kind, std::move(text), calls_ - 1, ""});
}

// Emits what stands before the marker, and goes past it where it is whole. False where more text is needed.
bool ReplyParser::UpTo(std::string_view marker, State next, ReplyPart::Kind kind, std::vector<ReplyPart>* parts) {
  const std::size_t at = held_.find(marker);
  if (at == std::string::npos) {
    Emit(kind, held_.size() - PartialSuffix(held_, marker), parts);
    return false;
  }
  Emit(kind, at, parts);
  held_.erase(0, marker.size());
  state_ = next;
  return true;
}

// Reasoning opens a reply or is not there: <think> further on is text about it.
bool ReplyParser::Start(std::vector<ReplyPart>* /*parts*/, bool at_end) {
  const std::string_view text = std::string_view(held_).substr(std::min(held_.find_first_not_of(kSpace), held_.size()));
  if (text.substr(0, kThink.size()) == kThink) {
    held_ = std::string(text.substr(kThink.size()));
    state_ = State::kReasoning;
    skip_space_ = true;
    return true;
  }
  if (!at_end && kThink.substr(0, text.size()) == text) return false;
  state_ = State::kContent;
  return true;
}

// A call's head: up to the arguments.
bool ReplyParser::Name(std::vector<ReplyPart>* parts) {
  const std::string_view separator = kimi_ ? kKimiArguments : kSeparator;
  const std::size_t at = held_.find(separator);
  if (at == std::string::npos) return false;
  std::string_view head = Trimmed(std::string_view(held_).substr(0, at));
  std::size_t rest = at + separator.size();
  ReplyPart part{ReplyPart::Kind::kCallBegin, "", calls_, ""};
  State next = State::kArguments;
  if (kimi_) {
    part.call_id = std::string(head);
    head = head.substr(0, head.rfind(':'));
    if (head.substr(0, 10) == "functions.") head.remove_prefix(10);
  } else if (head == "function") {
    const std::size_t fence = held_.find(kFence, rest);
    if (fence == std::string::npos) return false;
    head = Trimmed(std::string_view(held_).substr(rest, fence - rest));
    rest = fence + kFence.size();
    next = State::kFenced;
  }
  part.text = std::string(head);
  parts->push_back(std::move(part));
  held_.erase(0, rest);
  ++calls_;
  state_ = next;
  skip_space_ = true;
  return true;
}

bool ReplyParser::Advance(std::vector<ReplyPart>* parts, bool at_end) {
  const std::string_view end_call = kimi_ ? kKimiEndCall : kEndCall;
  switch (state_) {
    case State::kStart: return Start(parts, at_end);
    case State::kReasoning:
      if (!UpTo(kEndThink, State::kContent, ReplyPart::Kind::kReasoning, parts)) return false;
      skip_space_ = true;
      return true;
    case State::kContent: {
      if (!tools_) {
        Emit(ReplyPart::Kind::kContent, held_.size(), parts);
        return false;
      }
      const std::size_t keep = std::max(PartialSuffix(held_, kSection), PartialSuffix(held_, kKimiSection));
      const std::size_t kimi = held_.find(kKimiSection);
      const std::size_t deepseek = held_.find(kSection);
      if (kimi != deepseek) {
        kimi_ = kimi < deepseek;
        return UpTo(kimi_ ? kKimiSection : kSection, State::kBetweenCalls, ReplyPart::Kind::kContent, parts);
      }
      Emit(ReplyPart::Kind::kContent, held_.size() - keep, parts);
      return false;
    }
    case State::kBetweenCalls: {
      // What stands between calls is line feeds; the section's end is text's beginning again.
      const std::size_t call = held_.find(kimi_ ? kKimiCall : kCall);
      const std::size_t end = held_.find(kimi_ ? kKimiEndSection : kEndSection);
      if (call == std::string::npos && end == std::string::npos) return false;
      const bool begins = call < end;
      held_.erase(
          0, begins ? call + (kimi_ ? kKimiCall : kCall).size() : end + (kimi_ ? kKimiEndSection : kEndSection).size());
      state_ = begins ? State::kName : State::kContent;
      skip_space_ = true;
      return true;
    }
    case State::kName: return Name(parts);
    case State::kFenced: return UpTo(kEndFence, State::kAfterFence, ReplyPart::Kind::kCallArguments, parts);
    case State::kArguments: return UpTo(end_call, State::kBetweenCalls, ReplyPart::Kind::kCallArguments, parts);
    case State::kAfterFence: {
      const std::size_t at = held_.find(end_call);
      if (at == std::string::npos) return false;
      held_.erase(0, at + end_call.size());
      state_ = State::kBetweenCalls;
      return true;
    }
  }
  return false;
}

}  // namespace mla::server
