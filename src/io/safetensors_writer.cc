#include <utility>

#include <fmt/format.h>

#include "io/quote.h"
#include "io/safetensors.h"
#include "io/safetensors_header.h"

namespace mla::io {

Result<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path, std::vector<SafetensorsSpec> specs) {
  std::int64_t expected = 0;
  MLA_ASSIGN_OR_RETURN(const std::string header, SafetensorsHeader(specs, Printable(path), &expected));
  MLA_ASSIGN_OR_RETURN(NewFile file, NewFile::Create(path));
  MLA_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(header))));
  return SafetensorsWriter(path, std::move(file), expected);
}

SafetensorsWriter::SafetensorsWriter(std::string path, NewFile file, std::int64_t expected)
    : path_(std::move(path)), file_(std::move(file)), expected_(expected) {}

Status SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  if (static_cast<std::int64_t>(bytes.size()) > expected_ - written_) {
    file_.Discard();
    return Error{fmt::format("{}: expected {} bytes of tensors, found more", Printable(path_), expected_)};
  }
  MLA_RETURN_IF_ERROR(file_.Append(bytes));
  written_ += static_cast<std::int64_t>(bytes.size());
  return {};
}

Status SafetensorsWriter::Finish() {
  if (written_ != expected_) {
    file_.Discard();
    return Error{fmt::format("{}: expected {} bytes of tensors, found {}", Printable(path_), expected_, written_)};
  }
  return file_.Finish();
}

}  // namespace mla::io
