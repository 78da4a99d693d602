// Python's methods of texts.
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "chat/builtins.h"
#include "chat/text_operations.h"

namespace mla::chat {
namespace {

template <bool left, bool right>
Result<Value> StripMethod(Call& call) {
  if (call.args[0] == nullptr || call.args[0]->is_none())
    return Strip(call.subject.text(), nullptr, left, right, call.heap);
  MLA_ASSIGN_OR_RETURN(const std::string_view set, TextArgument(call, 0, ""));
  return Strip(call.subject.text(), &set, left, right, call.heap);
}

template <Case to>
Result<Value> CaseMethod(Call& call) {
  return ChangeCase(call.subject.text(), to, false, call.heap);
}

// split(): runs of white space part, and ends give no empty parts.
std::vector<Value> SplitAtSpace(const MarkedText& text, std::int64_t most, Heap* heap) {
  std::vector<Value> parts;
  const std::string_view bytes = text.bytes;
  std::size_t at = 0;
  while (heap->ok()) {
    while (at < bytes.size() && IsSpaceAt(bytes, at)) at += CharacterBytes(bytes, at);
    if (at == bytes.size()) break;
    std::size_t end = at;
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
      end = bytes.size();  // what is left, with the white space inside and behind it
    } else {
      while (end < bytes.size() && !IsSpaceAt(bytes, end)) end += CharacterBytes(bytes, end);
    }
    parts.push_back(Part(text, at, end, heap));
    at = end;
  }
  return parts;
}

std::vector<Value> SplitAt(const MarkedText& text, std::string_view separator, std::int64_t most, bool from_end,
                           Heap* heap) {
  std::vector<std::size_t> cuts;
  const std::string_view bytes = text.bytes;
  std::size_t at = from_end ? bytes.size() : 0;
  while (static_cast<std::int64_t>(cuts.size()) != most) {
    heap->Spend(1);
    if (from_end && at < separator.size()) break;
    const std::size_t found = from_end ? bytes.rfind(separator, at - separator.size()) : bytes.find(separator, at);
    if (found == std::string_view::npos) break;
    cuts.push_back(found);
    at = from_end ? found : found + separator.size();
    if (!heap->ok()) return {};
  }
  if (from_end) std::reverse(cuts.begin(), cuts.end());
  std::vector<Value> parts;
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) {
    if (!heap->ok()) return parts;
    parts.push_back(Part(text, begin, cut, heap));
    begin = cut + separator.size();
  }
  parts.push_back(Part(text, begin, bytes.size(), heap));
  return parts;
}

template <bool from_end>
Result<Value> Split(Call& call) {
  call.heap->SpendBytes(call.subject.bytes().size());
  MLA_ASSIGN_OR_RETURN(const std::int64_t most, WholeArgument(call, 1, -1));
  const bool space = call.args[0] == nullptr || call.args[0]->is_none();
  if (space) {
    if (from_end && most >= 0) return Error{"at white space with a bound is not supported"};
    return Value::List(call.heap, ListFlavor::kList, SplitAtSpace(call.subject.text(), most, call.heap));
  }
  MLA_ASSIGN_OR_RETURN(const std::string_view separator, TextArgument(call, 0, ""));
  if (separator.empty()) return Error{"an empty separator"};
  return Value::List(call.heap, ListFlavor::kList, SplitAt(call.subject.text(), separator, most, from_end, call.heap));
}

// Bytes of the line end that stands at `at`, 0 where none does.
std::size_t LineEndAt(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at);
  if (rest.substr(0, 2) == "\r\n") return 2;
  const char c = rest[0];
  if ((c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e)) return 1;
  if (rest.substr(0, 2) == "\u0085") return 2;
  return rest.substr(0, 3) == "\u2028" || rest.substr(0, 3) == "\u2029" ? 3 : 0;
}

Result<Value> SplitLines(Call& call) {
  const MarkedText& text = call.subject.text();
  const bool keep = TrueArgument(call, 0, false);
  call.heap->SpendBytes(text.bytes.size() * 8);
  std::vector<Value> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.bytes.size() && call.heap->ok();) {
    const std::size_t end = LineEndAt(text.bytes, at);
    at += end == 0 ? 1 : end;
    if (end == 0) continue;
    lines.push_back(Part(text, begin, keep ? at : at - end, call.heap));
    begin = at;
  }
  if (begin < text.bytes.size()) lines.push_back(Part(text, begin, text.bytes.size(), call.heap));
  return Value::List(call.heap, ListFlavor::kList, std::move(lines));
}

