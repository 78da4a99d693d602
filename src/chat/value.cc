#include "chat/value.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "chat/repr.h"

namespace mla::chat {
namespace {

// Of a list or dict that holds `value`.
int NestingAround(const Value& value) {
  if (value.is_list()) return value.list().nesting + 1;
  return value.is_dict() ? value.dict().nesting + 1 : 1;
}

int NestingOf(const std::vector<Value>& items) {
  int nesting = 1;
  for (const Value& item : items) nesting = std::max(nesting, NestingAround(item));
  return nesting;
}

int NestingOf(const std::vector<Entry>& entries) {
  int nesting = 1;
  for (const auto& [key, value] : entries) nesting = std::max({nesting, NestingAround(key), NestingAround(value)});
  return nesting;
}

bool SameNumber(const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole()) return a.integer() == b.integer();
  return a.number() == b.number();
}

bool EqualItems(const std::vector<Value>& a, const std::vector<Value>& b, Heap* heap) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size() && heap->ok(); ++i) {
    if (!Equal(a[i], b[i], heap)) return false;
  }
  return true;
}

bool EqualEntries(const DictObject& a, const DictObject& b, Heap* heap) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    heap->Spend(1 + static_cast<std::int64_t>(b.entries.size()));
    if (!heap->ok()) return false;
    const Value* other = b.Find(key);
    if (other == nullptr || !Equal(value, *other, heap)) return false;
  }
  return true;
}

}  // namespace

Value Value::Undefined(Heap* heap, std::string_view name) {
  Value value;
  value.object_ = std::make_shared<TextObject>(heap, MarkedText::Untrusted(std::string(name)));
  return value;
}

Value Value::Bool(bool value) {
  Value result(Kind::kBool);
  result.content_.integer = value ? 1 : 0;
  return result;
}

Value Value::Int(std::int64_t value) {
  Value result(Kind::kInt);
  result.content_.integer = value;
  return result;
}

Value Value::Float(double value) {
  Value result(Kind::kFloat);
  result.content_.number = value;
  return result;
}

Value Value::Text(Heap* heap, MarkedText text) {
  Value value(Kind::kText);
  value.object_ = std::make_shared<TextObject>(heap, std::move(text));
  return value;
}

Value Value::List(Heap* heap, ListFlavor flavor, std::vector<Value> items) {
  Value value(Kind::kList);
  auto list = std::make_shared<ListObject>(heap, flavor, std::move(items));
  if (heap != nullptr && list->nesting > kMaxNesting) heap->NestsTooDeep();
  value.object_ = std::move(list);
  return value;
}

Value Value::Dict(Heap* heap, std::vector<Entry> entries) {
  Value value(Kind::kDict);
  auto dict = std::make_shared<DictObject>(heap, std::move(entries));
  if (heap != nullptr && dict->nesting > kMaxNesting) heap->NestsTooDeep();
  value.object_ = std::move(dict);
  return value;
}

Value Value::Of(Namespace* space) {
  Value value(Kind::kNamespace);
  value.content_.space = space;
  return value;
}

Value Value::Of(const Macro* macro) {
  Value value(Kind::kMacro);
  value.content_.macro = macro;
  return value;
}

const TextObject& Value::text_object() const { return static_cast<const TextObject&>(*object_); }
const MarkedText& Value::text() const { return text_object().text; }
const ListObject& Value::list() const { return static_cast<const ListObject&>(*object_); }
const DictObject& Value::dict() const { return static_cast<const DictObject&>(*object_); }

std::string_view Value::undefined_name() const {
  return object_ == nullptr ? std::string_view() : static_cast<const TextObject&>(*object_).text.bytes;
}

Object::Object(Heap* heap, std::size_t bytes) : heap_(heap), bytes_(static_cast<std::int64_t>(bytes)) {
  if (heap_ != nullptr) heap_->Take(bytes_);
}

Object::~Object() {
  if (heap_ != nullptr) heap_->GiveBack(bytes_);
}

TextObject::TextObject(Heap* heap, MarkedText marked)
    : Object(heap, sizeof(TextObject) + marked.bytes.size() + marked.trusted.size() * sizeof(TextRange)),
      text(std::move(marked)),
      characters(CharacterCount(text.bytes)) {
  if (heap != nullptr) heap->SpendBytes(text.bytes.size());
}

ListObject::ListObject(Heap* heap, ListFlavor list_flavor, std::vector<Value> list_items)
    : Object(heap, sizeof(ListObject) + list_items.size() * sizeof(Value)),
      flavor(list_flavor),
      items(std::move(list_items)),
      nesting(NestingOf(items)) {
  if (heap != nullptr) heap->Spend(static_cast<std::int64_t>(items.size()) / 4);
}

DictObject::DictObject(Heap* heap, std::vector<Entry> dict_entries)
    : Object(heap, sizeof(DictObject) + dict_entries.size() * sizeof(Entry)),
      entries(std::move(dict_entries)),
      nesting(NestingOf(entries)) {
  if (heap != nullptr) heap->Spend(static_cast<std::int64_t>(entries.size()) / 4);
}

