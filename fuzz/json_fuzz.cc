// Any bytes as a JSON document: a value or an error, never more.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "io/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parsed = mla::io::ParseJson({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (parsed.ok()) (void)parsed->Describe();
  return 0;
}
