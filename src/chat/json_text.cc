#include "chat/json_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "text/utf8.h"

namespace mla::chat {
namespace {

void AppendEscape(char32_t c, std::string* out) {
  const auto code = static_cast<std::uint32_t>(c);
  if (code < 0x10000) {
    *out += fmt::format("\\u{:04x}", code);
    return;
  }
  *out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((code - 0x10000) >> 10), 0xdc00 + ((code - 0x10000) & 0x3ff));
}

std::string Quote(std::string_view text, bool ensure_ascii) {
  static constexpr std::string_view kFrom = "\"\\\n\r\t\f\b";
  static constexpr std::string_view kTo = "\"\\nrtfb";
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const std::size_t bytes = byte < 0x80 ? 1 : CharacterBytes(text, at);
    if (const std::size_t known = kFrom.find(text[at]); known != std::string_view::npos) {
      out += '\\';
      out += kTo[known];
    } else if (byte < 0x20 || (byte >= 0x7f && ensure_ascii)) {
      AppendEscape(text::NextUtf8(text.substr(at)).code_point, &out);
    } else {
      out += text.substr(at, bytes);
    }
    at += bytes;
  }
  return out + '"';
}

class Writer {
 public:
  Writer(const JsonStyle& style, Heap* heap, MarkedTextBuilder* out) : style_(style), heap_(heap), out_(out) {}

  Status Write(const Value& value, std::size_t level) {
    heap_->Spend(1);
    if (!heap_->ok()) return heap_->Fault();
    if (value.is_text()) return Put(Quote(value.bytes(), style_.ensure_ascii));
    if (value.is_list() && value.list().flavor <= ListFlavor::kTuple) return WriteList(value.list(), level);
    if (value.is_dict()) return WriteDict(value.dict(), level);
    if (const auto scalar = Scalar(value)) return Put(*scalar);
    return Error{fmt::format("{} has no JSON", KindName(value))};
  }

 private:
  Status Put(std::string_view bytes) {
    out_->AppendUntrusted(bytes);
    return {};
  }

  static std::optional<std::string> Scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.boolean() ? "true" : "false";
    if (value.is_int()) return fmt::format("{}", value.integer());
    if (!value.is_float()) return std::nullopt;
    if (std::isnan(value.number())) return "NaN";
    if (std::isinf(value.number())) return value.number() < 0 ? "-Infinity" : "Infinity";
    return FloatText(value.number());
  }

  void NewLine(std::size_t level) {
    if (!style_.indent) return;
    out_->AppendUntrusted("\n");
    for (std::size_t i = 0; i < level && heap_->ok(); ++i) out_->AppendUntrusted(*style_.indent);
  }

  Status WriteList(const ListObject& list, std::size_t level) {
    if (list.items.empty()) return Put("[]");
    out_->AppendUntrusted("[");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_->AppendUntrusted(style_.item_separator);
      NewLine(level + 1);
      MLA_RETURN_IF_ERROR(Write(list.items[i], level + 1));
    }
    NewLine(level);
    return Put("]");
  }

  Status WriteDict(const DictObject& dict, std::size_t level) {
    if (dict.entries.empty()) return Put("{}");
    std::vector<const Entry*> entries;
    for (const Entry& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) MLA_RETURN_IF_ERROR(Sort(&entries));
    out_->AppendUntrusted("{");
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const auto& [key, value] = *entries[i];
      if (i > 0) out_->AppendUntrusted(style_.item_separator);
      NewLine(level + 1);
      if (key.is_text()) {
        out_->AppendUntrusted(Quote(key.bytes(), style_.ensure_ascii));
      } else if (const auto scalar = Scalar(key)) {
        out_->AppendUntrusted('"' + *scalar + '"');
      }
      out_->AppendUntrusted(style_.key_separator);
      MLA_RETURN_IF_ERROR(Write(value, level + 1));
    }
    NewLine(level);
    return Put("}");
  }

  Status Sort(std::vector<const Entry*>* entries) {
    const bool texts = std::all_of(entries->begin(), entries->end(), [](const Entry* e) { return e->first.is_text(); });
    if (!texts) return Error{"keys that are no texts can't be sorted"};
    heap_->Spend(static_cast<std::int64_t>(entries->size()) * 4);
    std::stable_sort(entries->begin(), entries->end(),
                     [](const Entry* a, const Entry* b) { return a->first.bytes() < b->first.bytes(); });
    return {};
  }

  const JsonStyle& style_;
  Heap* heap_;
  MarkedTextBuilder* out_;
};

}  // namespace

Status AppendJson(const Value& value, const JsonStyle& style, Heap* heap, MarkedTextBuilder* out) {
  return Writer(style, heap, out).Write(value, 0);
}

}  // namespace mla::chat
