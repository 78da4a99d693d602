// Any bytes as the config.json of a model to plan for: a shape whose numbers hang together, with any attention, or an
// error of one line.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "plan/shape.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto shape = mla::plan::ParseShape({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!shape.ok()) {
    MLA_CHECK(shape.error().message.find('\n') == std::string::npos);
    return 0;
  }
  std::int64_t layers = 0;
  for (const mla::plan::LayerGroup& g : shape->groups) layers += g.layers;
  MLA_CHECK_EQ(layers, shape->layers);
  if (shape->parameters) MLA_CHECK_LE(0, shape->parameters->total());
  (void)mla::plan::ElementsPerToken(*shape);
  for (const char* attention : {"mha", "gqa:2", "mqa", "mla"}) {
    const auto other = mla::plan::WithAttention(*shape, attention);
    if (other.ok() && other->parameters) MLA_CHECK_LE(0, other->parameters->total());
  }
  return 0;
}
