// A folder that appears whole or not at all: it is filled beside its place, and renamed at the end.
#ifndef MLA_IO_NEW_FOLDER_H_
#define MLA_IO_NEW_FOLDER_H_

#include <string>
#include <string_view>

#include "mla/result.h"

namespace mla::io {

class NewFolder {
 public:
  // Fails, naming the path, where something has that name already, or its parent can't be written to.
  static Result<NewFolder> Create(const std::string& path);
  NewFolder(NewFolder&&) noexcept;
  NewFolder& operator=(NewFolder&&) = delete;
  // Removes everything, unless Finish has succeeded.
  ~NewFolder();

  // Where a file is to be written meanwhile.
  std::string File(std::string_view name) const;
  // A file with these bytes, synced.
  Status Write(std::string_view name, std::string_view bytes) const;
  // A copy of a file, through symbolic links.
  Status Copy(const std::string& from, std::string_view name) const;
  // Gives the folder its name. Fails where it was taken in the meantime.
  Status Finish();

 private:
  NewFolder(std::string path, std::string temporary);
  std::string path_;
  std::string temporary_;  // empty once finished
};

}  // namespace mla::io

#endif  // MLA_IO_NEW_FOLDER_H_
