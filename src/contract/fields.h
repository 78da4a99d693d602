// The fields of one JSON object, read with their ranges: the first fault is kept, later reads go on harmlessly, and
// what was never asked for can be listed.
#ifndef MLA_CONTRACT_FIELDS_H_
#define MLA_CONTRACT_FIELDS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "mla/result.h"

namespace mla::contract {

// A range of finite numbers, and its words for a message.
struct NumberRange {
  double low = 0;
  bool low_allowed = true;
  double high = 0;
  const char* words = "";
};

class Fields {
 public:
  // `object` outlives this. `where` opens every message; `prefix` stands before field names, "rope_scaling." say.
  Fields(const io::JsonValue& object, std::string_view where, std::string_view prefix = "")
      : object_(object), where_(where), prefix_(prefix) {}

  bool ok() const { return !error_.has_value(); }
  const Error& error() const { return *error_; }

  // Marks the field as known. nullptr where it is absent; a null is a value.
  const io::JsonValue* Take(std::string_view name);
  // The same, nullptr also for null.
  const io::JsonValue* TakeValue(std::string_view name);

  // Whole numbers in [low, high]. The required ones give `low` after a fault; the optional ones are empty where the
  // field is absent or null.
  std::int64_t Int(std::string_view name, std::int64_t low, std::int64_t high);
  std::optional<std::int64_t> OptionalInt(std::string_view name, std::int64_t low, std::int64_t high);
  double Number(std::string_view name, const NumberRange& range);
  std::optional<double> OptionalNumber(std::string_view name, const NumberRange& range);
  bool Bool(std::string_view name);
  std::optional<bool> OptionalBool(std::string_view name);
  // A string out of `allowed`.
  std::string Word(std::string_view name, const std::vector<std::string_view>& allowed);
  std::optional<std::string> OptionalWord(std::string_view name, const std::vector<std::string_view>& allowed);
  // A list of `count` numbers.
  std::vector<double> Numbers(std::string_view name, std::size_t count, const NumberRange& range);
  // One id in [0, ids) or a list of at least one; empty where the field is absent or null.
  std::vector<std::int64_t> OptionalIds(std::string_view name, std::int64_t ids);

  // Records "WHERE: NAME: expected EXPECTED, found FOUND", unless a fault came before.
  void Fail(std::string_view name, std::string_view expected, std::string_view found);
  // The same for a whole message after "WHERE: ".
  void FailText(std::string_view text);

  // The fields of an object that is a member of this one; Adopt takes over its fault.
  Fields Inner(std::string_view name, const io::JsonValue& object) const {
    return Fields(object, where_, prefix_ + std::string(name) + ".");
  }
  void Adopt(const Fields& inner) {
    if (!error_ && !inner.ok()) error_ = inner.error();
  }

  // The first member that nobody asked for, empty where there is none.
  std::optional<std::string_view> FirstUnknown() const;

 private:
  const io::JsonValue& object_;
  std::string where_;
  std::string prefix_;
  std::set<std::string_view> known_;
  std::optional<Error> error_;
};

// "nothing" for nullptr.
std::string Describe(const io::JsonValue* value);

}  // namespace mla::contract

#endif  // MLA_CONTRACT_FIELDS_H_
