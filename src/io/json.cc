#include "io/json.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "io/file.h"
#include "io/quote.h"

namespace mla::io {
namespace {

constexpr std::size_t kMaxDepth = 64;
// A value takes two bytes of text at the least and over a hundred of memory: without a limit, a hostile file of the
// permitted size would take tens of gigabytes. The largest files of real checkpoints hold a quarter of this.
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

// Builds the tree. A callback that returns false stops the parser; `reason` then says why, `offset` where.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(std::string_view text) : seen(text.data()), text_(text) {}

  bool null() override { return Add(JsonValue::Kind::kNull) != nullptr; }
  bool boolean(bool value) override {
    JsonValue* added = Add(JsonValue::Kind::kBool);
    if (added != nullptr) added->boolean = value;
    return added != nullptr;
  }
  bool number_integer(number_integer_t value) override { return AddInt(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      return AddInt(static_cast<std::int64_t>(value));
    }
    return number_float(static_cast<double>(value), {});
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    JsonValue* added = Add(JsonValue::Kind::kDouble);
    if (added != nullptr) added->number = value;
    return added != nullptr;
  }
  bool string(string_t& value) override {
    JsonValue* added = Add(JsonValue::Kind::kString);
    if (added != nullptr) added->string = std::move(value);
    return added != nullptr;
  }
  bool binary(binary_t& /*value*/) override { return Fail("binary value", Offset()); }
  bool start_object(std::size_t /*size*/) override { return Open(JsonValue::Kind::kObject); }
  bool start_array(std::size_t /*size*/) override { return Open(JsonValue::Kind::kArray); }
  bool key(string_t& name) override {
    open_.back().value->members.emplace_back(std::move(name), JsonValue());
    open_.back().key_offsets.push_back(Offset());
    return true;
  }
  bool end_object() override {
    const Container& object = open_.back();
    if (!CheckKeys(object)) return false;
    open_.pop_back();
    return true;
  }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool parse_error(std::size_t position, const std::string& token, const nlohmann::detail::exception& error) override {
    constexpr int kOutOfRange = 406;
    // The parser counts the byte it stopped at; past the end, the end itself.
    const std::size_t at = std::min(position == 0 ? 0 : position - 1, text_.size());
    if (error.id == kOutOfRange) return Fail(fmt::format("the number {} is too large", Printable(token, 40)), at);
    if (Offset() == text_.size() && position > text_.size()) return Fail("the document is cut short", at);
    if (complete_ && open_.empty()) return Fail("text after the document", at);
    return Fail(fmt::format("a syntax error at `{}`", Printable(token, 40)), at);
  }

  const char* seen;  // what the iterators have passed
  JsonValue root;
  std::string reason;
  std::size_t offset = 0;

 private:
  struct Container {
    JsonValue* value = nullptr;  // stays put: nothing is added to its parent while it is open
    std::vector<std::size_t> key_offsets;
  };

  std::size_t Offset() const { return static_cast<std::size_t>(seen - text_.data()); }

  bool Fail(std::string why, std::size_t where) {
    reason = std::move(why);
    offset = where;
    return false;
  }

  JsonValue* Add(JsonValue::Kind kind) {
    if (++values_ > kMaxValues) {
      Fail(fmt::format("more than {} values", kMaxValues), Offset());
      return nullptr;
    }
    JsonValue* added = &root;
    if (!open_.empty()) {
      JsonValue& parent = *open_.back().value;
      added = parent.is_object() ? &parent.members.back().second : &parent.items.emplace_back();
    }
    added->kind = kind;
    complete_ = true;
    return added;
  }

  bool AddInt(std::int64_t value) {
    JsonValue* added = Add(JsonValue::Kind::kInt);
    if (added == nullptr) return false;
    added->integer = value;
    added->number = static_cast<double>(value);
    return true;
  }

  bool Open(JsonValue::Kind kind) {
    if (open_.size() == kMaxDepth) return Fail(fmt::format("nesting deeper than {}", kMaxDepth), Offset() - 1);
    JsonValue* added = Add(kind);
    if (added == nullptr) return false;
    open_.push_back({added, {}});
    return true;
  }

  // By sorting: hashes of hostile keys can be made to collide.
  bool CheckKeys(const Container& object) {
    const std::vector<JsonValue::Member>& members = object.value->members;
    std::vector<std::size_t> order(members.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto key_of = [&](std::size_t i) -> const std::string& { return members[i].first; };
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const int compared = key_of(a).compare(key_of(b));
      return compared != 0 ? compared < 0 : a < b;
    });
    std::size_t first = members.size();
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (key_of(order[i - 1]) == key_of(order[i])) first = std::min(first, order[i]);
    }
    if (first == members.size()) return true;
    return Fail(fmt::format("the key {} appears twice in one object", Quoted(key_of(first))),
                object.key_offsets[first]);
  }

  std::string_view text_;
  std::vector<Container> open_;
  std::size_t values_ = 0;
  bool complete_ = false;
};

}  // namespace

JsonValue::JsonValue() = default;
JsonValue::JsonValue(const JsonValue&) = default;
JsonValue::JsonValue(JsonValue&&) noexcept = default;
JsonValue& JsonValue::operator=(const JsonValue&) = default;
JsonValue& JsonValue::operator=(JsonValue&&) noexcept = default;
JsonValue::~JsonValue() = default;

const JsonValue* JsonValue::Find(std::string_view key) const {
  for (const Member& member : members) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

std::string JsonValue::Describe() const {
  switch (kind) {
    case Kind::kNull: return "null";
    case Kind::kBool: return boolean ? "true" : "false";
    case Kind::kInt: return fmt::format("{}", integer);
    case Kind::kDouble: return fmt::format("{}", number);
    case Kind::kString: return Quoted(string, 40);
    case Kind::kArray: return fmt::format("an array of {}", items.size());
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
  Builder builder(text);
  try {
    const CountingIterator begin(text.data(), &builder.seen);
    const CountingIterator end(text.data() + text.size(), &builder.seen);
    if (!nlohmann::json::sax_parse(begin, end, &builder)) return fail(builder.offset, builder.reason);
  } catch (const std::exception& error) {
    return fail(builder.offset, Printable(error.what()));
  }
  return std::move(builder.root);
}

Result<JsonValue> ReadJsonFile(const std::string& path, std::int64_t max_bytes) {
  MLA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, max_bytes));
  return ParseJson(text, Printable(path));
}

}  // namespace mla::io
