// The files in tests/conformance/data, made by tools/family_oracle.
#ifndef MLA_TESTS_CONFORMANCE_DATA_H_
#define MLA_TESTS_CONFORMANCE_DATA_H_

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "io/json.h"
#include "testing/models.h"

namespace mla::testing {

inline std::string ConformanceData(std::string_view name) {
  return std::string(MLA_SOURCE_DIR) + "/tests/conformance/data/" + std::string(name);
}

// The names of its folders, in order.
inline std::vector<std::string> ConformanceFixtures() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(ConformanceData(""))) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline const io::JsonValue& Member(const io::JsonValue& object, std::string_view key) {
  const io::JsonValue* value = object.Find(key);
  MLA_CHECK(value != nullptr);
  return *value;
}

template <class T>
std::vector<T> NumbersOf(const io::JsonValue& array) {
  MLA_CHECK(array.is_array());
  std::vector<T> numbers;
  for (const io::JsonValue& item : array.items()) {
    MLA_CHECK(item.is_number());
    numbers.push_back(static_cast<T>(item.number()));
  }
  return numbers;
}

// A test's name may hold letters, digits and underscores alone.
inline std::string TestName(std::string_view words) {
  std::string name;
  for (const char c : words) name += (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '_';
  return name;
}

}  // namespace mla::testing

#endif  // MLA_TESTS_CONFORMANCE_DATA_H_
