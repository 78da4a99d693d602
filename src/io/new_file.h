// A file that appears whole or not at all, in place of an older one of that name: it is written beside its place, and
// renamed at the end.
#ifndef MLA_IO_NEW_FILE_H_
#define MLA_IO_NEW_FILE_H_

#include <cstddef>
#include <span>
#include <string>

#include "io/file.h"
#include "mla/result.h"

namespace mla::io {

class NewFile {
 public:
  // Fails, naming the path, where its folder can't be written to.
  static Result<NewFile> Create(const std::string& path);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&& other) noexcept;
  // Removes what was written, unless Finish has succeeded.
  ~NewFile();

  // Fails where the file system refuses, a full disk among others; then, or once finished, on every further call.
  Status Append(std::span<const std::byte> bytes);
  // Has the bytes reach the disk, and gives the file its name.
  Status Finish();
  // Gives up: nothing is left.
  void Discard();

 private:
  NewFile(std::string path, std::string temporary, FileDescriptor fd);
  Status Open() const;

  std::string path_;
  std::string temporary_;  // empty once finished or discarded
  FileDescriptor fd_;
};

// Gives `path` these bytes, whole or not at all. Fails, naming the path; a file of that name is then as it was.
Status ReplaceFile(const std::string& path, std::string_view bytes);

}  // namespace mla::io

#endif  // MLA_IO_NEW_FILE_H_
