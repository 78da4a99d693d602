// Regular files, opened with care: what a path names may be a directory, a pipe or an endless device.
#ifndef MLA_IO_FILE_H_
#define MLA_IO_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mla/result.h"

namespace mla::io {

// Closes what it holds.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();
  int get() const { return fd_; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_ = -1;
};

struct RegularFile {
  FileDescriptor fd;
  std::int64_t bytes = 0;
};

// Opens a regular file for reading, through symbolic links. Fails, naming the path, where there is none or it is of
// another kind; never waits for the other end of a pipe.
Result<RegularFile> OpenRegularFile(const std::string& path);

// The bytes of a regular file of at most max_bytes.
Result<std::string> ReadFile(const std::string& path, std::int64_t max_bytes);

// Writes all bytes; 0, or errno.
int WriteAll(int fd, std::span<const std::byte> bytes);
// Has what was made in or renamed into a folder reach the disk; "" is the current one. A file system that can't sync a
// folder says so; what is in it is safe.
void SyncFolder(const std::string& path);
// "PATH: can't be written: CAUSE", the cause by errno.
Error CantWrite(const std::string& path, int fault);

// A whole file mapped for reading. Bytes that another process cuts off while they are mapped raise SIGBUS when touched:
// nothing short of copying the file can prevent that.
class MappedFile {
 public:
  // Fails as OpenRegularFile, and on an empty file.
  static Result<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Has the system read `part`, which lies in bytes(), while the caller goes on. Only a hint.
  void Prefetch(std::span<const std::byte> part) const;
  // Drops the whole pages inside `part`, which lies in bytes(), from this process's memory.
  void Drop(std::span<const std::byte> part) const;

 private:
  MappedFile() = default;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace mla::io

#endif  // MLA_IO_FILE_H_
