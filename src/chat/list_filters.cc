// Jinja's filters over what can be gone through.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "chat/builtins.h"
#include "chat/literals.h"
#include "chat/operators.h"
#include "chat/text_operations.h"
#include "io/quote.h"

namespace mla::chat {
namespace {

Result<Value> Length(Call& call) {
  const Value& value = call.subject;
  if (value.is_undefined()) return Value::Int(0);
  if (value.is_text()) return Value::Int(static_cast<std::int64_t>(value.text_object().characters));
  if (value.is_dict()) return Value::Int(static_cast<std::int64_t>(value.dict().entries.size()));
  if (value.is_list() && value.list().flavor != ListFlavor::kGenerator)
    return Value::Int(static_cast<std::int64_t>(value.list().items.size()));
  return Error{value.is_list() ? "a generator has none: `list` makes a list of it"
                               : fmt::format("{} has none", KindName(value))};
}

Result<Value> List(Call& call) {
  MLA_ASSIGN_OR_RETURN(const Value items, Iterate(call.subject, call.heap));
  if (items.list().flavor == ListFlavor::kList) return items;
  return Value::List(call.heap, ListFlavor::kList, items.list().items);
}

Result<Value> First(Call& call) {
  MLA_ASSIGN_OR_RETURN(const Value items, Iterate(call.subject, call.heap));
  if (items.list().items.empty()) return Value::Undefined(call.heap, "the first of nothing");
  return items.list().items.front();
}

Result<Value> Last(Call& call) {
  if (call.subject.is_list() && call.subject.list().flavor == ListFlavor::kGenerator)
    return Error{"a generator has none: `list` makes a list of it"};
  MLA_ASSIGN_OR_RETURN(const Value items, Iterate(call.subject, call.heap));
  if (items.list().items.empty()) return Value::Undefined(call.heap, "the last of nothing");
  return items.list().items.back();
}

Result<Value> Reverse(Call& call) {
  if (call.subject.is_text()) return Slice(call.subject, Value::None(), Value::None(), Value::Int(-1), call.heap);
  if (call.subject.is_undefined()) return Error{"of an undefined value"};
  MLA_ASSIGN_OR_RETURN(const Value items, Iterate(call.subject, call.heap));
  std::vector<Value> reversed(items.list().items.rbegin(), items.list().items.rend());
  return Value::List(call.heap, ListFlavor::kGenerator, std::move(reversed));
}

Result<Value> Items(Call& call) {
  if (call.subject.is_undefined()) return Value::List(call.heap, ListFlavor::kGenerator, {});
  if (!call.subject.is_dict()) return Error{fmt::format("expected a mapping, found {}", KindName(call.subject))};
  std::vector<Value> items;
  for (const auto& [key, value] : call.subject.dict().entries) {
    if (!call.heap->ok()) return call.heap->Fault();
    items.push_back(Value::List(call.heap, ListFlavor::kTuple, {key, value}));
  }
  return Value::List(call.heap, ListFlavor::kGenerator, std::move(items));
}

// value.a.0.b, as "a.0.b" names it; whole numbers are subscripts. `otherwise` stands for what is not there.
Result<Value> Attribute(Value value, const Value& path, const Value* otherwise, Heap* heap) {
  if (path.is_whole()) return GetItem(value, path, heap);
  if (!path.is_text()) return Error{fmt::format("expected an attribute's name, found {}", KindName(path))};
  std::string_view rest = path.bytes();
  for (bool more = true; more;) {
    const std::size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    more = dot != std::string_view::npos;
    if (more) rest = rest.substr(dot + 1);
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    const auto index = digits ? ParseInt(part, 10) : std::nullopt;
    const Value key = index ? Value::Int(*index) : Value::Text(heap, MarkedText::Untrusted(std::string(part)));
    MLA_ASSIGN_OR_RETURN(value, GetItem(value, key, heap));
    if (value.is_undefined() && otherwise != nullptr && !otherwise->is_none()) value = *otherwise;
  }
  return value;
}

Result<Value> Join(Call& call) {
  MLA_ASSIGN_OR_RETURN(const Value items, Iterate(call.subject, call.heap));
  MarkedText separator;
  if (call.args[0] != nullptr) {
    MLA_ASSIGN_OR_RETURN(separator, ToText(*call.args[0], call.heap));
  }
  if (call.args[1] == nullptr || call.args[1]->is_none()) return JoinTexts(items.list().items, separator, call.heap);
  std::vector<Value> parts;
  for (const Value& item : items.list().items) {
    MLA_ASSIGN_OR_RETURN(Value part, Attribute(item, *call.args[1], nullptr, call.heap));
    parts.push_back(std::move(part));
  }
  return JoinTexts(parts, separator, call.heap);
}

const Value* Named(const Arguments& arguments, std::string_view name) {
  const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                  [&](const auto& argument) { return argument.first == name; });
  return found == arguments.named.end() ? nullptr : &found->second;
}

// The arguments behind the first `count`, for the filter or test that they name.
Arguments Behind(const Arguments& arguments, std::size_t count) {
  Arguments rest;
  rest.named = arguments.named;
  if (arguments.positional.size() > count)
    rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                           arguments.positional.end());
  return rest;
}

