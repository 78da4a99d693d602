// Any bytes as a config.json: a config whose derived numbers can be asked for, or an error of one line.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "contract/config.h"
#include "contract/tensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto config = mla::contract::ParseConfig({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!config.ok()) {
    MLA_CHECK(config.error().message.find('\n') == std::string::npos);
    return 0;
  }
  (void)mla::contract::SoftmaxScale(*config);
  (void)mla::contract::CosSinScale(config->rope);
  const auto parameters = mla::contract::CountParameters(*config);
  MLA_CHECK_LE(parameters.active, parameters.total);
  return 0;
}
