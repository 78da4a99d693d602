#include "io/json.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "io/file.h"
#include "io/quote.h"

namespace mla::io {
namespace {

constexpr std::size_t kMaxDepth = 64;
// A value takes two bytes of text at the least and 16 of memory. The largest files of real checkpoints hold a quarter
// of this.
constexpr std::size_t kMaxValues = std::size_t{1} << 22;

// Walks over the text, and lets the handler see how far the parser has read: its callbacks don't say.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** seen) : at_(at), seen_(seen) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *seen_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** seen_;
};

}  // namespace

// Builds the tree. A callback that returns false stops the parser; `reason` then says why, `offset` where.
class JsonBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonBuilder(std::string_view text) : seen(text.data()), text_(text) {}

  bool null() override { return Add({}); }
  bool boolean(bool value) override { return Add(JsonValue::Bool(value)); }
  bool number_integer(number_integer_t value) override { return Add(JsonValue::Int(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      return Add(JsonValue::Int(static_cast<std::int64_t>(value)));
    }
    return Add(JsonValue::Double(static_cast<double>(value)));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return Add(JsonValue::Double(value)); }
  bool string(string_t& value) override { return Add(JsonValue::String(value)); }
  bool binary(binary_t& /*value*/) override { return Fail("binary value", Offset()); }
  bool start_object(std::size_t /*size*/) override { return Open(JsonValue::Kind::kObject); }
  bool start_array(std::size_t /*size*/) override { return Open(JsonValue::Kind::kArray); }
  bool key(string_t& name) override {
    values_.push_back(JsonValue::String(name));
    key_offsets_.push_back(static_cast<std::uint32_t>(Offset()));
    return true;
  }
  bool end_object() override {
    if (!CheckKeys(open_.back())) return false;
    Close();
    return true;
  }
  bool end_array() override {
    Close();
    return true;
  }
  bool parse_error(std::size_t position, const std::string& token, const nlohmann::detail::exception& error) override {
    constexpr int kOutOfRange = 406;
    // The parser counts the byte it stopped at; past the end, the end itself.
    const std::size_t at = std::min(position == 0 ? 0 : position - 1, text_.size());
    if (error.id == kOutOfRange) return Fail(fmt::format("the number {} is too large", Printable(token, 40)), at);
    if (Offset() == text_.size() && position > text_.size()) return Fail("the document is cut short", at);
    if (!values_.empty() && open_.empty()) return Fail("text after the document", at);
    return Fail(fmt::format("a syntax error at `{}`", Printable(token, 40)), at);
  }
  JsonValue TakeRoot() { return std::move(values_.front()); }

  const char* seen;  // what the iterators have passed
  std::string reason;
  std::size_t offset = 0;

 private:
  struct Container {
    JsonValue::Kind kind = JsonValue::Kind::kArray;
    std::size_t first_value = 0;       // of its content in values_
    std::size_t first_key_offset = 0;  // in key_offsets_
  };

  std::size_t Offset() const { return static_cast<std::size_t>(seen - text_.data()); }

  bool Fail(std::string why, std::size_t where) {
    reason = std::move(why);
    offset = where;
    return false;
  }

  bool Count() { return ++count_ <= kMaxValues || Fail(fmt::format("more than {} values", kMaxValues), Offset()); }

  bool Add(JsonValue value) {
    if (!Count()) return false;
    values_.push_back(std::move(value));
    return true;
  }

  bool Open(JsonValue::Kind kind) {
    if (open_.size() == kMaxDepth) return Fail(fmt::format("nesting deeper than {}", kMaxDepth), Offset() - 1);
    if (!Count()) return false;
    open_.push_back({kind, values_.size(), key_offsets_.size()});
    return true;
  }

  // The content of the innermost container leaves the stack, from its end so that blocks are freed while it moves.
  void Close() {
    const Container container = open_.back();
    open_.pop_back();
    const std::size_t size = values_.size() - container.first_value;
    JsonValue* values = size == 0 ? nullptr : new JsonValue[size];
    JsonValue value;
    value.kind_ = container.kind;
    value.content_.values = values;
    value.size_ = static_cast<std::uint32_t>(size);
    for (std::size_t i = size; i-- > 0;) {
      values[i] = std::move(values_.back());
      values_.pop_back();
    }
    key_offsets_.resize(container.first_key_offset);
    values_.push_back(std::move(value));
  }

  // By sorting: hashes of hostile keys can be made to collide.
  bool CheckKeys(const Container& object) {
    const std::size_t size = (values_.size() - object.first_value) / 2;
    std::vector<std::uint32_t> order(size);
    std::iota(order.begin(), order.end(), std::uint32_t{0});
    const auto key_of = [&](std::size_t i) { return values_[object.first_value + 2 * i].string(); };
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      const int compared = key_of(a).compare(key_of(b));
      return compared != 0 ? compared < 0 : a < b;
    });
    std::size_t first = size;
    for (std::size_t i = 1; i < size; ++i) {
      if (key_of(order[i - 1]) == key_of(order[i])) first = std::min<std::size_t>(first, order[i]);
    }
    if (first == size) return true;
    return Fail(fmt::format("the key {} appears twice in one object", Quoted(key_of(first))),
                key_offsets_[object.first_key_offset + first]);
  }

  std::string_view text_;
  // Finished values whose containers are open, innermost last. Deques grow without a second copy.
  std::deque<JsonValue> values_;
  std::deque<std::uint32_t> key_offsets_;
  std::vector<Container> open_;
  std::size_t count_ = 0;
};

