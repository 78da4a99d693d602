#include <cerrno>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/check.h"
#include "io/file.h"
#include "io/quote.h"
#include "io/safetensors.h"
#include "io/safetensors_header.h"

namespace mla::io {
namespace {

// Creates a file that was not there, beside `path`, with the permissions of any new file.
Result<std::pair<int, std::string>> CreateBeside(const std::string& path) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::string name = fmt::format("{}.partial-{}-{}", path, ::getpid(), attempt);
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return std::pair(fd, std::move(name));
    if (errno != EEXIST) break;
  }
  return CantWrite(path, errno);
}

// Closes and removes an unfinished file.
void Discard(int* fd, std::string* temporary) {
  if (*fd >= 0) ::close(*fd);
  *fd = -1;
  if (!temporary->empty()) ::unlink(temporary->c_str());
  temporary->clear();
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path, std::vector<SafetensorsSpec> specs) {
  SafetensorsWriter writer;
  MLA_ASSIGN_OR_RETURN(const std::string header, SafetensorsHeader(specs, Printable(path), &writer.expected_));
  MLA_ASSIGN_OR_RETURN(auto created, CreateBeside(path));
  writer.path_ = path;
  writer.fd_ = created.first;
  writer.temporary_ = std::move(created.second);
  if (const int fault = WriteAll(writer.fd_, std::as_bytes(std::span(header))); fault != 0) {
    return CantWrite(path, fault);
  }
  return writer;
}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::exchange(other.fd_, -1)),
      expected_(other.expected_),
      written_(other.written_) {}

SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(fd_, other.fd_);
  std::swap(expected_, other.expected_);
  std::swap(written_, other.written_);
  return *this;
}

SafetensorsWriter::~SafetensorsWriter() { Discard(&fd_, &temporary_); }

Status SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  if (fd_ < 0)
    return Error{fmt::format("{}: can't be written: the file is finished or failed before", Printable(path_))};
  if (static_cast<std::int64_t>(bytes.size()) > expected_ - written_) {
    Discard(&fd_, &temporary_);
    return Error{fmt::format("{}: expected {} bytes of tensors, found more", Printable(path_), expected_)};
  }
  if (const int fault = WriteAll(fd_, bytes); fault != 0) {
    Discard(&fd_, &temporary_);
    return CantWrite(path_, fault);
  }
  written_ += static_cast<std::int64_t>(bytes.size());
  return {};
}

Status SafetensorsWriter::Finish() {
  if (fd_ < 0)
    return Error{fmt::format("{}: can't be written: the file is finished or failed before", Printable(path_))};
  if (written_ != expected_) {
    Discard(&fd_, &temporary_);
    return Error{fmt::format("{}: expected {} bytes of tensors, found {}", Printable(path_), expected_, written_)};
  }
  int fault = ::fsync(fd_) == 0 ? 0 : errno;
  // Some file systems report a failed write only here.
  if (::close(std::exchange(fd_, -1)) != 0 && fault == 0) fault = errno;
  if (fault == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) fault = errno;
  if (fault != 0) {
    Discard(&fd_, &temporary_);
    return CantWrite(path_, fault);
  }
  temporary_.clear();
  SyncFolder(std::filesystem::path(path_).parent_path().string());
  return {};
}

}  // namespace mla::io
