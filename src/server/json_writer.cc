#include "server/json_writer.h"

#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "io/quote.h"

namespace mla::server {

void JsonWriter::Separate() {
  if (comma_) text_ += ',';
  comma_ = true;
}

JsonWriter& JsonWriter::Open(char bracket) {
  Separate();
  text_ += bracket;
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  text_ += bracket;
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::Key(std::string_view key) {
  Separate();
  text_ += io::JsonString(key);
  text_ += ':';
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::String(std::string_view text) {
  Separate();
  text_ += io::JsonString(text);
  return *this;
}

JsonWriter& JsonWriter::Int(std::int64_t value) {
  Separate();
  fmt::format_to(std::back_inserter(text_), "{}", value);
  return *this;
}

JsonWriter& JsonWriter::Number(double value) {
  if (!std::isfinite(value)) return Null();
  Separate();
  fmt::format_to(std::back_inserter(text_), "{}", value);
  return *this;
}

JsonWriter& JsonWriter::Bool(bool value) {
  Separate();
  text_ += value ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::Null() {
  Separate();
  text_ += "null";
  return *this;
}

// Recursion ends: the parser bounds nesting.
JsonWriter& JsonWriter::Value(const io::JsonValue& value) {  // NOLINT(misc-no-recursion)
  using Kind = io::JsonValue::Kind;
  switch (value.kind()) {
    case Kind::kNull: return Null();
    case Kind::kBool: return Bool(value.boolean());
    case Kind::kInt: return Int(value.integer());
    case Kind::kDouble: return Number(value.number());
    case Kind::kString: return String(value.string());
    case Kind::kArray:
      BeginArray();
      for (const io::JsonValue& item : value.items()) Value(item);
      return EndArray();
    case Kind::kObject:
      BeginObject();
      for (const auto& [key, member] : value.members()) Key(key).Value(member);
      return EndObject();
  }
  return *this;
}

}  // namespace mla::server
