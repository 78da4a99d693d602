// A parsed JSON document, plain and read-only. Keeps the JSON library's headers out of ours, and adds what hostile
// files need: duplicate keys are an error, nesting is bounded, whole numbers stay exact, a value takes 16 bytes.
#ifndef MLA_IO_JSON_H_
#define MLA_IO_JSON_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mla/result.h"

namespace mla::io {

class JsonMembers;

// Move-only. What accessors return lives as long as the document's root and doesn't move with it, but for a text of up
// to kInlineBytes that is itself the root. An accessor of another kind answers with nothing: 0, false, "", an empty
// range.
class JsonValue {
 public:
  enum class Kind : std::uint8_t { kNull, kBool, kInt, kDouble, kString, kArray, kObject };
  static constexpr std::size_t kInlineBytes = 8;

  JsonValue() = default;
  JsonValue(JsonValue&& other) noexcept;
  JsonValue& operator=(JsonValue&& other) noexcept;
  ~JsonValue();

  static JsonValue Bool(bool value);
  static JsonValue Int(std::int64_t value);
  static JsonValue Double(double value);
  // At most 2^32 - 1 bytes.
  static JsonValue String(std::string_view text);

  Kind kind() const { return kind_; }
  bool boolean() const { return boolean_; }
  // kInt: a whole number written without '.' or exponent that fits.
  std::int64_t integer() const { return is_int() ? content_.integer : 0; }
  // kInt and kDouble.
  double number() const;
  // kString: valid UTF-8.
  std::string_view string() const;
  // kArray.
  std::span<const JsonValue> items() const;
  // kObject, in the order of the file.
  JsonMembers members() const;

  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_int() const { return kind_ == Kind::kInt; }
  bool is_number() const { return kind_ == Kind::kInt || kind_ == Kind::kDouble; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }

  // The member of that name, or nullptr: also where this is no object. Linear in the number of members.
  const JsonValue* Find(std::string_view key) const;

  // What this is, for an error text: `null`, `true`, `12`, `"abc"` (cut at 40 characters), `an array of 3`, `an
  // object`.
  std::string Describe() const;

 private:
  friend class JsonBuilder;
  friend class JsonMembers;

  void TakeFrom(JsonValue& other);
  void Free();

  union Content {
    std::int64_t integer = 0;
    double number;
    std::array<char, kInlineBytes> text;  // of a string that fits
    char* long_text;                      // owned
    JsonValue* values;                    // owned: items, or names and values in turn; nullptr where there is none
  };

  Kind kind_ = Kind::kNull;
  bool boolean_ = false;
  std::uint32_t size_ = 0;  // of a string in bytes, of an array or object in elements of `values`
  Content content_;
};

static_assert(sizeof(JsonValue) == 16);

// The members of an object, as a range of names with their values.
class JsonMembers {
 public:
  struct Member {
    std::string_view first;
    const JsonValue& second;
  };
  class Iterator {
   public:
    explicit Iterator(const JsonValue* at) : at_(at) {}
    Member operator*() const { return {at_[0].string(), at_[1]}; }
    Iterator& operator++() {
      at_ += 2;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    const JsonValue* at_;
  };

  explicit JsonMembers(std::span<const JsonValue> values) : values_(values) {}
  std::size_t size() const { return values_.size() / 2; }
  bool empty() const { return values_.empty(); }
  Member operator[](std::size_t i) const { return {values_[2 * i].string(), values_[2 * i + 1]}; }
  Iterator begin() const { return Iterator(values_.data()); }
  Iterator end() const { return Iterator(values_.data() + values_.size()); }

 private:
  std::span<const JsonValue> values_;
};

// Parses a whole document. Fails, with the byte's offset, on a syntax error, invalid UTF-8, a duplicate key in one
// object, nesting deeper than 64, more than 2^22 values, a number too large for a double, anything after the document,
// or a text of 4 GiB. A whole number outside int64 is kept as kDouble. Takes at most 20 bytes of memory for each of
// the text, while it parses, and 4 to 6 for those of published files (tests/io/memory_test.cc).
// `where` opens the message, for example a file's path.
Result<JsonValue> ParseJson(std::string_view text, std::string_view where);

// Reads and parses a file of at most max_bytes. Fails as ParseJson, and where the file can't be read or is larger.
Result<JsonValue> ReadJsonFile(const std::string& path, std::int64_t max_bytes = std::int64_t{256} << 20);

}  // namespace mla::io

#endif  // MLA_IO_JSON_H_
