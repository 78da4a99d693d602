#include "server/fields.h"

#include <utility>

#include <fmt/format.h>

namespace mla::server {

const io::JsonValue* Fields::Find(std::string_view key) const {
  const io::JsonValue* found = object_->Find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

void Fields::Fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void Fields::Fail(std::string_view key, std::string_view expected, const io::JsonValue& found) {
  Fail({.message = fmt::format("{}: expected {}, found {}", key, expected, found.Describe()),
        .param = std::string(key)});
}

void Fields::Whole(std::string_view key, std::int64_t low, std::int64_t high, std::optional<std::int64_t>* out) {
  const io::JsonValue* value = Find(key);
  if (value == nullptr) return;
  if (!value->is_int() || value->integer() < low || value->integer() > high) {
    Fail(key, fmt::format("a whole number from {} to {}", low, high), *value);
    return;
  }
  *out = value->integer();
}

void Fields::Whole(std::string_view key, std::int64_t low, std::int64_t high, std::int64_t* out) {
  std::optional<std::int64_t> read;
  Whole(key, low, high, &read);
  *out = read.value_or(*out);
}

void Fields::Number(std::string_view key, double low, bool closed, double high, std::optional<double>* out) {
  const io::JsonValue* value = Find(key);
  if (value == nullptr) return;
  const double number = value->number();
  if (!value->is_number() || number > high || (closed ? number < low : number <= low)) {
    Fail(key, fmt::format("a number {} {} up to {}", closed ? "from" : "above", low, high), *value);
    return;
  }
  *out = number;
}

void Fields::Bool(std::string_view key, bool* out) {
  const io::JsonValue* value = Find(key);
  if (value == nullptr) return;
  if (!value->is_bool()) return Fail(key, "true or false", *value);
  *out = value->boolean();
}

void Fields::Text(std::string_view key, std::string* out) {
  const io::JsonValue* value = Find(key);
  if (value == nullptr) return;
  if (!value->is_string()) return Fail(key, "a text", *value);
  *out = std::string(value->string());
}

void Fields::Refuse(std::string_view key) {
  const io::JsonValue* value = Find(key);
  if (value == nullptr || (value->is_bool() && !value->boolean()) || (value->is_string() && value->string().empty()) ||
      (value->is_array() && value->items().empty())) {
    return;
  }
  Fail({.message = fmt::format("{}: not supported by this server", key),
        .param = std::string(key),
        .code = "unsupported_parameter"});
}

}  // namespace mla::server
