// Python's methods of lists and mappings, those that change nothing.
#include <array>
#include <vector>

#include <fmt/format.h>

#include "chat/builtins.h"

namespace mla::chat {
namespace {

Result<Value> Get(Call& call) {
  const Value& key = *call.args[0];
  if (key.is_list() || key.is_dict()) return Error{fmt::format("{} can't be a key", KindName(key))};
  call.heap->Spend(static_cast<std::int64_t>(call.subject.dict().entries.size()) / 4);
  if (const Value* found = call.subject.dict().Find(key); found != nullptr) return *found;
  return call.args[1] == nullptr ? Value::None() : *call.args[1];
}

Result<Value> Keys(Call& call) {
  std::vector<Value> items;
  for (const Entry& entry : call.subject.dict().entries) items.push_back(entry.first);
  return Value::List(call.heap, ListFlavor::kView, std::move(items));
}

Result<Value> Values(Call& call) {
  std::vector<Value> items;
  for (const Entry& entry : call.subject.dict().entries) items.push_back(entry.second);
  return Value::List(call.heap, ListFlavor::kView, std::move(items));
}

Result<Value> Items(Call& call) {
  std::vector<Value> items;
  for (const auto& [key, value] : call.subject.dict().entries) {
    if (!call.heap->ok()) return call.heap->Fault();
    items.push_back(Value::List(call.heap, ListFlavor::kTuple, {key, value}));
  }
  return Value::List(call.heap, ListFlavor::kView, std::move(items));
}

Result<Value> Copy(Call& call) { return call.subject; }

bool IsSequence(const Value& value) { return value.list().flavor <= ListFlavor::kRange; }

Result<Value> Index(Call& call) {
  const std::vector<Value>& items = call.subject.list().items;
  for (std::size_t i = 0; i < items.size() && IsSequence(call.subject); ++i) {
    if (!call.heap->ok()) return call.heap->Fault();
    if (Equal(items[i], *call.args[0], call.heap)) return Value::Int(static_cast<std::int64_t>(i));
  }
  return Error{"the value is not in the list"};
}

Result<Value> Count(Call& call) {
  if (!IsSequence(call.subject)) return Error{"of a view or a generator"};
  std::int64_t count = 0;
  for (const Value& item : call.subject.list().items) {
    if (!call.heap->ok()) return call.heap->Fault();
    if (Equal(item, *call.args[0], call.heap)) ++count;
  }
  return Value::Int(count);
}

constexpr std::array<Builtin, 5> kDictMethods = {{
    {"get", Get, {"key", "default"}, 1},
    {"keys", Keys},
    {"values", Values},
    {"items", Items},
    {"copy", Copy},
}};

constexpr std::array<Builtin, 2> kListMethods = {{
    {"index", Index, {"value"}, 1},
    {"count", Count, {"value"}, 1},
}};

}  // namespace

std::span<const Builtin> DictMethods() { return kDictMethods; }
std::span<const Builtin> ListMethods() { return kListMethods; }

}  // namespace mla::chat
