#include "contract/fields.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/quote.h"

namespace mla::contract {

std::string Describe(const io::JsonValue* value) { return value == nullptr ? "nothing" : value->Describe(); }

const io::JsonValue* Fields::Take(std::string_view name) {
  known_.insert(name);
  return object_.Find(name);
}

const io::JsonValue* Fields::TakeValue(std::string_view name) {
  const io::JsonValue* value = Take(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::int64_t Fields::Int(std::string_view name, std::int64_t low, std::int64_t high) {
  const io::JsonValue* value = Take(name);
  if (value != nullptr && value->is_int() && value->integer() >= low && value->integer() <= high)
    return value->integer();
  Fail(name, fmt::format("a whole number from {} to {}", low, high), Describe(value));
  return low;
}

std::optional<std::int64_t> Fields::OptionalInt(std::string_view name, std::int64_t low, std::int64_t high) {
  if (TakeValue(name) == nullptr) return std::nullopt;
  return Int(name, low, high);
}

namespace {

bool InRange(const io::JsonValue& value, const NumberRange& range) {
  return value.is_number() && std::isfinite(value.number()) && value.number() <= range.high &&
         (value.number() > range.low || (range.low_allowed && value.number() == range.low));
}

}  // namespace

double Fields::Number(std::string_view name, const NumberRange& range) {
  const io::JsonValue* value = Take(name);
  if (value != nullptr && InRange(*value, range)) return value->number();
  Fail(name, range.words, Describe(value));
  return range.high;
}

std::optional<double> Fields::OptionalNumber(std::string_view name, const NumberRange& range) {
  if (TakeValue(name) == nullptr) return std::nullopt;
  return Number(name, range);
}

bool Fields::Bool(std::string_view name) {
  const io::JsonValue* value = Take(name);
  if (value != nullptr && value->is_bool()) return value->boolean();
  Fail(name, "true or false", Describe(value));
  return false;
}

std::optional<bool> Fields::OptionalBool(std::string_view name) {
  if (TakeValue(name) == nullptr) return std::nullopt;
  return Bool(name);
}

std::string Fields::Word(std::string_view name, const std::vector<std::string_view>& allowed) {
  const io::JsonValue* value = Take(name);
  if (value != nullptr && value->is_string() &&
      std::find(allowed.begin(), allowed.end(), value->string()) != allowed.end()) {
    return std::string(value->string());
  }
  Fail(name, fmt::format("\"{}\"", fmt::join(allowed, "\" or \"")), Describe(value));
  return {};
}

std::optional<std::string> Fields::OptionalWord(std::string_view name, const std::vector<std::string_view>& allowed) {
  if (TakeValue(name) == nullptr) return std::nullopt;
  return Word(name, allowed);
}

std::vector<double> Fields::Numbers(std::string_view name, std::size_t count, const NumberRange& range) {
  const io::JsonValue* value = Take(name);
  if (value == nullptr || !value->is_array() || value->items().size() != count) {
    const bool is_list = value != nullptr && value->is_array();
    Fail(name, fmt::format("a list of {} numbers", count),
         is_list ? fmt::format("one of {}", value->items().size()) : Describe(value));
    return {};
  }
  std::vector<double> numbers;
  for (const io::JsonValue& item : value->items()) {
    if (!InRange(item, range)) {
      Fail(fmt::format("{}[{}]", name, numbers.size()), range.words, item.Describe());
      return {};
    }
    numbers.push_back(item.number());
  }
  return numbers;
}

std::vector<std::int64_t> Fields::OptionalIds(std::string_view name, std::int64_t ids) {
  const io::JsonValue* value = TakeValue(name);
  if (value == nullptr) return {};
  std::vector<std::int64_t> out;
  const auto add = [&](const io::JsonValue& id) {
    if (!id.is_int() || id.integer() < 0 || id.integer() >= ids) {
      Fail(name, fmt::format("token ids from 0 to {}", ids - 1), id.Describe());
    } else if (std::find(out.begin(), out.end(), id.integer()) == out.end()) {
      out.push_back(id.integer());
    }
  };
  constexpr std::size_t kMaxIds = 1024;
  if (!value->is_array()) {
    add(*value);
  } else if (value->items().empty() || value->items().size() > kMaxIds) {
    Fail(name, fmt::format("a token id or a list of 1 to {}", kMaxIds), value->Describe());
  } else {
    for (const io::JsonValue& id : value->items()) add(id);
  }
  return out;
}

void Fields::Fail(std::string_view name, std::string_view expected, std::string_view found) {
  FailText(fmt::format("{}{}: expected {}, found {}", prefix_, name, expected, found));
}

void Fields::FailText(std::string_view text) {
  if (!error_) error_ = Error{fmt::format("{}: {}", where_, text)};
}

std::optional<std::string_view> Fields::FirstUnknown() const {
  for (const auto& [name, value] : object_.members()) {
    if (known_.count(name) == 0) return name;
  }
  return std::nullopt;
}

}  // namespace mla::contract
