// Any bytes as a cache file. The first says which checksums are put right before (1 the header's, 2 the whole file's),
// so that what lies behind them is reached; the rest is the file. What is read hangs together, and fits what was asked
// for.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <unistd.h>

#include "base/check.h"
#include "base/hash.h"
#include "engine/cache_file.h"

namespace {

using mla::engine::CacheFileReader;

constexpr std::int64_t kMostTokens = 512;

// A file of this process; in memory where the system has such a place.
class File {
 public:
  File() {
    const std::filesystem::path memory = "/dev/shm";
    const auto parent = std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
    path_ = parent / ("cache_file_fuzz." + std::to_string(getpid()));
  }
  ~File() { std::filesystem::remove(path_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string path() const { return path_.string(); }
  void Write(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

 private:
  std::filesystem::path path_;
};

// The last eight of the first `size` bytes become the checksum of those before.
void PutRight(std::string* bytes, std::size_t size) {
  if (size < 8 || size > bytes->size()) return;
  const std::uint64_t checksum = mla::HashOf(std::as_bytes(std::span(*bytes).first(size - 8)));
  std::memcpy(bytes->data() + size - 8, &checksum, sizeof(checksum));
}

mla::Status ReadAll(const std::string& path) {
  MLA_ASSIGN_OR_RETURN(CacheFileReader reader, CacheFileReader::Open(path));
  MLA_RETURN_IF_ERROR(reader.Require(reader.schema()));
  MLA_RETURN_IF_ERROR(reader.RequireAtMost(kMostTokens, kMostTokens));
  MLA_RETURN_IF_ERROR(reader.ReadIds());
  const mla::engine::CacheFileContent& content = reader.content();
  MLA_CHECK_EQ(std::ssize(content.ids), reader.tokens());
  MLA_CHECK(content.rows >= 1 && content.rows <= reader.tokens() && reader.tokens() <= kMostTokens);
  MLA_CHECK(content.output >= 0 && content.output < reader.tokens());
  for (const std::int32_t id : content.ids) MLA_CHECK(id >= 0 && id < content.schema.vocab_size);
  MLA_CHECK_EQ(content.forms.front().begin, 0);
  MLA_CHECK_LT(content.forms.back().begin, content.rows);
  std::vector<std::byte> row(static_cast<std::size_t>(content.schema.row_bytes));
  std::int64_t rows = 0;
  const mla::Status read = reader.ReadRows([&](std::int64_t layer, std::int64_t token) {
    MLA_CHECK_EQ(layer * content.rows + token, rows);
    ++rows;
    return std::span(row);
  });
  if (read.ok()) MLA_CHECK_EQ(rows, content.schema.layers * content.rows);
  return read;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const File file;
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::uint32_t header = 0;
  if (bytes.size() >= 16) std::memcpy(&header, bytes.data() + 12, sizeof(header));
  if ((data[0] & 1) != 0) PutRight(&bytes, header);
  if ((data[0] & 2) != 0) PutRight(&bytes, bytes.size());
  file.Write(bytes);
  const mla::Status read = ReadAll(file.path());
  if (!read.ok()) MLA_CHECK(read.error().message.find('\n') == std::string::npos);
  return 0;
}