Result<Value> Map(Call& call) {
  if (!IsTrue(call.subject)) return Value::List(call.heap, ListFlavor::kGenerator, {});  // none and 0 too
  MLA_ASSIGN_OR_RETURN(const Value items, Iterate(call.subject, call.heap));
  const Value* attribute = Named(call.all, "attribute");
  const Builtin* filter = nullptr;
  if (!call.all.positional.empty()) {
    const Value& name = call.all.positional[0];
    filter = name.is_text() ? FindFilter(name.bytes()) : nullptr;
    if (filter == nullptr) return Error{"expected the name of a filter that is supported"};
  } else if (attribute == nullptr || call.all.named.size() > (Named(call.all, "default") == nullptr ? 1U : 2U)) {
    return Error{"expected a filter's name, or an attribute and its default"};
  }
  const Arguments rest = Behind(call.all, 1);
  std::vector<Value> mapped;
  for (const Value& item : items.list().items) {
    if (!call.heap->ok()) return call.heap->Fault();
    Result<Value> value = filter != nullptr ? Run(*filter, call.environment, item, rest)
                                            : Attribute(item, *attribute, Named(call.all, "default"), call.heap);
    if (!value.ok()) return value;
    mapped.push_back(std::move(value).value());
  }
  return Value::List(call.heap, ListFlavor::kGenerator, std::move(mapped));
}

// select, reject, and the same by an attribute: the items of which the test, or the truth, is `wanted`.
template <bool by_attribute, bool wanted>
Result<Value> Select(Call& call) {
  if (!IsTrue(call.subject)) return Value::List(call.heap, ListFlavor::kGenerator, {});  // none and 0 too
  MLA_ASSIGN_OR_RETURN(const Value items, Iterate(call.subject, call.heap));
  constexpr std::size_t kBefore = by_attribute ? 1 : 0;
  if (call.all.positional.size() < kBefore) return Error{"expected an attribute's name"};
  const Builtin* test = nullptr;
  if (call.all.positional.size() > kBefore) {
    const Value& name = call.all.positional[kBefore];
    test = name.is_text() ? FindTest(name.bytes()) : nullptr;
    if (test == nullptr) return Error{"expected the name of a test that is supported"};
  }
  const Arguments rest = Behind(call.all, kBefore + 1);
  std::vector<Value> kept;
  for (const Value& item : items.list().items) {
    if (!call.heap->ok()) return call.heap->Fault();
    Value tested = item;
    if (by_attribute) {
      MLA_ASSIGN_OR_RETURN(tested, Attribute(item, call.all.positional[0], nullptr, call.heap));
    }
    if (test != nullptr) {
      MLA_ASSIGN_OR_RETURN(tested, Run(*test, call.environment, tested, rest));
    }
    if (IsTrue(tested) == wanted) kept.push_back(item);
  }
  return Value::List(call.heap, ListFlavor::kGenerator, std::move(kept));
}

// What a value is sorted by: its attribute, and texts without their case unless that counts.
Result<Value> SortKey(const Value& item, const Value* attribute, bool case_counts, Heap* heap) {
  Value key = item;
  if (attribute != nullptr && !attribute->is_none()) {
    MLA_ASSIGN_OR_RETURN(key, Attribute(item, *attribute, nullptr, heap));
  }
  if (case_counts || !key.is_text()) return key;
  return ChangeCase(key.text(), Case::kLower, false, heap);
}

struct Keyed {
  Value key;
  Value item;
};

// Stable, as Python's sorted; the first fault of a comparison stops it.
Status SortKeyed(std::vector<Keyed>* items, bool reverse, Heap* heap) {
  std::optional<Error> fault;
  const auto less = [&](const Keyed& a, const Keyed& b) {
    if (fault) return false;
    const Result<bool> result = reverse ? Less(b.key, a.key, heap) : Less(a.key, b.key, heap);
    if (!result.ok()) fault = result.error();
    return result.ok() && *result;
  };
  std::stable_sort(items->begin(), items->end(), less);
  if (fault) return *fault;
  return {};
}

Value ListOf(std::vector<Keyed> keyed, Heap* heap) {
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return Value::List(heap, ListFlavor::kList, std::move(items));
}

