// Any bytes as a generation_config.json: values within their ranges, or an error of one line.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "contract/generation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::int64_t kVocab = 1000;
  const auto config = mla::contract::ParseGenerationConfig({reinterpret_cast<const char*>(data), size}, kVocab, "fuzz");
  if (!config.ok()) {
    MLA_CHECK(config.error().message.find('\n') == std::string::npos);
    return 0;
  }
  for (const std::int64_t id : config->eos_token_ids) MLA_CHECK(id >= 0 && id < kVocab);
  MLA_CHECK(!config->temperature || *config->temperature > 0);
  MLA_CHECK(!config->top_p || (*config->top_p > 0 && *config->top_p <= 1));
  return 0;
}