JsonValue::JsonValue(JsonValue&& other) noexcept { TakeFrom(other); }

JsonValue& JsonValue::operator=(JsonValue&& other) noexcept {
  if (this != &other) {
    Free();
    TakeFrom(other);
  }
  return *this;
}

JsonValue::~JsonValue() { Free(); }

void JsonValue::TakeFrom(JsonValue& other) {
  content_ = other.content_;
  size_ = std::exchange(other.size_, 0);
  boolean_ = std::exchange(other.boolean_, false);
  kind_ = std::exchange(other.kind_, Kind::kNull);
}

void JsonValue::Free() {
  if (is_array() || is_object()) delete[] content_.values;
  if (is_string() && size_ > kInlineBytes) delete[] content_.long_text;
}

JsonValue JsonValue::Bool(bool value) {
  JsonValue result;
  result.kind_ = Kind::kBool;
  result.boolean_ = value;
  return result;
}

JsonValue JsonValue::Int(std::int64_t value) {
  JsonValue result;
  result.kind_ = Kind::kInt;
  result.content_.integer = value;
  return result;
}

JsonValue JsonValue::Double(double value) {
  JsonValue result;
  result.kind_ = Kind::kDouble;
  result.content_.number = value;
  return result;
}

JsonValue JsonValue::String(std::string_view text) {
  MLA_CHECK_LE(text.size(), std::numeric_limits<std::uint32_t>::max());
  JsonValue result;
  char* place = result.content_.text.data();
  if (text.size() > kInlineBytes) place = result.content_.long_text = new char[text.size()];
  std::copy(text.begin(), text.end(), place);
  result.size_ = static_cast<std::uint32_t>(text.size());
  result.kind_ = Kind::kString;
  return result;
}

double JsonValue::number() const {
  if (is_int()) return static_cast<double>(content_.integer);
  return kind_ == Kind::kDouble ? content_.number : 0;
}

std::string_view JsonValue::string() const {
  if (!is_string()) return {};
  return {size_ > kInlineBytes ? content_.long_text : content_.text.data(), size_};
}

std::span<const JsonValue> JsonValue::items() const {
  if (!is_array()) return {};
  return {content_.values, size_};
}

JsonMembers JsonValue::members() const {
  if (!is_object()) return JsonMembers({});
  return JsonMembers({content_.values, size_});
}

const JsonValue* JsonValue::Find(std::string_view key) const {
  for (const auto& [name, value] : members()) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string JsonValue::Describe() const {
  switch (kind_) {
    case Kind::kNull: return "null";
    case Kind::kBool: return boolean() ? "true" : "false";
    case Kind::kInt: return fmt::format("{}", integer());
    case Kind::kDouble: return fmt::format("{}", number());
    case Kind::kString: return Quoted(string(), 40);
    case Kind::kArray: return fmt::format("an array of {}", items().size());
    case Kind::kObject: return "an object";
  }
  return "?";
}

Result<JsonValue> ParseJson(std::string_view text, std::string_view where) {
  const auto fail = [&](std::size_t offset, std::string_view reason) {
    return Error{fmt::format("{}: byte {}: expected JSON, found {}", where, offset, reason)};
  };
  if (const std::size_t valid = ValidUtf8Prefix(text); valid < text.size()) return fail(valid, "invalid UTF-8");
  // The library would take it for the end of the text.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) return fail(nul, "a NUL");
  if (text.size() > std::numeric_limits<std::uint32_t>::max()) return fail(0, "a text of more than 4 GiB");
  JsonBuilder builder(text);
  try {
    const CountingIterator begin(text.data(), &builder.seen);
    const CountingIterator end(text.data() + text.size(), &builder.seen);
    if (!nlohmann::json::sax_parse(begin, end, &builder)) return fail(builder.offset, builder.reason);
  } catch (const std::exception& error) {
    return fail(builder.offset, Printable(error.what()));
  }
  return builder.TakeRoot();
}

Result<JsonValue> ReadJsonFile(const std::string& path, std::int64_t max_bytes) {
  MLA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, max_bytes));
  return ParseJson(text, Printable(path));
}

}  // namespace mla::io