// A text, or a tuple of which one has to be there.
template <bool at_end>
Result<Value> BeginsOrEnds(Call& call) {
  const Value& given = *call.args[0];
  const bool tuple = given.is_list() && given.list().flavor == ListFlavor::kTuple;
  const std::vector<Value> words = tuple ? given.list().items : std::vector<Value>{given};
  const std::string_view text = call.subject.bytes();
  for (const Value& word : words) {
    if (!word.is_text()) return Error{fmt::format("expected a text, found {}", KindName(word))};
    const std::string_view w = word.bytes();
    if (at_end ? text.ends_with(w) : text.starts_with(w)) return Value::Bool(true);
  }
  return Value::Bool(false);
}

template <bool from_end>
Result<Value> Find(Call& call) {
  MLA_ASSIGN_OR_RETURN(const std::string_view word, TextArgument(call, 0, ""));
  const std::string_view text = call.subject.bytes();
  call.heap->SpendBytes(text.size());
  const std::size_t found = from_end ? text.rfind(word) : text.find(word);
  if (found == std::string_view::npos) return Value::Int(-1);
  return Value::Int(static_cast<std::int64_t>(CharacterCount(text.substr(0, found))));
}

Result<Value> Count(Call& call) {
  MLA_ASSIGN_OR_RETURN(const std::string_view word, TextArgument(call, 0, ""));
  const std::string_view text = call.subject.bytes();
  call.heap->SpendBytes(text.size());
  if (word.empty()) return Value::Int(static_cast<std::int64_t>(call.subject.text_object().characters) + 1);
  std::int64_t count = 0;
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + word.size())) ++count;
  return Value::Int(count);
}

Result<Value> ReplaceMethod(Call& call) {
  MLA_ASSIGN_OR_RETURN(const std::string_view from, TextArgument(call, 0, ""));
  if (!call.args[1]->is_text()) return Error{fmt::format("expected a text, found {}", KindName(*call.args[1]))};
  MLA_ASSIGN_OR_RETURN(const std::int64_t most, WholeArgument(call, 2, -1));
  return Replace(call.subject.text(), from, call.args[1]->text(), most, call.heap);
}

Result<Value> Join(Call& call) {
  MLA_ASSIGN_OR_RETURN(const Value items, Iterate(*call.args[0], call.heap));
  for (const Value& item : items.list().items) {
    if (!item.is_text()) return Error{fmt::format("expected texts, found {}", KindName(item))};
  }
  return JoinTexts(items.list().items, call.subject.text(), call.heap);
}

template <bool prefix>
Result<Value> RemoveAffix(Call& call) {
  MLA_ASSIGN_OR_RETURN(const std::string_view affix, TextArgument(call, 0, ""));
  const MarkedText& text = call.subject.text();
  const std::string_view bytes = text.bytes;
  if (!(prefix ? bytes.starts_with(affix) : bytes.ends_with(affix))) return call.subject;
  if (prefix) return Part(text, affix.size(), bytes.size(), call.heap);
  return Part(text, 0, bytes.size() - affix.size(), call.heap);
}

constexpr std::array<Builtin, 19> kMethods = {{
    {"strip", StripMethod<true, true>, {"chars"}},
    {"lstrip", StripMethod<true, false>, {"chars"}},
    {"rstrip", StripMethod<false, true>, {"chars"}},
    {"split", Split<false>, {"sep", "maxsplit"}},
    {"rsplit", Split<true>, {"sep", "maxsplit"}},
    {"splitlines", SplitLines, {"keepends"}},
    {"startswith", BeginsOrEnds<false>, {"prefix"}, 1},
    {"endswith", BeginsOrEnds<true>, {"suffix"}, 1},
    {"find", Find<false>, {"sub"}, 1},
    {"rfind", Find<true>, {"sub"}, 1},
    {"count", Count, {"sub"}, 1},
    {"replace", ReplaceMethod, {"old", "new", "count"}, 2},
    {"join", Join, {"iterable"}, 1},
    {"upper", CaseMethod<Case::kUpper>},
    {"lower", CaseMethod<Case::kLower>},
    {"capitalize", CaseMethod<Case::kCapitalize>},
    {"title", CaseMethod<Case::kTitle>},
    {"removeprefix", RemoveAffix<true>, {"prefix"}, 1},
    {"removesuffix", RemoveAffix<false>, {"suffix"}, 1},
}};

}  // namespace

std::span<const Builtin> TextMethods() { return kMethods; }

}  // namespace mla::chat
