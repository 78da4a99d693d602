// Any bytes as a config.json: a config, or an outline of a model that can't be run, whose derived numbers can be asked
// for, or an error of one line.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "contract/config.h"
#include "contract/outline.h"
#include "contract/tensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto outline = mla::contract::ParseOutline({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (outline.ok()) {
    MLA_CHECK_LE(0, outline->latent_bytes_bf16());
    (void)outline->softmax_scale();
  } else {
    MLA_CHECK(outline.error().message.find('\n') == std::string::npos);
  }
  const auto config = mla::contract::ParseConfig({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!config.ok()) {
    MLA_CHECK(config.error().message.find('\n') == std::string::npos);
    return 0;
  }
  (void)mla::contract::SoftmaxScale(*config);
  (void)mla::CosSinScale(config->rope);
  const auto parameters = mla::contract::CountParameters(*config);
  MLA_CHECK_LE(parameters.active, parameters.total);
  return 0;
}
