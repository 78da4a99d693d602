// A parsed JSON document, plain and read-only. Keeps the JSON library's headers out of ours, and adds what hostile
// files need: duplicate keys are an error, nesting is bounded, whole numbers stay exact.
#ifndef MLA_IO_JSON_H_
#define MLA_IO_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mla/result.h"

namespace mla::io {

class JsonValue {
 public:
  enum class Kind : std::uint8_t { kNull, kBool, kInt, kDouble, kString, kArray, kObject };
  using Member = std::pair<std::string, JsonValue>;

  // Out of line: where they are implicit, clang asks for them before Member is complete.
  JsonValue();
  JsonValue(const JsonValue&);
  JsonValue(JsonValue&&) noexcept;
  JsonValue& operator=(const JsonValue&);
  JsonValue& operator=(JsonValue&&) noexcept;
  ~JsonValue();

  Kind kind = Kind::kNull;
  bool boolean = false;
  std::int64_t integer = 0;      // kInt: a whole number written without '.' or exponent that fits
  double number = 0;             // kInt and kDouble
  std::string string;            // kString, valid UTF-8
  std::vector<JsonValue> items;  // kArray
  std::vector<Member> members;   // kObject, in the order of the file

  bool is_null() const { return kind == Kind::kNull; }
  bool is_bool() const { return kind == Kind::kBool; }
  bool is_int() const { return kind == Kind::kInt; }
  bool is_number() const { return kind == Kind::kInt || kind == Kind::kDouble; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_array() const { return kind == Kind::kArray; }
  bool is_object() const { return kind == Kind::kObject; }

  // The member of that name, or nullptr: also where this is no object. Linear in the number of members.
  const JsonValue* Find(std::string_view key) const;

  // What this is, for an error text: `null`, `true`, `12`, `"abc"` (cut at 40 characters), `an array of 3`, `an
  // object`.
  std::string Describe() const;
};

// Parses a whole document. Fails, with the byte's offset, on a syntax error, invalid UTF-8, a duplicate key in one
// object, nesting deeper than 64, more than 2^22 values (a tree takes some hundred bytes for each), a number too large
// for a double, or anything after the document. A whole number outside int64 is kept as kDouble.
// `where` opens the message, for example a file's path.
Result<JsonValue> ParseJson(std::string_view text, std::string_view where);

// Reads and parses a file of at most max_bytes. Fails as ParseJson, and where the file can't be read or is larger.
Result<JsonValue> ReadJsonFile(const std::string& path, std::int64_t max_bytes = std::int64_t{256} << 20);

}  // namespace mla::io

#endif  // MLA_IO_JSON_H_
