// What a template can call by name.
#include <array>
#include <ctime>
#include <limits>

#include <fmt/format.h>

#include "chat/builtins.h"
#include "chat/operators.h"
#include "io/quote.h"

namespace mla::chat {
namespace {

// As Jinja's sandbox.
constexpr std::int64_t kLongestRange = 100000;

Result<Value> Range(Call& call) {
  std::int64_t begin = 0;
  MLA_ASSIGN_OR_RETURN(std::int64_t end, WholeArgument(call, 0, 0));
  if (call.args[1] != nullptr) {
    begin = end;
    MLA_ASSIGN_OR_RETURN(end, WholeArgument(call, 1, 0));
  }
  MLA_ASSIGN_OR_RETURN(const std::int64_t step, WholeArgument(call, 2, 1));
  if (step == 0) return Error{"the step is zero"};
  std::vector<Value> items;
  for (std::int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (static_cast<std::int64_t>(items.size()) == kLongestRange)
      return Error{fmt::format("more than {} numbers", kLongestRange)};
    items.push_back(Value::Int(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return Value::List(call.heap, ListFlavor::kRange, std::move(items));
}

Result<Value> MakeNamespace(Call& call) {
  auto space = std::make_unique<Namespace>();
  if (call.all.positional.size() > 1) return Error{"takes one mapping, and members by name"};
  if (!call.all.positional.empty()) {
    const Value& given = call.all.positional[0];
    if (!given.is_dict()) return Error{fmt::format("expected a mapping, found {}", KindName(given))};
    for (const auto& [key, value] : given.dict().entries) {
      if (key.is_text()) space->members.emplace_back(key.bytes(), value);
    }
  }
  for (const auto& [name, value] : call.all.named) space->members.emplace_back(name, value);
  for (const auto& member : space->members) {
    if (!member.first.empty() && member.first[0] == '_') return Error{"members begin with no underscore"};
  }
  // It lives as long as the rendering, so its bytes are never given back.
  call.heap->Take(static_cast<std::int64_t>(sizeof(Namespace) + space->members.size() * sizeof(Entry)));
  call.environment.spaces.push_back(std::move(space));
  return Value::Of(call.environment.spaces.back().get());
}

Result<Value> MakeDict(Call& call) {
  std::vector<Entry> entries;
  if (call.all.positional.size() > 1) return Error{"takes one mapping, and members by name"};
  if (!call.all.positional.empty()) {
    const Value& given = call.all.positional[0];
    if (!given.is_dict()) return Error{fmt::format("of {} is not supported", KindName(given))};
    entries = given.dict().entries;
  }
  for (const auto& [name, value] : call.all.named) {
    Value key = Value::Text(call.heap, MarkedText::Trusted(std::string(name)));
    MLA_RETURN_IF_ERROR(AddEntry(std::move(key), value, call.heap, &entries));
  }
  return Value::Dict(call.heap, std::move(entries));
}

Result<Value> RaiseException(Call& call) {
  MLA_ASSIGN_OR_RETURN(const MarkedText message, ToText(*call.args[0], call.heap));
  return Error{fmt::format("the template refuses: {}", io::Printable(message.bytes))};
}

Result<Value> StrftimeNow(Call& call) {
  MLA_ASSIGN_OR_RETURN(const std::string_view format, TextArgument(call, 0, ""));
  if (format.size() > 1000) return Error{"a format of more than 1000 bytes"};
  const auto now = static_cast<std::time_t>(call.environment.now);
  std::tm local = {};
  if (localtime_r(&now, &local) == nullptr) return Error{"the time is beyond every calendar"};
  // A byte in front tells an empty result from one that did not fit.
  const std::string marked = "x" + std::string(format);
  std::array<char, 16384> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), marked.c_str(), &local);
  if (size == 0) return Error{"the time's text is too long"};
  return Value::Text(call.heap, MarkedText::Untrusted(std::string(text.data() + 1, size - 1)));
}

constexpr std::array<Builtin, 5> kFunctions = {{
    {"range", Range, {"start", "stop", "step"}, 1},
    {"namespace", MakeNamespace, {}, 0, true},
    {"dict", MakeDict, {}, 0, true},
    {"raise_exception", RaiseException, {"message"}, 1},
    {"strftime_now", StrftimeNow, {"format"}, 1},
}};

}  // namespace

std::span<const Builtin> Functions() { return kFunctions; }

}  // namespace mla::chat
