// The bytes that open a safetensors file, for its writer.
#ifndef MLA_IO_SAFETENSORS_HEADER_H_
#define MLA_IO_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/safetensors.h"
#include "mla/result.h"

namespace mla::io {

// Length and JSON, padded so that the data begins at a multiple of 8; *data_bytes becomes the size of the data. Fails
// on a name that is twice there, no UTF-8 or "__metadata__", a negative dim, and sizes that the format can't hold.
Result<std::string> SafetensorsHeader(std::span<const SafetensorsSpec> specs, std::string_view where,
                                      std::int64_t* data_bytes);

}  // namespace mla::io

#endif  // MLA_IO_SAFETENSORS_HEADER_H_
