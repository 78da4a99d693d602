#include <cstddef>

#include "mla/tokenizer.h"
#include "text/utf8.h"

namespace mla {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Moves what is decided from the front of `pending` to the end of `out`: all but an unfinished character.
void Drain(std::string& pending, std::string& out) {
  std::string_view rest = pending;
  while (!rest.empty()) {
    const text::Utf8Step step = text::NextUtf8(rest);
    if (step.kind == text::Utf8Kind::kUnfinished) break;
    out += step.kind == text::Utf8Kind::kCharacter ? rest.substr(0, step.bytes) : kReplacement;
    rest.remove_prefix(step.bytes);
  }
  pending.erase(0, pending.size() - rest.size());
}

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool with_special)
    : tokenizer_(&tokenizer), with_special_(with_special), beginning_(tokenizer.AtBeginning()) {}

std::string StreamDecoder::Push(std::int32_t id) {
  // A special token ends what was before it, shown or not: halves of a character on its two sides are no character.
  if (!with_special_ && tokenizer_->IsSpecial(id)) return Finish();
  pending_ += tokenizer_->BytesAt(id, beginning_);
  std::string out;
  Drain(pending_, out);
  return out;
}

std::string StreamDecoder::Finish() {
  std::string out(pending_.empty() ? std::string_view() : kReplacement);
  pending_.clear();
  return out;
}

}  // namespace mla
