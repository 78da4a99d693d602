// Any bytes as a safetensors file: entries that lie inside it, or an error.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  const auto entries = mla::io::ParseSafetensors(file, "fuzz");
  if (!entries.ok()) return 0;
  for (const auto& entry : *entries) {
    MLA_CHECK_LE(8, entry.begin);
    MLA_CHECK_LE(entry.begin, entry.end);
    MLA_CHECK_LE(entry.end, static_cast<std::int64_t>(size));
  }
  return 0;
}
