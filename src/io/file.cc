#include "io/file.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "io/quote.h"

namespace mla::io {
namespace {

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Result<RegularFile> OpenRegularFile(const std::string& path) {
  if (path.find('\0') != std::string::npos) return Error{fmt::format("{}: the path holds a NUL", Printable(path))};
  // Without O_NONBLOCK, opening a pipe waits for a writer.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (fd.get() < 0) {
    return Error{fmt::format("{}: can't be opened: {}", Printable(path), std::generic_category().message(errno))};
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    return Error{fmt::format("{}: can't be examined: {}", Printable(path), std::generic_category().message(errno))};
  }
  if (!S_ISREG(info.st_mode)) {
    return Error{fmt::format("{}: expected a regular file, found {}", Printable(path), KindOf(info.st_mode))};
  }
  return RegularFile{std::move(fd), static_cast<std::int64_t>(info.st_size)};
}

Result<std::string> ReadFile(const std::string& path, std::int64_t max_bytes) {
  MLA_ASSIGN_OR_RETURN(const RegularFile file, OpenRegularFile(path));
  const auto too_large = [&] {
    return Error{fmt::format("{}: expected at most {} bytes, found {}", Printable(path), max_bytes,
                             file.bytes > max_bytes ? std::to_string(file.bytes) : "more")};
  };
  if (file.bytes > max_bytes) return too_large();
  std::string text;
  // The size is a hint: the file may grow or shrink while it is read, and files of /proc claim to be empty.
  std::size_t room = static_cast<std::size_t>(file.bytes) + 1;
  while (true) {
    const std::size_t have = text.size();
    text.resize(have + room);
    const ssize_t got = ::read(file.fd.get(), text.data() + have, room);
    text.resize(have + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return Error{fmt::format("{}: can't be read: {}", Printable(path), std::generic_category().message(errno))};
    }
    if (got == 0) return text;
    if (static_cast<std::int64_t>(text.size()) > max_bytes) return too_large();
    room = 65536;
  }
}

int WriteAll(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // Linux writes at most 2^31 - 4096 bytes a call.
    const ssize_t wrote = ::write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), std::size_t{1} << 30));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    if (wrote == 0) return EIO;
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
  return 0;
}

void SyncFolder(const std::string& path) {
  const FileDescriptor fd(::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0) static_cast<void>(::fsync(fd.get()));
}

Error CantWrite(const std::string& path, int fault) {
  return Error{fmt::format("{}: can't be written: {}", Printable(path), std::generic_category().message(fault))};
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  MLA_ASSIGN_OR_RETURN(const RegularFile file, OpenRegularFile(path));
  if (file.bytes == 0) return Error{fmt::format("{}: the file is empty", Printable(path))};
  MappedFile mapped;
  void* data = ::mmap(nullptr, static_cast<std::size_t>(file.bytes), PROT_READ, MAP_SHARED, file.fd.get(), 0);
  if (data == MAP_FAILED) {
    return Error{fmt::format("{}: can't be mapped: {}", Printable(path), std::generic_category().message(errno))};
  }
  mapped.data_ = static_cast<std::byte*>(data);
  mapped.size_ = static_cast<std::size_t>(file.bytes);
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void MappedFile::Prefetch(std::span<const std::byte> part) const {
  if (part.empty()) return;
  MLA_CHECK(part.data() >= data_ && part.data() + part.size() <= data_ + size_);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = static_cast<std::size_t>(part.data() - data_);
  const std::size_t first = begin / page * page;
  static_cast<void>(::madvise(data_ + first, begin + part.size() - first, MADV_WILLNEED));
}

void MappedFile::Drop(std::span<const std::byte> part) const {
  if (part.empty()) return;
  MLA_CHECK(part.data() >= data_ && part.data() + part.size() <= data_ + size_);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = static_cast<std::size_t>(part.data() - data_);
  const std::size_t first = (begin + page - 1) / page * page;
  const std::size_t last = (begin + part.size()) / page * page;
  // A refused hint changes nothing that anyone could act on.
  if (first < last) static_cast<void>(::madvise(data_ + first, last - first, MADV_DONTNEED));
}

}  // namespace mla::io
