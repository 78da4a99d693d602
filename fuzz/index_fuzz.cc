// Any bytes as a folder: up to the first NUL the index, up to the second the header of the shard "a", the rest that of
// the shard "b"; each shard has 64 bytes of data. A checkpoint that results has tensors that lie within its files.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <unistd.h>

#include "base/check.h"
#include "io/checkpoint.h"

namespace {

// A folder of this process; files stay in memory where the system has such a place.
class Folder {
 public:
  Folder() {
    const std::filesystem::path memory = "/dev/shm";
    const auto parent = std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
    path_ = parent / ("index_fuzz." + std::to_string(getpid()));
    std::filesystem::create_directory(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path() const { return path_.string(); }
  void Write(std::string_view name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

 private:
  std::filesystem::path path_;
};

// A file whose header's length is right: what else its bytes may be is safetensors_fuzz's.
std::string Shard(std::string_view header) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 4; ++i) bytes[i] = static_cast<char>((header.size() >> (8 * i)) & 0xFF);
  return bytes.append(header).append(64, 'x');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t first = all.find('\0');
  const std::size_t second = first == std::string_view::npos ? first : all.find('\0', first + 1);
  if (second == std::string_view::npos) return 0;
  folder.Write("model.safetensors.index.json", all.substr(0, first));
  folder.Write("a.safetensors", Shard(all.substr(first + 1, second - first - 1)));
  folder.Write("b.safetensors", Shard(all.substr(second + 1)));
  const auto checkpoint = mla::io::Checkpoint::Open(folder.path());
  if (!checkpoint.ok()) {
    MLA_CHECK(checkpoint.error().message.find('\n') == std::string::npos);
    return 0;
  }
  int sum = 0;
  for (const mla::io::Tensor& tensor : checkpoint->tensors()) {
    MLA_CHECK(checkpoint->Find(tensor.name) == &tensor);
    MLA_CHECK(tensor.bytes >= 0 && tensor.bytes <= 64);
    for (std::int64_t i = 0; i < tensor.bytes; ++i) sum += std::to_integer<int>(tensor.data[i]);
  }
  MLA_CHECK(sum >= 0);
  return 0;
}