const Value* DictObject::Find(const Value& key) const {
  if (key.is_text()) return Find(key.bytes());
  for (const auto& [name, value] : entries) {
    if (name.is_none() && key.is_none()) return &value;
    if (name.is_number() && key.is_number() && SameNumber(name, key)) return &value;
  }
  return nullptr;
}

const Value* DictObject::Find(std::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name.is_text() && name.bytes() == key) return &value;
  }
  return nullptr;
}

std::string_view KindName(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined: return "an undefined value";
    case Value::Kind::kNone: return "none";
    case Value::Kind::kBool: return "a boolean";
    case Value::Kind::kInt: return "a whole number";
    case Value::Kind::kFloat: return "a number";
    case Value::Kind::kText: return "a text";
    case Value::Kind::kList: return value.list().flavor == ListFlavor::kTuple ? "a tuple" : "a list";
    case Value::Kind::kDict: return "a mapping";
    case Value::Kind::kNamespace: return "a namespace";
    case Value::Kind::kMacro: return "a macro";
    case Value::Kind::kFunction: return "a function";
    case Value::Kind::kMethod: return "a method";
  }
  return "?";
}

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone: return false;
    case Value::Kind::kBool:
    case Value::Kind::kInt: return value.integer() != 0;
    case Value::Kind::kFloat: return value.number() != 0;
    case Value::Kind::kText: return !value.bytes().empty();
    case Value::Kind::kList: return value.list().flavor == ListFlavor::kGenerator || !value.list().items.empty();
    case Value::Kind::kDict: return !value.dict().entries.empty();
    default: return true;
  }
}

bool Equal(const Value& a, const Value& b, Heap* heap) {
  heap->Spend(1);
  if (a.is_number() && b.is_number()) return SameNumber(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone: return true;
    case Value::Kind::kText:
      if (a.bytes().size() != b.bytes().size()) return false;
      heap->SpendBytes(a.bytes().size());
      return a.bytes() == b.bytes();
    case Value::Kind::kList:
      if (&a.list() == &b.list()) return true;
      return a.list().flavor == b.list().flavor && a.list().flavor < ListFlavor::kView &&
             EqualItems(a.list().items, b.list().items, heap);
    case Value::Kind::kDict: return &a.dict() == &b.dict() || EqualEntries(a.dict(), b.dict(), heap);
    case Value::Kind::kNamespace: return a.space() == b.space();
    case Value::Kind::kMacro: return a.macro() == b.macro();
    default: return false;
  }
}

Result<bool> Less(const Value& a, const Value& b, Heap* heap) {
  heap->Spend(1);
  if (a.is_number() && b.is_number()) {
    return a.is_whole() && b.is_whole() ? a.integer() < b.integer() : a.number() < b.number();
  }
  if (a.is_text() && b.is_text()) {
    heap->SpendBytes(std::min(a.bytes().size(), b.bytes().size()));
    return a.bytes() < b.bytes();  // the order of UTF-8 is that of code points
  }
  const bool lists = a.is_list() && b.is_list() && a.list().flavor == b.list().flavor;
  if (!lists || a.list().flavor > ListFlavor::kTuple) {
    return Error{fmt::format("{} and {} have no order", KindName(a), KindName(b))};
  }
  const std::vector<Value>& left = a.list().items;
  const std::vector<Value>& right = b.list().items;
  for (std::size_t i = 0; i < std::min(left.size(), right.size()) && heap->ok(); ++i) {
    if (!Equal(left[i], right[i], heap)) return Less(left[i], right[i], heap);
  }
  return left.size() < right.size();
}

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);  // the shortest that reads back, with an exponent where Python has one
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

Result<MarkedText> ToText(const Value& value, Heap* heap) {
  if (value.is_text()) return value.text();
  MarkedTextBuilder out(heap);
  MLA_RETURN_IF_ERROR(AppendText(value, heap, &out));
  return out.Take();
}

Status AppendText(const Value& value, Heap* heap, MarkedTextBuilder* out) {
  if (value.is_text()) {
    out->Append(value.text());
    return {};
  }
  if (value.is_undefined()) return {};
  return AppendRepr(value, heap, out);
}

Result<Value> Iterate(const Value& value, Heap* heap) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Value::Kind::kUndefined: break;
    case Value::Kind::kList:
      if (value.list().flavor != ListFlavor::kGenerator || !std::exchange(value.list().used, true)) return value;
      break;
    case Value::Kind::kDict:
      for (const auto& entry : value.dict().entries) items.push_back(entry.first);
      break;
    case Value::Kind::kText: {
      const MarkedText& text = value.text();
      for (std::size_t at = 0; at < text.bytes.size() && heap->ok();) {
        MarkedTextBuilder character(heap);
        const std::size_t end = at + CharacterBytes(text.bytes, at);
        character.Append(text, at, end);
        items.push_back(Value::Text(heap, character.Take()));
        at = end;
      }
      break;
    }
    default: return Error{fmt::format("{} can't be gone through", KindName(value))};
  }
  return Value::List(heap, ListFlavor::kList, std::move(items));
}

}  // namespace mla::chat
