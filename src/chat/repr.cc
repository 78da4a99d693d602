#include "chat/repr.h"

#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "text/regex.h"
#include "text/utf8.h"

namespace mla::chat {
namespace {

// What Python's str.isprintable says of a character beyond ASCII, by its general category.
class Printable {
 public:
  Result<bool> operator()(std::string_view character) {
    static const Result<text::Regex> pattern = text::Regex::Compile("[\\p{C}\\p{Z}]", "[\\p{C}\\p{Z}]");
    if (!pattern.ok()) return pattern.error();
    if (!matcher_) matcher_.emplace();
    matcher_->StartText(character.size());
    MLA_ASSIGN_OR_RETURN(const auto found, matcher_->Find(*pattern, character, 0));
    return !found.has_value();
  }

 private:
  std::optional<text::RegexMatcher> matcher_;  // most values that are printed need none
};

std::string Escaped(char32_t c) {
  const auto code = static_cast<std::uint32_t>(c);
  if (code == '\n') return "\\n";
  if (code == '\r') return "\\r";
  if (code == '\t') return "\\t";
  if (code < 0x100) return fmt::format("\\x{:02x}", code);
  return code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
}

class Writer {
 public:
  Writer(Heap* heap, MarkedTextBuilder* out) : heap_(heap), out_(out) {}

  Status Write(const Value& value) {
    heap_->Spend(1);
    if (!heap_->ok()) return heap_->Fault();
    switch (value.kind()) {
      case Value::Kind::kUndefined: return Put("Undefined");
      case Value::Kind::kNone: return Put("None");
      case Value::Kind::kBool: return Put(value.boolean() ? "True" : "False");
      case Value::Kind::kInt: return Put(fmt::format("{}", value.integer()));
      case Value::Kind::kFloat: return Put(FloatText(value.number()));
      case Value::Kind::kText: return Quote(value.bytes());
      case Value::Kind::kList: return WriteList(value.list());
      case Value::Kind::kDict: return WriteDict(value.dict());
      default: return Error{fmt::format("{} has no text", KindName(value))};
    }
  }

 private:
  Status Put(std::string_view bytes) {
    out_->AppendUntrusted(bytes);
    return {};
  }

  Status WriteList(const ListObject& list) {
    if (list.flavor > ListFlavor::kTuple) return Error{"a range, a view or a generator has no text: `list` makes one"};
    const bool tuple = list.flavor == ListFlavor::kTuple;
    out_->AppendUntrusted(tuple ? "(" : "[");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_->AppendUntrusted(", ");
      MLA_RETURN_IF_ERROR(Write(list.items[i]));
    }
    if (tuple && list.items.size() == 1) out_->AppendUntrusted(",");
    return Put(tuple ? ")" : "]");
  }

  Status WriteDict(const DictObject& dict) {
    out_->AppendUntrusted("{");
    for (std::size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) out_->AppendUntrusted(", ");
      MLA_RETURN_IF_ERROR(Write(dict.entries[i].first));
      out_->AppendUntrusted(": ");
      MLA_RETURN_IF_ERROR(Write(dict.entries[i].second));
    }
    return Put("}");
  }

  Status Quote(std::string_view text) {
    const bool has_single = text.find('\'') != std::string_view::npos;
    const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
    std::string quoted(1, quote);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t bytes = CharacterBytes(text, at);
      const std::string_view character = text.substr(at, bytes);
      at += bytes;
      if (character[0] == quote || character[0] == '\\') {
        quoted += '\\';
        quoted += character;
        continue;
      }
      bool shown = character[0] >= 0x20 && character[0] < 0x7f;
      if (bytes > 1) {
        heap_->Spend(1);
        MLA_ASSIGN_OR_RETURN(shown, printable_(character));
      }
      quoted += shown ? std::string(character) : Escaped(text::NextUtf8(character).code_point);
    }
    quoted += quote;
    return Put(quoted);
  }

  Heap* heap_;
  MarkedTextBuilder* out_;
  Printable printable_;
};

}  // namespace

Status AppendRepr(const Value& value, Heap* heap, MarkedTextBuilder* out) { return Writer(heap, out).Write(value); }

}  // namespace mla::chat
