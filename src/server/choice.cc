#include "server/choice.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "io/quote.h"

namespace mla::server {
namespace {

// JSON has no infinity; OpenAI's interface names this number for it.
constexpr double kLeastLogprob = -9999;

double Told(float logprob) { return std::max(static_cast<double>(logprob), kLeastLogprob); }

std::int64_t Characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

// A token's bytes as text; those that are no whole characters as OpenAI's interface spells them.
std::string TokenText(const Tokenizer& tokenizer, std::int32_t id) {
  const std::string_view bytes = tokenizer.TokenBytes(id);
  if (io::ValidUtf8Prefix(bytes) == bytes.size()) return std::string(bytes);
  std::string text = "bytes:";
  for (const char c : bytes) fmt::format_to(std::back_inserter(text), "\\x{:02x}", static_cast<unsigned char>(c));
  return text;
}

void WriteChatToken(const Tokenizer& tokenizer, std::int32_t id, float logprob, JsonWriter* json) {
  json->Key("token").String(TokenText(tokenizer, id)).Key("logprob").Number(Told(logprob));
  json->Key("bytes").BeginArray();
  for (const char c : tokenizer.TokenBytes(id)) json->Int(static_cast<unsigned char>(c));
  json->EndArray();
}

}  // namespace

Choice::Choice(const Tokenizer& tokenizer, Options options)
    : tokenizer_(&tokenizer), keep_tokens_(options.keep_tokens), decoder_(tokenizer), stop_(std::move(options.stop)) {
  if (options.chat) reply_.emplace(*options.chat);
}

void Choice::Note(ShownToken token, std::string_view piece) {
  token.begin = decoded_;
  token.characters = characters_;
  decoded_ += static_cast<std::int64_t>(piece.size());
  characters_ += Characters(piece);
  token.end = decoded_;
  if (keep_tokens_) held_.push_back(std::move(token));
}

Shown Choice::Release(std::string text, bool at_end) {
  Shown shown;
  shown_ += static_cast<std::int64_t>(text.size());
  // A token is shown with the last of its text; of one that a stop text cuts, a part is.
  while (!held_.empty()) {
    const ShownToken& token = held_.front();
    if (stop_.stopped() ? token.begin >= shown_ : !at_end && token.end > shown_) break;
    shown.tokens.push_back(std::move(held_.front()));
    held_.pop_front();
  }
  if (reply_) shown.parts = reply_->Push(text);
  shown.text = std::move(text);
  return shown;
}

Shown Choice::Echo(const std::vector<std::int32_t>& prompt) {
  std::string text;
  for (const std::int32_t id : prompt) {
    const std::string piece = decoder_.Push(id);
    Note({.id = id, .logprob = std::nullopt, .top = {}}, piece);
    text += piece;
  }
  return Release(std::move(text), false);
}

Shown Choice::Push(std::int32_t id, float logprob, const std::vector<TokenLogprob>& top) {
  std::string piece;
  if (reply_ && tokenizer_->IsSpecial(id) && ReplyParser::IsMarker(tokenizer_->TokenBytes(id))) {
    piece = decoder_.Finish() + std::string(tokenizer_->TokenBytes(id));
  } else {
    piece = decoder_.Push(id);
  }
  Note({.id = id, .logprob = logprob, .top = top}, piece);
  return Release(stop_.Push(piece), false);
}

Shown Choice::Finish() {
  const std::string last = decoder_.Finish();
  decoded_ += static_cast<std::int64_t>(last.size());
  std::string text = stop_.Push(last);
  text += stop_.Finish();
  Shown shown = Release(std::move(text), true);
  if (reply_) {
    for (ReplyPart& part : reply_->Finish()) shown.parts.push_back(std::move(part));
  }
  return shown;
}

void WriteTextLogprobs(const Tokenizer& tokenizer, const std::vector<ShownToken>& tokens, std::int64_t alternatives,
                       JsonWriter* json) {
  json->BeginObject().Key("tokens").BeginArray();
  for (const ShownToken& token : tokens) json->String(TokenText(tokenizer, token.id));
  json->EndArray().Key("token_logprobs").BeginArray();
  for (const ShownToken& token : tokens) token.logprob ? json->Number(Told(*token.logprob)) : json->Null();
  json->EndArray().Key("top_logprobs");
  if (alternatives == 0) {
    json->Null();
  } else {
    json->BeginArray();
    for (const ShownToken& token : tokens) {
      if (!token.logprob) {
        json->Null();
        continue;
      }
      // Ids may share a text; the likeliest stands for it. The token itself is told in any case.
      std::map<std::string, double> top;
      for (const TokenLogprob& t : token.top) top.emplace(TokenText(tokenizer, t.id), Told(t.logprob));
      top.emplace(TokenText(tokenizer, token.id), Told(*token.logprob));
      json->BeginObject();
      for (const auto& [text, logprob] : top) json->Key(text).Number(logprob);
      json->EndObject();
    }
    json->EndArray();
  }
  json->Key("text_offset").BeginArray();
  for (const ShownToken& token : tokens) json->Int(token.characters);
  json->EndArray().EndObject();
}

void WriteChatLogprobs(const Tokenizer& tokenizer, const std::vector<ShownToken>& tokens, JsonWriter* json) {
  json->BeginObject().Key("content").BeginArray();
  for (const ShownToken& token : tokens) {
    json->BeginObject();
    WriteChatToken(tokenizer, token.id, token.logprob.value_or(0), json);
    json->Key("top_logprobs").BeginArray();
    for (const TokenLogprob& t : token.top) {
      json->BeginObject();
      WriteChatToken(tokenizer, t.id, t.logprob, json);
      json->EndObject();
    }
    json->EndArray().EndObject();
  }
  json->EndArray().EndObject();
}

}  // namespace mla::server
