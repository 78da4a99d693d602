// The demo checkpoint, its golden values, and the reference made of it.
#ifndef MLA_TESTS_REFERENCE_DEMO_H_
#define MLA_TESTS_REFERENCE_DEMO_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "contract/config.h"
#include "contract/tensors.h"
#include "io/checkpoint.h"
#include "io/json.h"
#include "reference/reference.h"
#include "testing/temp_dir.h"

namespace mla::testing {

template <class T>
T Must(Result<T> result) {
  if (!result.ok()) internal::CheckFailed(__FILE__, __LINE__, "ok", result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

inline contract::ModelConfig DemoConfig() { return Must(contract::LoadConfig(DemoDir())); }

inline reference::ReferenceModel DemoModel(const contract::ModelConfig& config) {
  const auto checkpoint = Must(io::Checkpoint::Open(DemoDir()));
  Must(contract::RequireTensors(config, checkpoint));
  return Must(reference::ReferenceModel::Load(config, checkpoint, config.max_position_embeddings));
}

inline const io::JsonValue& Golden() {
  static const io::JsonValue golden = Must(io::ReadJsonFile(DemoDir() + "/golden.json"));
  return golden;
}

inline const io::JsonValue& Field(const io::JsonValue& object, std::string_view key) {
  const io::JsonValue* value = object.Find(key);
  MLA_CHECK(value != nullptr);
  return *value;
}

inline std::vector<std::int32_t> Ids(const io::JsonValue& array) {
  std::vector<std::int32_t> ids;
  for (const io::JsonValue& item : array.items()) {
    MLA_CHECK(item.is_int());
    ids.push_back(static_cast<std::int32_t>(item.integer()));
  }
  return ids;
}

inline std::vector<std::int32_t> GoldenIds(std::string_view prompt) {
  return Ids(Field(Field(Golden(), prompt), "ids"));
}

inline std::int32_t ArgMax(std::span<const double> row) {
  return static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

}  // namespace mla::testing

#endif  // MLA_TESTS_REFERENCE_DEMO_H_
