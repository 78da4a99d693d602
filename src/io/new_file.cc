#include "io/new_file.h"

#include <cerrno>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "io/quote.h"

namespace mla::io {

Result<NewFile> NewFile::Create(const std::string& path) {
  if (path.find('\0') != std::string::npos) return Error{fmt::format("{}: the path holds a NUL", Printable(path))};
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::string name = fmt::format("{}.partial-{}-{}", path, ::getpid(), attempt);
    FileDescriptor fd(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd.get() >= 0) return NewFile(path, std::move(name), std::move(fd));
    if (errno != EEXIST) break;
  }
  return CantWrite(path, errno);
}

NewFile::NewFile(std::string path, std::string temporary, FileDescriptor fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(std::move(fd)) {}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})), fd_(std::move(other.fd_)) {}

NewFile& NewFile::operator=(NewFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(fd_, other.fd_);
  return *this;
}

NewFile::~NewFile() { Discard(); }

void NewFile::Discard() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

Status NewFile::Open() const {
  if (!temporary_.empty()) return {};
  return Error{fmt::format("{}: can't be written: the file is finished or failed before", Printable(path_))};
}

Status NewFile::Append(std::span<const std::byte> bytes) {
  MLA_RETURN_IF_ERROR(Open());
  const int fault = WriteAll(fd_.get(), bytes);
  if (fault == 0) return {};
  Discard();
  return CantWrite(path_, fault);
}

Status NewFile::Finish() {
  MLA_RETURN_IF_ERROR(Open());
  int fault = ::fsync(fd_.get()) == 0 ? 0 : errno;
  // Some file systems report a failed write only here.
  if (::close(fd_.release()) != 0 && fault == 0) fault = errno;
  if (fault == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) fault = errno;
  if (fault != 0) {
    Discard();
    return CantWrite(path_, fault);
  }
  temporary_.clear();
  SyncFolder(std::filesystem::path(path_).parent_path().string());
  return {};
}

Status ReplaceFile(const std::string& path, std::string_view bytes) {
  MLA_ASSIGN_OR_RETURN(NewFile file, NewFile::Create(path));
  MLA_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(bytes))));
  return file.Finish();
}

}  // namespace mla::io
