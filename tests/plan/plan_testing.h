// Shapes of published models, for the tests of this folder.
#ifndef MLA_TESTS_PLAN_PLAN_TESTING_H_
#define MLA_TESTS_PLAN_PLAN_TESTING_H_

#include <string>

#include "plan/memory.h"
#include "plan/shape.h"
#include "testing/models.h"

namespace mla::testing {

// Of tests/plan/data.
inline std::string OtherConfig(const std::string& name) {
  return std::string(MLA_SOURCE_DIR) + "/tests/plan/data/" + name + ".json";
}
// Of models/configs.
inline std::string LatentConfig(const std::string& name) {
  return std::string(MLA_SOURCE_DIR) + "/models/configs/" + name + ".json";
}

inline plan::Subject SubjectOf(const std::string& path) { return Need(plan::OpenSubject(path)); }
inline plan::Shape ShapeAt(const std::string& path) { return SubjectOf(path).shape; }

// Plain heads, as papers compare with: nothing but attention.
inline plan::Shape PlainHeads(std::int64_t heads, std::int64_t kv_heads, std::int64_t width, std::int64_t layers) {
  plan::Shape shape;
  shape.layers = layers;
  plan::LayerGroup g;
  g.layers = layers;
  g.heads = heads;
  g.kv_heads = kv_heads;
  g.key_dim = g.value_dim = width;
  shape.groups = {g};
  return shape;
}

inline const plan::RowFormat& Row(const char* name) { return *plan::FindRowFormat(name); }

}  // namespace mla::testing

#endif  // MLA_TESTS_PLAN_PLAN_TESTING_H_
