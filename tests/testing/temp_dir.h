// A folder that is gone when the test ends.
#ifndef MLA_TESTS_TESTING_TEMP_DIR_H_
#define MLA_TESTS_TESTING_TEMP_DIR_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace mla::testing {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "mla-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }
  // Writes a file and returns its path.
  std::string Write(std::string_view name, std::string_view bytes) const {
    std::ofstream(File(name), std::ios::binary) << bytes;
    return File(name);
  }

 private:
  std::string path_;
};

// Folder of files that live beside the repository, "" where there is none: tests that need it then skip.
inline std::string SharedDir() {
  const std::string path = std::string(MLA_SOURCE_DIR) + "/../shared";
  return std::filesystem::exists(path) ? path : std::string();
}

inline std::string DemoDir() { return std::string(MLA_SOURCE_DIR) + "/models/demo"; }

}  // namespace mla::testing

#endif  // MLA_TESTS_TESTING_TEMP_DIR_H_