Result<Value> Sort(Call& call) {
  MLA_ASSIGN_OR_RETURN(const Value items, Iterate(call.subject, call.heap));
  if (call.args[2] != nullptr && call.args[2]->is_text() && call.args[2]->bytes().find(',') != std::string_view::npos)
    return Error{"by several attributes is not supported"};
  std::vector<Keyed> keyed;
  for (const Value& item : items.list().items) {
    MLA_ASSIGN_OR_RETURN(Value key, SortKey(item, call.args[2], TrueArgument(call, 1, false), call.heap));
    keyed.push_back({std::move(key), item});
  }
  MLA_RETURN_IF_ERROR(SortKeyed(&keyed, TrueArgument(call, 0, false), call.heap));
  return ListOf(std::move(keyed), call.heap);
}

Result<Value> DictSort(Call& call) {
  if (!call.subject.is_dict()) return Error{fmt::format("expected a mapping, found {}", KindName(call.subject))};
  MLA_ASSIGN_OR_RETURN(const std::string_view by, TextArgument(call, 1, "key"));
  if (by != "key" && by != "value") return Error{"expected \"key\" or \"value\""};
  std::vector<Keyed> keyed;
  for (const auto& [name, value] : call.subject.dict().entries) {
    MLA_ASSIGN_OR_RETURN(Value key,
                         SortKey(by == "key" ? name : value, nullptr, TrueArgument(call, 0, false), call.heap));
    keyed.push_back({std::move(key), Value::List(call.heap, ListFlavor::kTuple, {name, value})});
  }
  MLA_RETURN_IF_ERROR(SortKeyed(&keyed, TrueArgument(call, 2, false), call.heap));
  return ListOf(std::move(keyed), call.heap);
}

template <bool greatest>
Result<Value> Extreme(Call& call) {
  MLA_ASSIGN_OR_RETURN(const Value items, Iterate(call.subject, call.heap));
  std::optional<Keyed> best;
  for (const Value& item : items.list().items) {
    MLA_ASSIGN_OR_RETURN(Value key, SortKey(item, call.args[1], TrueArgument(call, 0, false), call.heap));
    bool better = !best;
    if (best) {
      MLA_ASSIGN_OR_RETURN(better, greatest ? Less(best->key, key, call.heap) : Less(key, best->key, call.heap));
    }
    if (better) best = Keyed{std::move(key), item};
  }
  return best ? best->item : Value::Undefined(call.heap, "the extreme of nothing");
}

Result<Value> Unique(Call& call) {
  MLA_ASSIGN_OR_RETURN(const Value items, Iterate(call.subject, call.heap));
  std::vector<Value> keys;
  std::vector<Value> kept;
  for (const Value& item : items.list().items) {
    if (!call.heap->ok()) return call.heap->Fault();
    MLA_ASSIGN_OR_RETURN(Value key, SortKey(item, call.args[1], TrueArgument(call, 0, false), call.heap));
    const bool seen =
        std::any_of(keys.begin(), keys.end(), [&](const Value& other) { return Equal(other, key, call.heap); });
    if (seen) continue;
    keys.push_back(std::move(key));
    kept.push_back(item);
  }
  return Value::List(call.heap, ListFlavor::kGenerator, std::move(kept));
}

Result<Value> Sum(Call& call) {
  MLA_ASSIGN_OR_RETURN(const Value items, Iterate(call.subject, call.heap));
  Value sum = call.args[1] == nullptr ? Value::Int(0) : *call.args[1];
  for (const Value& item : items.list().items) {
    Value part = item;
    if (call.args[0] != nullptr && !call.args[0]->is_none()) {
      MLA_ASSIGN_OR_RETURN(part, Attribute(item, *call.args[0], nullptr, call.heap));
    }
    MLA_ASSIGN_OR_RETURN(sum, Apply(BinaryOp::kAdd, sum, part, call.heap));
  }
  return sum;
}

constexpr std::array<Builtin, 19> kFilters = {{
    {"length", Length},
    {"count", Length},
    {"list", List},
    {"first", First},
    {"last", Last},
    {"reverse", Reverse},
    {"items", Items},
    {"join", Join, {"d", "attribute"}},
    {"map", Map, {}, 0, true},
    {"select", Select<false, true>, {}, 0, true},
    {"reject", Select<false, false>, {}, 0, true},
    {"selectattr", Select<true, true>, {}, 0, true},
    {"rejectattr", Select<true, false>, {}, 0, true},
    {"sort", Sort, {"reverse", "case_sensitive", "attribute"}},
    {"dictsort", DictSort, {"case_sensitive", "by", "reverse"}},
    {"min", Extreme<false>, {"case_sensitive", "attribute"}},
    {"max", Extreme<true>, {"case_sensitive", "attribute"}},
    {"unique", Unique, {"case_sensitive", "attribute"}},
    {"sum", Sum, {"attribute", "start"}},
}};

}  // namespace

std::span<const Builtin> ListFilters() { return kFilters; }

}  // namespace mla::chat
