#include "chat/builtins.h"

#include <algorithm>

#include <fmt/format.h>

#include "io/quote.h"

namespace mla::chat {
namespace {

const Builtin* FindIn(std::span<const Builtin> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Builtin& entry) { return entry.name == name; });
  return found == table.end() ? nullptr : &*found;
}

// Python's own, beyond those that are here: they hide a mapping's keys all the same.
constexpr std::array<std::string_view, 11> kPythonDictMethods = {
    "get", "items", "keys", "values", "copy", "pop", "update", "clear", "popitem", "setdefault", "fromkeys"};

Result<Value> ListItem(const Value& value, const Value& key, Heap* heap) {
  const std::vector<Value>& items = value.list().items;
  const auto size = static_cast<std::int64_t>(items.size());
  if (key.is_whole() && value.list().flavor <= ListFlavor::kRange) {
    const std::int64_t at = key.integer() < 0 ? key.integer() + size : key.integer();
    if (at >= 0 && at < size) return items[static_cast<std::size_t>(at)];
  }
  return Value::Undefined(heap, "an item of a list");
}

Result<Value> TextItem(const Value& value, const Value& key, Heap* heap) {
  const TextObject& object = value.text_object();
  const auto size = static_cast<std::int64_t>(object.characters);
  const std::int64_t at = key.is_whole() && key.integer() < 0 ? key.integer() + size : key.integer();
  if (!key.is_whole() || at < 0 || at >= size) return Value::Undefined(heap, "a character of a text");
  const MarkedText& text = object.text;
  const auto index = static_cast<std::size_t>(at);
  if (!object.one_byte_each()) heap->SpendBytes(text.bytes.size());
  const std::size_t begin = object.one_byte_each() ? index : ByteOfCharacter(text.bytes, index);
  MarkedTextBuilder out(heap);
  out.Append(text, begin, begin + CharacterBytes(text.bytes, begin));
  return Value::Text(heap, out.Take());
}

// A member by subscript alone; null where there is none.
const Value* DictItem(const Value& value, const Value& key, Heap* heap) {
  if (!value.is_dict()) return nullptr;
  heap->Spend(static_cast<std::int64_t>(value.dict().entries.size()) / 4);
  return value.dict().Find(key);
}

const Value* SpaceMember(const Value& value, std::string_view name, Heap* heap) {
  if (!value.is_namespace()) return nullptr;
  const auto& members = value.space()->members;
  heap->Spend(static_cast<std::int64_t>(members.size()) / 4);
  const auto found =
      std::find_if(members.begin(), members.end(), [&](const auto& member) { return member.first == name; });
  return found == members.end() ? nullptr : &found->second;
}

}  // namespace

const Builtin* FindFilter(std::string_view name) {
  const Builtin* found = FindIn(TextFilters(), name);
  return found != nullptr ? found : FindIn(ListFilters(), name);
}

const Builtin* FindTest(std::string_view name) { return FindIn(Tests(), name); }

const Builtin* FindFunction(std::string_view name) { return FindIn(Functions(), name); }

const Builtin* FindMethod(Value::Kind of, std::string_view name) {
  if (of == Value::Kind::kText) return FindIn(TextMethods(), name);
  if (of == Value::Kind::kList) return FindIn(ListMethods(), name);
  return of == Value::Kind::kDict ? FindIn(DictMethods(), name) : nullptr;
}

bool IsMethod(std::string_view name) {
  return FindIn(TextMethods(), name) != nullptr || FindIn(ListMethods(), name) != nullptr ||
         FindIn(DictMethods(), name) != nullptr;
}

bool IsPythonMethod(Value::Kind of, std::string_view name) {
  if (of == Value::Kind::kDict)
    return std::find(kPythonDictMethods.begin(), kPythonDictMethods.end(), name) != kPythonDictMethods.end();
  return FindMethod(of, name) != nullptr;
}

Result<Value> Run(const Builtin& builtin, Environment& environment, const Value& subject, const Arguments& arguments) {
  Call call{environment, environment.heap, subject, arguments};
  if (!builtin.variadic) {
    const auto known = std::find(builtin.parameters.begin(), builtin.parameters.end(), std::string_view());
    const auto most = static_cast<std::size_t>(known - builtin.parameters.begin());
    if (arguments.positional.size() > most)
      return Error{fmt::format("'{}' takes at most {} arguments here", builtin.name, most)};
    for (std::size_t i = 0; i < arguments.positional.size(); ++i) call.args[i] = &arguments.positional[i];
    for (const auto& [name, value] : arguments.named) {
      const auto* found = std::find(builtin.parameters.begin(), known, name);
      const auto index = static_cast<std::size_t>(found - builtin.parameters.begin());
      if (found == known || call.args[index] != nullptr)
        return Error{fmt::format("'{}' with the argument '{}' is not supported, or it is given twice", builtin.name,
                                 io::Printable(name, 40))};
      call.args[index] = &value;
    }
    for (std::size_t i = 0; i < builtin.required; ++i) {
      if (call.args[i] == nullptr)
        return Error{fmt::format("'{}' lacks the argument '{}'", builtin.name, builtin.parameters[i])};
    }
  }
  Result<Value> value = builtin.run(call);
  if (!environment.heap->ok()) return environment.heap->Fault();
  if (!value.ok()) return Error{fmt::format("{}: {}", builtin.name, value.error().message)};
  return value;
}

Result<std::int64_t> WholeArgument(const Call& call, std::size_t index, std::int64_t otherwise) {
  if (call.args[index] == nullptr) return otherwise;
  if (call.args[index]->is_whole()) return call.args[index]->integer();
  return Error{fmt::format("expected a whole number, found {}", KindName(*call.args[index]))};
}

Result<std::string_view> TextArgument(const Call& call, std::size_t index, std::string_view otherwise) {
  if (call.args[index] == nullptr) return otherwise;
  if (call.args[index]->is_text()) return call.args[index]->bytes();
  return Error{fmt::format("expected a text, found {}", KindName(*call.args[index]))};
}

bool TrueArgument(const Call& call, std::size_t index, bool otherwise) {
  return call.args[index] == nullptr ? otherwise : IsTrue(*call.args[index]);
}

Error UndefinedError(const Value& value) {
  if (value.undefined_name().empty()) return Error{"an undefined value is used"};
  return Error{fmt::format("{} is undefined", io::Quoted(value.undefined_name()))};
}

Result<Value> GetItem(const Value& value, const Value& key, Heap* heap) {
  if (value.is_undefined()) return UndefinedError(value);
  if (const Value* found = DictItem(value, key, heap); found != nullptr) return *found;
  if (key.is_text()) {
    if (const Value* found = SpaceMember(value, key.bytes(), heap); found != nullptr) return *found;
    if (IsPythonMethod(value.kind(), key.bytes())) return Value::Method();
    return Value::Undefined(heap, key.bytes());
  }
  if (value.is_list()) return ListItem(value, key, heap);
  if (value.is_text()) return TextItem(value, key, heap);
  return Value::Undefined(heap, "a member");
}

Result<Value> GetAttribute(const Value& value, std::string_view name, Heap* heap) {
  if (value.is_undefined()) return UndefinedError(value);
  if (IsPythonMethod(value.kind(), name)) return Value::Method();
  if (const Value* found = SpaceMember(value, name, heap); found != nullptr) return *found;
  if (value.is_dict()) {
    heap->Spend(static_cast<std::int64_t>(value.dict().entries.size()) / 4);
    if (const Value* found = value.dict().Find(name); found != nullptr) return *found;
  }
  return Value::Undefined(heap, name);
}

}  // namespace mla::chat
