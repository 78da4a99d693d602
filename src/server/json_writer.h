// JSON text, written as it goes: answers are small, many, and made for every token.
#ifndef MLA_SERVER_JSON_WRITER_H_
#define MLA_SERVER_JSON_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "io/json.h"

namespace mla::server {

// Puts commas; that keys and values take turns, and that what begins ends, is the caller's part.
class JsonWriter {
 public:
  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }
  JsonWriter& Key(std::string_view key);
  // Valid UTF-8.
  JsonWriter& String(std::string_view text);
  JsonWriter& Int(std::int64_t value);
  // The shortest text that reads back as the same double; null where it is no finite number.
  JsonWriter& Number(double value);
  JsonWriter& Bool(bool value);
  JsonWriter& Null();
  // What was parsed, written again.
  JsonWriter& Value(const io::JsonValue& value);

  const std::string& text() const { return text_; }
  std::string Take() { return std::move(text_); }

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  void Separate();

  std::string text_;
  bool comma_ = false;  // something stands before, on this level
};

}  // namespace mla::server

#endif  // MLA_SERVER_JSON_WRITER_H_
