// The safetensors format: bytes <-> entries. Knows nothing of files or of models.
//
// Format: u64 little-endian header length, a JSON object {name: {dtype, shape, data_offsets: [begin, end]}} that may be
// padded with spaces and may hold "__metadata__" (string to string), then the data; offsets count from its first byte.
#ifndef MLA_IO_SAFETENSORS_H_
#define MLA_IO_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/new_file.h"
#include "mla/dtypes.h"
#include "mla/result.h"

namespace mla::io {

// The longest header that is read: the format's own limit.
inline constexpr std::int64_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;
  bool known_dtype = false;  // one of DType; other types of the format are listed, not readable
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  // in bytes from the file's first byte (not from the data's)
  std::int64_t end = 0;
};

// Parses the header of `file`, the whole file's bytes: entries in the order of their data. Fails where the file is
// shorter than it says, the header is no such object, a dtype is no word of the format, a dimension is negative or a
// product overflows, a size does not equal elements times width, offsets overlap, leave holes, are out of order or out
// of the file, or a name appears twice. `where` opens the message.
Result<std::vector<SafetensorsEntry>> ParseSafetensors(std::span<const std::byte> file, std::string_view where);

// A tensor to be written: its bytes come later, in order.
struct SafetensorsSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
};

// Writes a file tensor by tensor, so that a checkpoint larger than memory can be made. The file appears under its name
// only once Finish has succeeded (written beside it, synced, then renamed); otherwise nothing stays.
class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> Create(const std::string& path, std::vector<SafetensorsSpec> specs);

  // Appends bytes of the data section, in the order of the specs, in pieces of any size.
  Status Append(std::span<const std::byte> bytes);
  // Fails where fewer or more bytes were appended than the specs say, or the file system refuses.
  Status Finish();

 private:
  SafetensorsWriter(std::string path, NewFile file, std::int64_t expected);

  std::string path_;
  NewFile file_;
  std::int64_t expected_ = 0;
  std::int64_t written_ = 0;
};

}  // namespace mla::io

#endif  // MLA_IO_SAFETENSORS_H_
