#include "io/new_folder.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file.h"
#include "io/quote.h"

namespace mla::io {
namespace {

namespace fs = std::filesystem;

Error Taken(const std::string& path) {
  return Error{fmt::format("{}: expected no file or folder of that name, found one", Printable(path))};
}

// Not every file system knows the flag; without it, only an empty folder would be replaced.
int RenameToNew(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

}  // namespace

Result<NewFolder> NewFolder::Create(const std::string& path) {
  std::string place = path;
  while (place.size() > 1 && place.back() == '/') place.pop_back();
  std::error_code ignored;
  if (fs::symlink_status(place, ignored).type() != fs::file_type::not_found) return Taken(path);
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::string temporary = fmt::format("{}.partial-{}-{}", place, ::getpid(), attempt);
    if (::mkdir(temporary.c_str(), 0777) == 0) return NewFolder(std::move(place), std::move(temporary));
    if (errno != EEXIST) break;
  }
  return CantWrite(path, errno);
}

NewFolder::NewFolder(std::string path, std::string temporary)
    : path_(std::move(path)), temporary_(std::move(temporary)) {}

NewFolder::NewFolder(NewFolder&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})) {}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

std::string NewFolder::File(std::string_view name) const { return fmt::format("{}/{}", temporary_, name); }

Status NewFolder::Write(std::string_view name, std::string_view bytes) const {
  const std::string path = File(name);
  const FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (fd.get() < 0) return CantWrite(path, errno);
  if (const int fault = WriteAll(fd.get(), std::as_bytes(std::span(bytes))); fault != 0) return CantWrite(path, fault);
  if (::fsync(fd.get()) != 0) return CantWrite(path, errno);
  return {};
}

Status NewFolder::Copy(const std::string& from, std::string_view name) const {
  std::error_code error;
  fs::copy_file(from, File(name), error);
  if (!error) return {};
  return Error{fmt::format("{}: can't be copied to {}: {}", Printable(from), Printable(File(name)), error.message())};
}

Status NewFolder::Finish() {
  SyncFolder(temporary_);
  const int fault = RenameToNew(temporary_, path_);
  if (fault == EEXIST || fault == ENOTEMPTY || fault == ENOTDIR) return Taken(path_);
  if (fault != 0) return CantWrite(path_, fault);
  temporary_.clear();
  SyncFolder(fs::path(path_).parent_path().string());
  return {};
}

}  // namespace mla::io
