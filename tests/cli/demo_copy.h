// The demo's folder, to break.
#ifndef MLA_TESTS_CLI_DEMO_COPY_H_
#define MLA_TESTS_CLI_DEMO_COPY_H_

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <nlohmann/json.hpp>

#include "testing/temp_dir.h"

namespace mla::testing {

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The demo's folder in a folder of the test's, files linked until one is replaced.
class DemoCopy {
 public:
  DemoCopy() {
    for (const char* file : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}) {
      std::filesystem::create_symlink(DemoDir() + "/" + file, dir_.File(file));
    }
  }
  const std::string& path() const { return dir_.path(); }
  void Replace(const std::string& file, const std::string& bytes) const {
    std::filesystem::remove(dir_.File(file));
    dir_.Write(file, bytes);
  }
  void Config(const std::string& key, const nlohmann::json& value) const {
    nlohmann::json config = nlohmann::json::parse(ReadFile(DemoDir() + "/config.json"));
    config[key] = value;
    Replace("config.json", config.dump());
  }
  void Remove(const std::string& file) const { std::filesystem::remove(dir_.File(file)); }

 private:
  TempDir dir_;
};

}  // namespace mla::testing

#endif  // MLA_TESTS_CLI_DEMO_COPY_H_
